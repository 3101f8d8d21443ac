"""Pools as Dagster assets: settings in metadata, ranges of keys that a run writes, conversion of records and values."""
