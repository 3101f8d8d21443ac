"""Dagster runs in a lake: attempts and their lineage, the session of a run, and the gate before it is published."""
