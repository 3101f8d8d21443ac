"""Arrays of a lake as Dagster's assets: what metadata says of them, which region a run writes, and how it is written."""
