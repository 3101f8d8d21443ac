"""The executor that makes a run one session. It opens it before the first step, and publishes it before the run ends.

It wraps another executor, which runs the steps. Publishing happens here, not in a step, a hook or a sensor, because
only the executor's process runs until the end of the run and can still fail it.
"""

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from dagster import (
    AssetKey,
    DagsterEvent,
    DagsterExecutionInterruptedError,
    DagsterInstance,
    Executor,
    ExecutorDefinition,
    InitExecutorContext,
    multi_or_in_process_executor,
)

from lake_core.lake import Lake
from lake_core.lake.refs.session_record import SessionRecord
from lake_orch._dagster import EngineEventData, ExecutionPlan, PlanOrchestrationContext, RetryMode, StepDependencyConfig
from lake_orch.dagster.runs.gate import failed_checks
from lake_orch.dagster.runs.kept_session import completed_session
from lake_orch.dagster.runs.lineage import mapped_steps_left_out
from lake_orch.dagster.runs.published_state import evaluate_again
from lake_orch.dagster.runs.publishing import (
    check_steps,
    check_still_runs,
    is_ended,
    publish_session,
    published_metadata,
)
from lake_orch.dagster.runs.run_session import PublishScope, RunSession, open_run_session, scope_of
from lake_orch.dagster.runs.steps import StepStates
from lake_orch.dagster.runs.unpublished import advice_after, unpublished_message, unpublished_metadata
from lake_orch.errors import InvalidDefinition, StepsLeftOut
from lake_orch.jobs.resource_of_run import lake_of_run
from lake_orch.resources import LakeResource
from lake_orch.tags import SESSION_TAG

_LOG = logging.getLogger(__name__)


class SessionExecutor(Executor):
    """An executor that runs the steps by another executor within one session of the lake."""

    def __init__(self, inner: Executor, scope: PublishScope = "run") -> None:
        self.inner, self._scope = inner, scope

    @property
    def retries(self) -> RetryMode:
        """Return how the other executor retries steps."""
        return self.inner.retries

    @property
    def step_dependency_config(self) -> StepDependencyConfig:
        """Return the other executor's condition to start a step: the end of upstream steps, or their outputs."""
        return self.inner.step_dependency_config

    def execute(self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
        """Yield the run's events.

        Raises SessionLost before any step runs, and the errors of publishing, which fail the run.
        """
        if scope_of(plan_context.dagster_run.tags, self._scope) == "asset":
            run = plan_context.dagster_run
            check_steps(
                f"run {run.parent_run_id}",
                mapped_steps_left_out(plan_context.instance, run),
                remedy="Choose these steps as well, and those after them",
            )
            yield from self.inner.execute(plan_context, execution_plan)
            return
        with lake_of_run(plan_context) as resource:
            yield from self._within_session(plan_context, execution_plan, resource)

    def _within_session(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan, resource: LakeResource
    ) -> Iterator[DagsterEvent]:
        instance, run = plan_context.instance, plan_context.dagster_run
        lake, gate, branch = resource.open(), resource.gate_of(run.tags), resource.branch_of(run.tags, instance)
        keep = resource.keep_failed
        session = open_run_session(
            instance,
            run,
            lake,
            branch=branch,
            root=resource.root,
            publisher="executor",
            gate=gate,
            continued=completed_session(instance, run, lake, branch, _reads(plan_context)),
        )
        branch = lake.get_session(session.id).branch
        verb = "resumed" if session.resumed else "opened"
        steps: list[str] = []
        error: BaseException | None = None
        reason = "its run was interrupted"
        try:
            metadata = {SESSION_TAG: session.id} | ({"lake/epoch": session.epoch} if session.resumed else {})
            yield _event(plan_context, f"Session {session.id} {verb} on branch {branch}", metadata)
            if session.resumed:
                try:
                    check_steps(
                        f"session {session.id}",
                        StepStates(instance, session.id).left_out(execution_plan.step_keys_to_execute),
                    )
                except StepsLeftOut as refusal:
                    error, reason = refusal, "its run leaves out steps"
                    raise
            for event in self.inner.execute(plan_context, execution_plan):
                if event.is_step_failure and event.step_key:
                    steps.append(event.step_key)
                yield event
            if steps:
                reason = f"steps failed: {', '.join(steps[:10])}"
            else:
                try:
                    check_still_runs(instance, run.run_id)
                    published = publish_session(instance, lake, session, gate=gate, keep_failed_for=keep)
                except (Exception, DagsterExecutionInterruptedError) as refusal:
                    error, reason = refusal, str(refusal)
                    raise
                metadata = published_metadata(session, branch, published, resumed=session.resumed)
                yield _event(
                    plan_context,
                    f"Session {session.id} published as commit {published.commit[:12]} of {branch}",
                    metadata,
                )
                return
        except GeneratorExit:
            # The run has ended, so nothing more can be reported.
            _leave_failed(lake, session, reason, keep)
            raise
        except BaseException as raised:
            if not _goes_on(instance, run.run_id, raised):
                yield from self._unpublished(plan_context, lake, session, reason, keep, error)
            raise
        yield from self._unpublished(plan_context, lake, session, reason, keep, error)

    def _unpublished(
        self,
        plan_context: PlanOrchestrationContext,
        lake: Lake,
        session: RunSession,
        reason: str,
        keep: timedelta,
        error: BaseException | None,
    ) -> Iterator[DagsterEvent]:
        """Fail the session, and explain this on the run's page."""
        record = _leave_failed(lake, session, reason, keep)
        checks = failed_checks(plan_context.instance, session.id, "blocking")
        message = (
            None if record is None else unpublished_message(record, advice_after(error, checks_failed=bool(checks)))
        )
        if record is not None and message is not None:
            yield _event(plan_context, message, unpublished_metadata(record))
            evaluate_again(plan_context.instance, lake, session.id)


def _goes_on(instance: DagsterInstance, run_id: str, raised: BaseException) -> bool:
    """Return whether run monitoring will start another worker for a run, while its steps write into the session."""
    run = instance.get_run_by_id(run_id)
    is_stopped = isinstance(raised, DagsterExecutionInterruptedError) and run is not None and not is_ended(run)
    return is_stopped and instance.run_will_resume(run_id)


def _leave_failed(lake: Lake, session: RunSession, reason: str, keep: timedelta) -> SessionRecord | None:
    """Mark a session failed, and return its record. A published session is not changed.

    An error here is only logged, so that the run ends with its own error. The reaper finds a session that stays open.
    """
    try:
        lake.get_session(session.id, epoch=session.epoch).fail(reason, keep=keep)
        return lake.get_session(session.id).record
    except Exception:
        _LOG.warning("session %s could not be marked failed: it stays open until it expires", session.id, exc_info=True)
        return None


def _reads(plan_context: PlanOrchestrationContext) -> set[AssetKey]:
    """Return the assets that a run reads and does not make."""
    layer = plan_context.job.get_definition().asset_layer
    made = layer.selected_asset_keys
    return {parent for key in made for parent in layer.get(key).parent_keys} - made


def _event(plan_context: PlanOrchestrationContext, message: str, metadata: dict[str, Any]) -> DagsterEvent:
    return DagsterEvent.engine_event(plan_context, message, EngineEventData(metadata))


def with_sessions(
    executor: ExecutorDefinition, *, name: str | None = None, scope: PublishScope = "run"
) -> ExecutorDefinition:
    """Wrap an executor, such as `k8s_job_executor`, so that a run's steps are in one session of the lake.

    Its configuration stays the same. Runs tagged `lake/scope: asset` have no session. With `scope="asset"`, only runs
    tagged `lake/scope: run` have one.
    """
    create = executor.executor_creation_fn
    if create is None:
        raise InvalidDefinition(
            f"executor {executor.name!r} cannot be wrapped, because its definition does not create an executor: choose "
            "another one, such as multiprocess_executor"
        )

    def wrapped(context: InitExecutorContext) -> Executor:
        inner = create(context)
        # A second wrapper would open the session again at a later epoch, and publish it twice.
        return SessionExecutor(inner.inner if isinstance(inner, SessionExecutor) else inner, scope)

    return ExecutorDefinition(
        name=name or f"lake_{executor.name}",
        config_schema=executor.config_schema,  # type: ignore[arg-type]  # a converted schema is taken as it is
        requirements=executor.get_requirements,
        executor_creation_fn=wrapped,
        description=f"{executor.name}, with a run's steps in one session of the lake.",
    )


lake_executor = with_sessions(multi_or_in_process_executor, name="lake_executor")
"""Dagster's default executor, with a run's steps in one session: `Definitions(executor=lake_executor)`."""
