"""What an asset returns, as rows of a Delta table: types, definitions, partitions, modes, and what the UI is told."""
