"""Pools of a lake as Dagster's assets: what metadata says of them, which keys a run writes, and how records become values and back."""
