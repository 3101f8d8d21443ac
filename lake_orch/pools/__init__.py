"""Pools as Dagster assets: settings in metadata, the ranges of keys that a run writes, and conversion between records and values."""
