"""Jobs of the definitions that a page's examples leave, so that Dagster runs them with their own executor."""

from __future__ import annotations

from typing import Any

import dagster as dg

from tests.docs.blocks import run_blocks


def job(page: str, name: str, definitions: str = "defs") -> dg.JobDefinition:
    """Return a job by its name, or a job of all assets. `definitions` is the name that the page gives them."""
    defs: dg.Definitions = run_blocks(page)[definitions]
    jobs = [] if name else [dg.define_asset_job("every_asset")]
    return dg.Definitions.merge(defs, dg.Definitions(jobs=jobs)).resolve_job_def(name or "every_asset")


def execute(
    instance: dg.DagsterInstance, page: str, name: str = "", *, definitions: str = "defs", **options: Any
) -> dg.DagsterRun:
    """Run a job of `docs/<page>` from the current directory."""
    arguments = {"page": page, "name": name, "definitions": definitions}
    reconstructable = dg.build_reconstructable_job("tests.docs.page_job", "job", reconstructable_kwargs=arguments)
    config: dict[str, Any] = {"execution": {"config": {"in_process": {}}}}
    with dg.execute_job(reconstructable, instance=instance, run_config=config, **options) as result:
        run = instance.get_run_by_id(result.run_id)
    assert run is not None
    return run
