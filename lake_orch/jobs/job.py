"""Jobs whose runs are one session of the lake each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from lake_orch.dagster.runs.run_session import Gate, PublishScope
from lake_orch.jobs.executor import lake_executor, with_sessions
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

    Args:
        name: The name of the job.
        selection: The assets. The default is all assets.
        gate: The failed checks that prevent publishing. The default is the resource's gate.
        scope: `"asset"` makes a job whose assets publish one by one, even if the code location's executor makes each
            run one session.
        branch: The branch that the runs read and publish to.
        executor_def: The executor that runs the steps, such as `k8s_job_executor`. The default is Dagster's.
        tags: More tags of the runs.
        options: The options of `dg.define_asset_job`.
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
