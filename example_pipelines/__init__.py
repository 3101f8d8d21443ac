"""Dagster code locations to start from."""
