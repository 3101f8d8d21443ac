"""Storage of an asset's values as rows of a Delta table: types, definitions, partitions, modes, metadata for the UI."""
