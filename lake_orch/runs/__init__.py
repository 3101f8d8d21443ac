"""Runs of orchestrators in a lake: their attempts, the session of a run, and the gate before it is published."""
