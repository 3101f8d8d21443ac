"""What a merge means: a model, and real lakes that do the same histories."""
