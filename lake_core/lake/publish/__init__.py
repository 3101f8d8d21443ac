"""Publishing to a branch: changes are applied to its head, committed by one entry of the refs journal, and checked out."""
