"""The title of a run in messages of commits: what it makes, in words of its user."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster import DagsterRun

_PARTITION, _RANGE = "dagster/partition", ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
_MOST = 200


def named_job(run: DagsterRun) -> str:
    """Return the name of a run's job; empty for a job that Dagster made itself, as for *Materialize* or a sensor."""
    return "" if run.job_name.startswith("__") else run.job_name


def title_of(run: DagsterRun) -> str:
    """Return the name of a run's job or, without one, of its assets, and its partitions. The id is in metadata."""
    keys = sorted(key.to_user_string() for key in run.asset_selection or ())
    start, end = (run.tags.get(name) for name in _RANGE)
    partition = run.tags.get(_PARTITION) or (f"{start} to {end}" if start and end else "")
    name = named_job(run) or ", ".join(keys) or f"run {run.run_id[:8]}"
    return f"{name} {partition}".strip()[:_MOST]
