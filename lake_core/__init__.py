"""Open lake formats over any object store: the store itself, and the formats that stand on it.

Start at `lake_core.delta.DeltaTable` for tables, at `lake_core.store.open_store` for bytes.
"""
