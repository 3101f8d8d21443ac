"""Writes in the code of a step: handles on tables, and sessions."""
