"""Runs of Dagster: attempts, sessions, gates, recovery, and what is visible of them."""
