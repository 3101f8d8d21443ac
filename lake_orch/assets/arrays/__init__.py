"""Arrays of a lake as Dagster assets: settings in metadata, the region that a run writes, and the writer."""
