"""Benchmarks against `deltalake`: `python -m benchmarks` (or `make bench`).

Every figure is a ratio of two runs in turn.
"""
