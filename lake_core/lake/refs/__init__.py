"""The refs of a lake: branches, tags, sessions and commits, all in one journal."""
