"""The files of landing zones, grouped into batches that land once."""
