"""The lake as a Dagster resource, one file for each job: its root, its runs, and what they read."""
