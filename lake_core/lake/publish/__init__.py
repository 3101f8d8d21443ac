"""How a branch moves: what changed is applied to its head, committed by one entry of the refs journal, and checked out."""
