"""`TaskInstanceStates`: the `TaskStates` of Airflow, from what a task may ask its supervisor.

Airflow says in which state a task of a run is, but not which try that is. So each try tells its id in an XCom when it
begins, whether it will write or not. Airflow deletes that when the next try begins: it names the last try of a task.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from lake_orch.errors import TryUnknown
from lake_orch.runs.task_states import TryState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lake_core.lake.session.task_attempt import TaskAttempt

TRY_KEY: Final = "lake_try"
"""The key of the XCom in which a try names itself."""

_PREFIX: Final = "airflow"
_NAME: Final = re.compile(r'airflow\["([^"]+)",(-?[0-9]+)(?:,"replaces")?\]')
_DONE: Final = ("success", "skipped", "removed")
_MAPPED: Final = re.compile(r"(.+)_([0-9]+)")
_STATES: Final = {
    "success": TryState.SUCCEEDED,
    "failed": TryState.FAILED,
    "running": TryState.RUNNING,
    "deferred": TryState.RUNNING,
    "up_for_reschedule": TryState.RUNNING,
    "awaiting_input": TryState.RUNNING,
    # The task was cleared and waits for its next try, or its try waits for the process in which it goes on. Nobody can
    # tell these apart, so it may still write.
    "scheduled": TryState.RUNNING,
    "queued": TryState.RUNNING,
}
"""The states of tries, by those of task instances. In all other states, the task was cleared or skipped, or is tried
again: its try does not count."""


def task_name(task_id: str, map_index: int, *, replaces: bool = False) -> str:
    """Return the name of a task instance in a session. It says whether the task replaces what it wrote before."""
    return _PREFIX + json.dumps([task_id, map_index, *(["replaces"] if replaces else [])], separators=(",", ":"))


def _parsed(name: str | None) -> tuple[str, int] | None:
    """Return the task id and the map index of a name that `task_name` made, and None for any other."""
    if name is None or not name.startswith(f"{_PREFIX}["):
        return None
    task_id, map_index, *_ = json.loads(name.removeprefix(_PREFIX))
    return task_id, map_index


def readable(text: str) -> str:
    """Return a text with the names of task instances as people know them."""
    return _NAME.sub(lambda match: shown_name(match[1], int(match[2])), text)


def shown_name(task_id: str, map_index: int) -> str:
    """Return how people know a task instance."""
    return task_id if map_index < 0 else f"{task_id}[{map_index}]"


def tell_try(ti: Any) -> None:
    """Tell which try of a task is the last: the one that begins. A process in which a try goes on tells the same."""
    map_index = -1 if ti.map_index is None else int(ti.map_index)
    ti.xcom_push(key=TRY_KEY, value={"token": str(ti.id), "map_index": map_index, "try": ti.try_number})


class _NamedTasks:
    """What the names of tasks in a session say."""

    def replaces(self, task: str) -> bool:
        """Return whether a task writes in place of what it wrote before."""
        return _parsed(task) is not None and len(json.loads(task.removeprefix(_PREFIX))) > 2

    def name(self, task: str) -> str:
        """Return how people know a task of the session."""
        return readable(task)


class TaskInstanceStates(_NamedTasks):
    """The task instances of a run that may write into a session."""

    def __init__(self, ti: Any, task_ids: Collection[str]) -> None:
        """Ask the supervisor of a task instance about tasks of its run."""
        self._ti, self._task_ids = ti, sorted(task_ids)
        self._states: dict[tuple[str, int], str | None] | None = None
        self._tries: dict[str, Mapping[str, int]] = {}

    def look(self) -> None:
        """Forget what Airflow has said so far, and ask it again."""
        self._states = None
        self._tries.clear()

    def of(self, attempt: TaskAttempt) -> TryState:
        """Return the state of a try at a task instance."""
        parsed = _parsed(attempt.task)
        if parsed is None:
            return TryState.SUCCEEDED
        task_id, written_as = parsed
        map_index = self._tries_of(task_id).get(attempt.token)
        if map_index is None:
            if self._is_unknown(task_id, written_as):
                self.look()  # it may have been cleared, and have begun again, between two answers
            if self._is_unknown(task_id, written_as):
                raise TryUnknown(
                    f"{shown_name(*parsed)} has succeeded, but Airflow no longer knows in which of its tries, as its "
                    "XComs were deleted: clear all tasks of the run, which then replace what they have written"
                )
            return TryState.GONE
        return _STATES.get(self.states().get((task_id, map_index)) or "", TryState.GONE)

    def _is_unknown(self, task_id: str, map_index: int) -> bool:
        """Return whether a task instance has succeeded by a try that nobody knows."""
        is_named = map_index in self._tries_of(task_id).values()
        return not is_named and self.states().get((task_id, map_index)) == "success"

    def unfinished(self) -> Collection[str]:
        """Return the task instances that have neither succeeded nor were skipped."""
        return [shown_name(*key) for key, state in self.states().items() if state not in _DONE]

    def succeeded(self) -> Collection[str]:
        """Return the task instances that have succeeded."""
        return [shown_name(*key) for key, state in self.states().items() if state == "success"]

    def states(self) -> Mapping[tuple[str, int], str | None]:
        """Return the state of each task instance, by task id and map index."""
        if self._states is None:
            self._states = self._asked()
        return self._states

    def _asked(self) -> dict[tuple[str, int], str | None]:
        """Ask for the states. Airflow names the instance 1 of a mapped task `x` like a task `x_1`."""
        ids = set(self._task_ids)
        twofold = {id for id in ids if (match := _MAPPED.fullmatch(id)) and match[1] in ids}
        twofold |= {match[1] for id in twofold if (match := _MAPPED.fullmatch(id))}
        states: dict[tuple[str, int], str | None] = {}
        for asked in ([id for id in self._task_ids if id not in twofold], *([id] for id in sorted(twofold))):
            for key, state in (self._ask(asked) if asked else {}).items():
                match = None if key in asked else _MAPPED.fullmatch(key)
                states[(match[1], int(match[2])) if match else (key, -1)] = state
        return states

    def _ask(self, task_ids: Sequence[str]) -> Mapping[str, str | None]:
        ti = self._ti
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(task_ids), run_ids=[ti.run_id])
        found: Mapping[str, str | None] = states.get(ti.run_id, {})
        return found

    def _tries_of(self, task_id: str) -> Mapping[str, int]:
        """Return the map indexes of the last tries at a task, by their tokens."""
        if task_id not in self._tries:
            values = self._ti.xcom_pull(task_ids=[task_id], key=TRY_KEY)
            self._tries[task_id] = {each["token"]: each["map_index"] for each in values if each is not None}
        return self._tries[task_id]


class OneTaskState(_NamedTasks):
    """The state of a task instance that publishes by itself: of its tries, only the one that runs counts."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.has_written = False
        """Whether the try has ended its writes."""

    def look(self) -> None:
        """Do nothing: the try knows its own state."""

    def of(self, attempt: TaskAttempt) -> TryState:
        """Return the state of a try."""
        if attempt.token != self._token:
            return TryState.GONE
        return TryState.SUCCEEDED if self.has_written else TryState.RUNNING

    def unfinished(self) -> Collection[str]:
        """Return nothing: there is no other task."""
        return ()

    def succeeded(self) -> Collection[str]:
        """Return nothing, for the same reason."""
        return ()
