"""Files: bytes, text and JSON of assets, as plain files of the lake."""
