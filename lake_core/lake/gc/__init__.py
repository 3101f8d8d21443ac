"""Garbage collection, and verification that all reachable objects exist."""
