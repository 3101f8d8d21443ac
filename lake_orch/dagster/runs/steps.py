"""`StepStates`: the `TaskStates` of Dagster, from the plans and event logs of the runs of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_orch._dagster import ResolvedFromDynamicStepHandle, StepEventStatus
from lake_orch.dagster.runs.attempt import rank_of
from lake_orch.dagster.runs.gate import runs_of
from lake_orch.dagster.runs.marker import parse_app_id
from lake_orch.dagster.runs.plan import plan_of
from lake_orch.dagster.runs.run_session import from_tags
from lake_orch.runs.run import discard_gone
from lake_orch.runs.task_states import TryState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dagster import DagsterInstance, DagsterRun

    from lake_core.lake.session.shared_session import SharedSession
    from lake_core.lake.session.task_attempt import TaskAttempt
    from lake_orch._dagster import ExecutionStepOutputSnap, ExecutionStepSnap
    from lake_orch.dagster.runs.attempt import Attempt

FINE = (StepEventStatus.SUCCESS, StepEventStatus.SKIPPED)
_MAPPED = "[?]"
"""The end of the key of a mapped step in a plan that was made before its mapping was known."""


@dataclass(frozen=True, slots=True)
class _Execution:
    """A step in a run that was to execute it."""

    run: int
    """The number of the run."""
    number: int | None = None
    """The number of its last try in the run; None if it did not begin."""
    status: StepEventStatus | None = None
    left_out: frozenset[str] = frozenset()
    """The outputs that the run did not ask for, as Dagster has them."""

    @property
    def state(self) -> TryState:
        """Return the state of its last try. A step that did not begin is `RUNNING`: it is still to be run."""
        if self.status in FINE:
            return TryState.SUCCEEDED
        return TryState.FAILED if self.status is StepEventStatus.FAILURE else TryState.RUNNING


class StepStates:
    """The steps of the runs that wrote into a session."""

    def __init__(self, instance: DagsterInstance, session: str) -> None:
        self._instance, self._session = instance, session
        self.look()

    def look(self) -> None:
        """Read the plans and event logs of the runs."""
        self._epochs: list[int] = []
        """The epoch of each run, in the order of the runs."""
        self._steps: dict[str, list[_Execution]] = {}
        """The executions of each step, in the order of the runs."""
        self._outputs: set[tuple[str, str]] = set()
        """The outputs of steps, but for those that their own code writes."""
        self._used: set[tuple[str, str]] = set()
        """The outputs that steps have begun with. Dagster keeps them even if a later try does not yield them again."""
        for run in runs_of(self._instance, self._session):
            session_of_run = from_tags(run)
            if session_of_run is not None:
                self._epochs.append(session_of_run.epoch)
                self._add(self._instance, run, len(self._epochs) - 1)

    def _add(self, instance: DagsterInstance, run: DagsterRun, number: int) -> None:
        """Take the steps of the next run into account."""
        plan = plan_of(instance, run)
        planned = set(plan.step_keys_to_execute) if plan else set()
        self._forget(planned, is_re_execution=run.parent_run_id is not None)
        steps = {step.key: step for step in plan.steps} if plan else {}
        stats = {each.step_key: each for each in instance.get_run_step_stats(run.run_id) if each.status is not None}
        for key in {key for key in planned if not key.endswith(_MAPPED)} | stats.keys():
            each = stats.get(key)
            tried = None if each is None else max(each.attempts or 1, 1) - 1
            status = None if each is None else each.status
            step = steps.get(key)
            left_out = (
                frozenset(output.name for output in step.outputs if _is_left_out(output)) if step else frozenset()
            )
            self._steps.setdefault(key, []).append(_Execution(number, tried, status, left_out))
        for key, step in steps.items():
            if isinstance(step.step_handle, ResolvedFromDynamicStepHandle) and key not in self._steps:
                # Dagster leaves out mapped steps that had not begun when it re-executes a run from failure.
                self._steps[key] = [_Execution(number)]
        self._add_outputs(steps.values(), {pattern_of(key) for key in stats})

    def _forget(self, planned: Collection[str], *, is_re_execution: bool) -> None:
        """Forget the steps that a run leaves out for good.

        A run that is asked for some steps leaves out others that never began, and one that re-executes no other run
        those that failed as well. Steps that it maps once more are other ones. A run that was to do a step again, but
        never began with it, leaves it as it was.
        """
        mapped_anew = {key for key in planned if key.endswith(_MAPPED)}
        kept: dict[str, list[_Execution]] = {}
        for key, executions in self._steps.items():
            if "[" in key and pattern_of(key) in mapped_anew:
                continue
            if key in planned:
                kept[key] = executions
                continue
            tried = _until_last_begun(executions)
            if tried and (tried[-1].state is TryState.SUCCEEDED or is_re_execution):
                kept[key] = tried
        self._steps = kept

    def _add_outputs(self, steps: Iterable[ExecutionStepSnap], begun: Collection[str]) -> None:
        """Note the outputs of steps, and which of them the steps that began have used."""
        dynamic = set()
        for step in steps:
            for output in step.outputs:
                self._outputs.add((pattern_of(step.key), output.name))
                if output.properties is not None and output.properties.is_dynamic:
                    dynamic.add((pattern_of(step.key), output.name))
        self._used |= {
            (pattern_of(handle.step_key), handle.output_name)
            for step in steps
            if pattern_of(step.key) in begun
            for used in step.inputs
            for handle in used.upstream_output_handles
        } - dynamic

    def of(self, attempt: TaskAttempt) -> TryState:
        """Return the state of a try at a step."""
        parsed = parse_app_id(attempt.task or "")
        if parsed is None:
            return TryState.SUCCEEDED
        step_key, output = parsed
        executions = self._steps.get(step_key, [])
        epoch, number = rank_of(attempt.number)
        name = pattern_of(step_key), output
        since = max((at for at, each in enumerate(executions) if self._makes(each, name)), default=0)
        for execution in executions[since:]:
            after = self._epochs[execution.run - 1] if execution.run else 0
            if not after < epoch <= self._epochs[execution.run] or execution.number is None:
                continue
            if execution is not executions[-1]:
                # Later runs made only other outputs of the step, because Dagster has what this one made.
                return TryState.SUCCEEDED
            return execution.state if number == execution.number or name in self._used else TryState.GONE
        return TryState.GONE

    def is_output(self, task: str) -> bool:
        """Return whether a task of a session is an output of a step, and not what its own code writes."""
        step_key, output = parse_app_id(task) or ("", "")
        return (pattern_of(step_key), output) in self._outputs

    def _makes(self, execution: _Execution, name: tuple[str, str]) -> bool:
        """Return whether an execution was to make an output. What a step's own code writes, the whole step makes."""
        return name[1] not in execution.left_out if name in self._outputs else not execution.left_out

    def unfinished(self) -> Collection[str]:
        """Return the steps that have yet to succeed."""
        return sorted(key for key, each in self._steps.items() if each[-1].state is not TryState.SUCCEEDED)

    def succeeded(self) -> set[str]:
        """Return the steps that have succeeded."""
        return {key for key, each in self._steps.items() if each[-1].state is TryState.SUCCEEDED}

    def left_out(self, planned: Collection[str]) -> Collection[str]:
        """Return the steps that have yet to succeed, and that a run with this plan does not execute."""
        mapped = {key.removesuffix(_MAPPED) for key in planned if key.endswith(_MAPPED)}
        return [key for key in self.unfinished() if key not in planned and key.split("[")[0] not in mapped]

    def replaces(self, task: str) -> bool:
        """Return False: a run of Dagster does not replace what it has published."""
        return False

    def name(self, task: str) -> str:
        """Return how people know a task of a session: by its step, and by its output unless it is the only one."""
        parsed = parse_app_id(task)
        if parsed is None:
            return task
        step, output = parsed
        return step if output in ("", "result") else f"{step}.{output}"


def discard_earlier_tries(session: SharedSession, attempt: Attempt) -> None:
    """Take out of a session what the code of a step wrote in earlier tries, if it does not count any longer.

    A try may have built on what it wrote before. So its writes go together, and not one by one as they are replaced.
    Outputs stay: a step that has yet to begin may use those that this try does not yield again.

    Args:
        session: The session, at the epoch of the run.
        attempt: The try that begins.
    """
    rank = attempt.rank(session.epoch)
    earlier = [
        batch
        for batch in session.list_batches()
        if batch.attempt < rank and (parse_app_id(batch.task or "") or ("", ""))[0] == attempt.step_key
    ]
    if earlier:
        states = StepStates(attempt.instance, session.id)
        discard_gone(session, states, [batch for batch in earlier if not states.is_output(batch.task or "")])


def _until_last_begun(executions: Sequence[_Execution]) -> list[_Execution]:
    """Return the executions up to the last one that began."""
    last = max((at for at, each in enumerate(executions) if each.number is not None), default=-1)
    return list(executions[: last + 1])


def pattern_of(step_key: str) -> str:
    """Return the key of a step in a plan that was made before its mapping was known."""
    return f"{step_key.split('[')[0]}{_MAPPED}" if "[" in step_key else step_key


def _is_left_out(output: ExecutionStepOutputSnap) -> bool:
    """Return whether an output is of an asset that the run did not ask for."""
    properties = output.properties
    return properties is not None and properties.is_asset and properties.asset_key is None
