"""Publishing to a branch: changes are applied to its head, committed by one journal entry, and checked out."""
