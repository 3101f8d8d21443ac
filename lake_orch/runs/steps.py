"""`StepStates`: the `TaskStates` of Dagster, from the plans and event logs of the runs of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_orch._dagster import ResolvedFromDynamicStepHandle, StepEventStatus
from lake_orch.runs.attempt import rank_of
from lake_orch.runs.gate import runs_of
from lake_orch.runs.marker import parse_app_id
from lake_orch.runs.plan import plan_of
from lake_orch.runs.run_session import from_tags
from lake_orch.runs.task_states import TryState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from dagster import DagsterInstance, DagsterRun

    from lake_core.lake.session.task_attempt import TaskAttempt
    from lake_orch._dagster import ExecutionPlanSnapshot

_FINE = (StepEventStatus.SUCCESS, StepEventStatus.SKIPPED)
_MAPPED = "[?]"
"""The end of the key of a mapped step in a plan that was made before its mapping was known."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step in the last run that was to execute it."""

    run: int
    """The number of the run."""
    number: int | None = None
    """The number of its last try in the run; None if it did not begin."""
    status: StepEventStatus | None = None

    @property
    def state(self) -> TryState:
        """Return the state of its last try. A step that did not begin is `RUNNING`: it is still to be run."""
        if self.status in _FINE:
            return TryState.SUCCEEDED
        return TryState.FAILED if self.status is StepEventStatus.FAILURE else TryState.RUNNING


class StepStates:
    """The steps of the runs that wrote into a session."""

    def __init__(self, instance: DagsterInstance, session: str) -> None:
        self._epochs: list[int] = []
        """The epoch of each run, in the order of the runs."""
        self._steps: dict[str, _Step] = {}
        self._outputs: dict[tuple[str, str], _Step] = {}
        """The last run that was to make an output, for outputs of which a run may leave out some."""
        for run in runs_of(instance, session):
            session_of_run = from_tags(run)
            if session_of_run is not None:
                self._epochs.append(session_of_run.epoch)
                self._add(instance, run, len(self._epochs) - 1)

    def _add(self, instance: DagsterInstance, run: DagsterRun, number: int) -> None:
        """Take the steps of the next run into account."""
        plan = plan_of(instance, run)
        planned = set(plan.step_keys_to_execute) if plan else set()
        mapped_anew = {key.removesuffix(_MAPPED) for key in planned if key.endswith(_MAPPED)}
        # A run that is asked for some steps leaves out others that never began, and one that re-executes no other run
        # those that failed as well. Steps that it maps once more are other ones.
        self._steps = {
            key: step
            for key, step in self._steps.items()
            if key.split("[")[0] not in mapped_anew
            and (
                key in planned
                or step.state is TryState.SUCCEEDED
                or (step.number is not None and run.parent_run_id is not None)
            )
        }
        self._steps |= {key: _Step(number) for key in planned if not key.endswith(_MAPPED)}
        for key in _resolved(plan) if plan else ():
            # Dagster leaves out mapped steps that had not begun when it re-executes a run from failure.
            self._steps.setdefault(key, _Step(number))
        for stats in instance.get_run_step_stats(run.run_id):
            if stats.status is not None:
                self._steps[stats.step_key] = _Step(number, max(stats.attempts or 1, 1) - 1, stats.status)
        for step in plan.steps if plan else ():
            if (last := self._steps.get(step.key)) is not None and last.run == number:
                for output in step.outputs:
                    properties = output.properties
                    is_left_out = properties is not None and properties.is_asset and properties.asset_key is None
                    if not is_left_out:
                        self._outputs[step.key, output.name] = last

    def of(self, attempt: TaskAttempt) -> TryState:
        """Return the state of a try at a step."""
        parsed = parse_app_id(attempt.task or "")
        if parsed is None:
            return TryState.SUCCEEDED
        step_key, output = parsed
        step = self._steps.get(step_key)
        if step is None:
            return TryState.GONE
        made = self._outputs.get((step_key, output), step)
        if not self._is_last(attempt, made):
            return TryState.GONE
        if made.run != step.run:
            # A later run made only other outputs of the step, because Dagster has this one.
            return TryState.SUCCEEDED
        return step.state

    def _is_last(self, attempt: TaskAttempt, step: _Step) -> bool:
        """Return whether an attempt is the last try at a step in a run, whose worker may have been resumed."""
        epoch, number = rank_of(attempt.number)
        after = self._epochs[step.run - 1] if step.run else 0
        return number == step.number and after < epoch <= self._epochs[step.run]

    def unfinished(self) -> Collection[str]:
        """Return the steps that have yet to succeed."""
        return sorted(key for key, step in self._steps.items() if step.state is not TryState.SUCCEEDED)

    def succeeded(self) -> set[str]:
        """Return the steps that have succeeded."""
        return {key for key, step in self._steps.items() if step.state is TryState.SUCCEEDED}

    def left_out(self, planned: Collection[str]) -> Collection[str]:
        """Return the steps that have yet to succeed, and that a run with this plan does not execute."""
        mapped = {key.removesuffix(_MAPPED) for key in planned if key.endswith(_MAPPED)}
        return [key for key in self.unfinished() if key not in planned and key.split("[")[0] not in mapped]

    def name(self, task: str) -> str:
        """Return how people know a task of a session: by its step, and by its output unless it is the only one."""
        parsed = parse_app_id(task)
        if parsed is None:
            return task
        step, output = parsed
        return step if output in ("", "result") else f"{step}.{output}"


def _resolved(plan: ExecutionPlanSnapshot) -> Iterator[str]:
    """Yield the mapped steps that a plan knows by the mapping of an earlier run."""
    return (step.key for step in plan.steps if isinstance(step.step_handle, ResolvedFromDynamicStepHandle))
