"""Which writes of a run's session are to be published: those of the last tries at its tasks, if these ended well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.lake.errors import UnfinishedTasks
from lake_core.readable import listed
from lake_orch.runs.task_states import TryState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.lake.refs.session_record import Batch
    from lake_orch.runs.task_states import TaskStates


@dataclass(frozen=True, slots=True)
class Standing:
    """The tasks of a session whose writes stand, and the others."""

    published: frozenset[str]
    left_out: frozenset[str]
    """Tasks that wrote, but in tries that do not count any longer."""


def standing_tasks(session: str, batches: Sequence[Batch], states: TaskStates) -> Standing:
    """Return which tasks are to be published.

    Raises:
        UnfinishedTasks: Tasks that wrote are still running, or failed.
    """
    by_state: dict[TryState, set[str]] = {state: set() for state in TryState}
    for batch in batches:
        if batch.task is not None:
            by_state[states.of(batch)].add(batch.task)
    unfinished = sorted(by_state[TryState.RUNNING] | by_state[TryState.FAILED])
    if unfinished:
        raise UnfinishedTasks(
            f"session {session!r} is not published, because tasks that wrote into it run or failed: "
            f"{listed(unfinished)}. Run them again",
            unfinished=unfinished,
        )
    return Standing(frozenset(by_state[TryState.SUCCEEDED]), frozenset(by_state[TryState.GONE]))
