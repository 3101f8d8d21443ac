"""The request that clears tasks of a run, as Airflow's API takes it. It loads nothing of Airflow."""

from __future__ import annotations

from typing import Any


def clear_request(
    run_id: str, *tasks: str | tuple[str, int], downstream: bool = False, only_failed: bool = False
) -> dict[str, Any]:
    """Return the body of a request that clears tasks of a run, some of their indexes, or all."""
    return {
        "dag_run_id": run_id,
        "dry_run": False,
        "only_failed": only_failed,
        "only_running": False,
        "include_downstream": downstream,
        "reset_dag_runs": True,
        **({"task_ids": [list(task) if isinstance(task, tuple) else task for task in tasks]} if tasks else {}),
    }
