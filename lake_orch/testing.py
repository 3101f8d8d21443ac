"""`materialize` and `execute_in_process` like Dagster's, with the guarantees of a run that is one session.

Dagster's functions bypass executors, which open and publish sessions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import dagster as dg

from lake_core.errors import LakeError
from lake_orch.dagster.runs.gate import runs_of
from lake_orch.dagster.runs.published_state import evaluate_again
from lake_orch.dagster.runs.publishing import publish_session
from lake_orch.dagster.runs.run_session import EXPIRY, Gate, RunSession, fence_ended_runs, session_id
from lake_orch.dagster.runs.unpublished import advice_after, report_unpublished
from lake_orch.jobs.resource_of_run import find_lake
from lake_orch.resources import LakeResource
from lake_orch.tags import GATE_TAG, HELD_GATE_TAG, PUBLISHER_TAG, ROOT_TAG

__all__ = ["execute_in_process", "materialize"]


def materialize(
    assets: Sequence[Any],
    *,
    resources: Mapping[str, object],
    instance: dg.DagsterInstance | None = None,
    tags: Mapping[str, str] | None = None,
    gate: Gate | None = None,
    resume: str | None = None,
    raise_on_error: bool = True,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """Run `dg.materialize`, as one session that is published if all steps succeed.

    Args:
        assets: The assets to materialize.
        resources: The resources. One of them must be a lake.
        instance: The Dagster instance. The default is a temporary one.
        tags: The tags of the run.
        gate: The failed checks that prevent publishing. The default is the gate of the tags or of the resource.
        resume: The id of a failed session to continue. It needs the instance of its runs, which knows what they did.
        raise_on_error: Raise the errors of steps.
        options: The other options of `dg.materialize`.

    Raises:
        GateFailed: A check prevents publishing.
        Conflict: Another writer has published conflicting changes.
        ValueError: `resume` is given without `instance`.
    """

    def run(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            assets, resources=resources, instance=instance, tags=tags, raise_on_error=raise_on_error, **options
        )

    return _as_session(run, resources, options.get("run_config"), instance, tags or {}, gate, resume, "materialize")


def execute_in_process(
    job: dg.JobDefinition,
    *,
    instance: dg.DagsterInstance | None = None,
    tags: Mapping[str, str] | None = None,
    gate: Gate | None = None,
    resume: str | None = None,
    raise_on_error: bool = True,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """Run `job.execute_in_process`, as one session that is published if all steps succeed.

    The arguments are as for `materialize`.
    """

    def run(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> dg.ExecuteInProcessResult:
        return job.execute_in_process(instance=instance, tags=tags, raise_on_error=raise_on_error, **options)

    resources = {**job.resource_defs, **(options.get("resources") or {})}
    return _as_session(
        run, resources, options.get("run_config"), instance, {**job.tags, **(tags or {})}, gate, resume, job.name
    )


def _as_session(
    run: Callable[[dg.DagsterInstance, Mapping[str, str]], dg.ExecuteInProcessResult],
    resources: Mapping[str, object],
    run_config: Any,
    instance: dg.DagsterInstance | None,
    tags: Mapping[str, str],
    gate: Gate | None,
    resume: str | None,
    name: str,
) -> dg.ExecuteInProcessResult:
    if resume is not None and instance is None:
        # A temporary instance knows no earlier run, and what those staged would be left out.
        raise ValueError(f"pass the instance in which the runs of session {resume} ran, to resume it")
    with (
        nullcontext(instance) if instance else dg.DagsterInstance.ephemeral() as opened_instance,
        find_lake(resources, name, opened_instance, run_config) as resource,
    ):
        lake, branch = resource.open(), resource.branch_of(tags, opened_instance)
        fence_ended_runs(opened_instance, lake, branch)
        handle = lake.open_session(branch, id=resume or session_id(str(uuid.uuid4())), expires_in=EXPIRY, message=name)
        session = RunSession(handle.id, handle.epoch, resumed=resume is not None)
        reason, error = "it was interrupted", None
        # Recovery reads these tags.
        gate_tags = {HELD_GATE_TAG: resource.gate_of(tags)} | ({GATE_TAG: gate} if gate else {})
        try:
            result = run(
                opened_instance,
                {**tags, **gate_tags, **session.tags, PUBLISHER_TAG: "testing", ROOT_TAG: resource.root},
            )
            if result.success:
                _publish(opened_instance, resource, session, gate or resource.gate_of(tags), result)
                return result
            reason = "steps failed"
            return result
        except Exception as raised:
            reason, error = "steps failed", raised if isinstance(raised, LakeError) else None
            raise
        finally:
            # This has no effect on a published session.
            lake.get_session(session.id, epoch=session.epoch).fail(reason, keep=resource.keep_failed)
            record = lake.get_session(session.id).record
            for last in runs_of(opened_instance, session.id)[-1:]:
                report_unpublished(opened_instance, last, record, advice_after(error))
            if not record.is_published:
                evaluate_again(opened_instance, lake, session.id)


def _publish(
    instance: dg.DagsterInstance,
    resource: LakeResource,
    session: RunSession,
    gate: Gate,
    result: dg.ExecuteInProcessResult,
) -> None:
    try:
        publish_session(instance, resource.open(), session, gate=gate, keep_failed_for=resource.keep_failed)
    except Exception as error:
        run = instance.get_run_by_id(result.run_id)
        if run is not None:
            instance.report_run_failed(run, f"Session {session.id} is not published: {error}")
        raise
