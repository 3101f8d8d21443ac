"""A state of the lake (a commit, a branch or a session) as an object store."""
