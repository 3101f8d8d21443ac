"""What Dagster says, in the words of the lane: partitions, contexts, definitions."""
