"""Jobs whose runs are one session of the lake each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from lake_orch.jobs.executor import lake_executor, with_sessions
from lake_orch.runs.run_session import Gate, PublishScope
from lake_orch.tags import BRANCH_TAG, JOB_GATE_TAG, JOB_SCOPE_TAG


def lake_job(
    name: str,
    selection: dg.AssetSelection | Any = None,
    *,
    gate: Gate | None = None,
    scope: PublishScope = "run",
    branch: str | None = None,
    executor_def: dg.ExecutorDefinition | None = None,
    tags: Mapping[str, str] | None = None,
    **options: Any,
) -> Any:
    """Define an asset job whose runs publish all they materialize at once: `dg.define_asset_job` with the lake's executor.

    `gate`: which failed checks hold a run back; by default what the resource says. `scope="asset"` makes a job whose assets publish one by
    one where the code location's executor would do otherwise. `executor_def`: what runs the steps, such as `k8s_job_executor`; by default
    Dagster's own. `options` are those of `dg.define_asset_job`.
    """
    lake_tags = {JOB_SCOPE_TAG: scope} | ({JOB_GATE_TAG: gate} if gate else {}) | ({BRANCH_TAG: branch} if branch else {})
    return dg.define_asset_job(
        name,
        dg.AssetSelection.all() if selection is None else selection,
        executor_def=lake_executor if executor_def is None else with_sessions(executor_def),
        tags={**lake_tags, **(tags or {})},
        **options,
    )
