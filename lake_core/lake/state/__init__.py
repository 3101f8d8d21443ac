"""A state of the lake: what a commit, a branch or a session consists of, as an object store."""
