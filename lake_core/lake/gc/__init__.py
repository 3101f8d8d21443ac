"""Garbage collection, and the check that all is there that is reached."""
