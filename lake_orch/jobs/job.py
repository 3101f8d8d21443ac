"""Jobs with one session of the lake a run."""

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
    """Define an asset job whose runs publish all assets at once: `dg.define_asset_job` with the lake's executor.

    `gate` says which failed checks prevent publishing; the default is the resource's. `scope="asset"` makes a job whose
    assets publish one by one, even if the code location's executor makes runs one session. `executor_def` runs the
    steps, such as `k8s_job_executor`; the default is Dagster's. `options` are those of `dg.define_asset_job`.
    """
    lake_tags = (
        {JOB_SCOPE_TAG: scope} | ({JOB_GATE_TAG: gate} if gate else {}) | ({BRANCH_TAG: branch} if branch else {})
    )
    return dg.define_asset_job(
        name,
        dg.AssetSelection.all() if selection is None else selection,
        executor_def=lake_executor if executor_def is None else with_sessions(executor_def),
        tags={**lake_tags, **(tags or {})},
        **options,
    )
