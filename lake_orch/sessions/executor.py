"""The executor that makes a run one session: opened before the first step, published before the run ends.

It wraps another executor, which runs the steps. Only the executor's process sees the whole run, ends with it and can still fail it:
that is why publishing happens here and not in a step, a hook or a sensor.
"""

import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from dagster import (
    DagsterEvent,
    DagsterRunStatus,
    Executor,
    ExecutorDefinition,
    InitExecutorContext,
    multi_or_in_process_executor,
)
from dagster._core.events import EngineEventData
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.execution.step_dependency_config import StepDependencyConfig

from lake_core.lake import Lake
from lake_orch.errors import InvalidDefinition
from lake_orch.resources import LakeResource
from lake_orch.sessions.publishing import publish_session, published_metadata
from lake_orch.sessions.resource_of_run import lake_of_run
from lake_orch.sessions.run_session import RunSession, Scope, open_run_session
from lake_orch.tags import EPOCH_TAG, SCOPE_TAG, SESSION_TAG

_LOG = logging.getLogger(__name__)

_ENDED = (DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED, DagsterRunStatus.FAILURE, DagsterRunStatus.SUCCESS)


class SessionExecutor(Executor):
    """Runs the steps by another executor, within one session of the lake."""

    def __init__(self, inner: Executor, scope: Scope = "run") -> None:
        self.inner, self._scope = inner, scope

    @property
    def retries(self) -> RetryMode:
        return self.inner.retries

    @property
    def step_dependency_config(self) -> StepDependencyConfig:
        return self.inner.step_dependency_config

    def execute(self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
        """The run's events. Raises what publishing raises, which fails the run, and SessionLost before any step runs."""
        if scope_of_run(plan_context.dagster_run.tags, self._scope) == "asset":
            yield from self.inner.execute(plan_context, execution_plan)
            return
        with lake_of_run(plan_context) as resource:
            yield from self._within_session(plan_context, execution_plan, resource)

    def _within_session(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan, resource: LakeResource
    ) -> Iterator[DagsterEvent]:
        instance, run = plan_context.instance, plan_context.dagster_run
        lake, gate, branch = resource.open(), resource.gate_of(run.tags), resource.branch_of(run.tags)
        keep = resource.keep_failed
        session = open_run_session(instance, run, lake, branch=branch, root=resource.root, publisher="executor", gate=gate)
        verb = "resumed" if session.resumed else "opened"
        failed: list[str] = []
        over, reason = False, "its run was interrupted"
        try:
            told = {SESSION_TAG: session.id, EPOCH_TAG: session.epoch}
            yield _event(plan_context, f"Session {session.id} {verb} on branch {branch}", told)
            for event in self.inner.execute(plan_context, execution_plan):
                if event.is_step_failure and event.step_key:
                    failed.append(event.step_key)
                yield event
            if failed:
                reason = f"steps failed: {', '.join(failed[:10])}"
            elif (now := _status(plan_context)) is None or now in _ENDED:
                reason = f"its run is {now.value.lower() if now else 'gone'}"
            else:
                # From here on the session says itself what became of it.
                over = True
                done = publish_session(instance, lake, session, gate=gate, keep_failed_for=keep)
                metadata = published_metadata(session, branch, done, resumed=session.resumed)
                yield _event(plan_context, f"Session {session.id} published as commit {done.commit[:12]} of {branch}", metadata)
        finally:
            if not over:
                _leave_failed(lake, session, reason, keep)


def scope_of_run(tags: Mapping[str, str], default: Scope) -> Scope:
    """What a run publishes together. Raises InvalidDefinition for a tag that says neither."""
    scope = tags.get(SCOPE_TAG, default)
    if scope == "run":
        return "run"
    if scope == "asset":
        return "asset"
    raise InvalidDefinition(f"tag {SCOPE_TAG} is {scope!r}: use 'run' or 'asset'")


def _leave_failed(lake: Lake, session: RunSession, reason: str, keep: timedelta) -> None:
    """The run ends with its own error, whatever becomes of this: a session that stays open is found by the reaper."""
    try:
        lake.fail(session.id, reason, keep=keep, epoch=session.epoch)
    except Exception:
        _LOG.warning("session %s could not be marked failed: it stays open until it expires", session.id, exc_info=True)


def _status(plan_context: PlanOrchestrationContext) -> DagsterRunStatus | None:
    """The run's status now: somebody may have cancelled it by force."""
    run = plan_context.instance.get_run_by_id(plan_context.dagster_run.run_id)
    return None if run is None else run.status


def _event(plan_context: PlanOrchestrationContext, message: str, metadata: dict[str, Any]) -> DagsterEvent:
    return DagsterEvent.engine_event(plan_context, message, EngineEventData(metadata))


def with_sessions(executor: ExecutorDefinition, *, name: str | None = None, scope: Scope = "run") -> ExecutorDefinition:
    """Any executor, such as `k8s_job_executor`, with a run's steps in one session of the lake.

    Its configuration stays the same. Runs tagged `lake/scope: asset` go without a session; with `scope="asset"` all do but those tagged
    `lake/scope: run`.
    """
    create = executor.executor_creation_fn
    if create is None:
        raise InvalidDefinition(f"executor {executor.name!r} cannot be wrapped: it makes no executor by itself")

    def wrapped(context: InitExecutorContext) -> Executor:
        made = create(context)
        # One that is wrapped already: a second would open the session again, as a later epoch, and publish it twice.
        return SessionExecutor(made.inner if isinstance(made, SessionExecutor) else made, scope)

    return ExecutorDefinition(
        name=name or f"lake_{executor.name}",
        config_schema=executor.config_schema,  # type: ignore[arg-type]  # a converted schema is taken as it is
        requirements=executor.get_requirements,
        executor_creation_fn=wrapped,
        description=f"{executor.name}, with a run's steps in one session of the lake.",
    )


lake_executor = with_sessions(multi_or_in_process_executor, name="lake_executor")
"""Dagster's default executor, with a run's steps in one session: `Definitions(executor=lake_executor)`."""
