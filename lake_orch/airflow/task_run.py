"""The session that a task of a run of a DAG writes into, from the context of the task."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context

from lake_core.lake.errors import Conflict, StaleAttempt
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.lake.session.task_attempt import TaskAttempt
from lake_core.workspace import Assignment
from lake_core.workspace.session_writes import StagedWrites
from lake_orch.airflow.errors import without_retry
from lake_orch.airflow.hook import DEFAULT_BRANCH, LakeHook
from lake_orch.airflow.session_group import CLOSE_TASK, SessionGroup, session_of
from lake_orch.airflow.task_states import OneTaskState, TaskInstanceStates, shown_name, task_name, tell_try
from lake_orch.errors import InvalidDefinition
from lake_orch.runs.run import PublishedRun, Run

if TYPE_CHECKING:
    from lake_core.lake import Lake

_log = logging.getLogger(__name__)
_opened: dict[str, int] = {}
"""The number of parts that this process has begun, by the token of the try."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task of a run, and the session into which it writes: that of its group, or one of its own."""

    ti: Any
    session: SessionGroup | None
    """None for a task that publishes by itself."""
    connection: str
    branch: str
    run: Run
    own: OneTaskState | None = None
    """The state of a task that publishes by itself."""
    ui_url: str | None = None
    """Where `lake ui` serves the lake."""

    @classmethod
    def writing_to(cls, path: str, connection: str, branch: str | None) -> TaskRun:
        """Return the run of the task that is running, for a dataset that it writes.

        Raises:
            InvalidDefinition: The dataset is in another lake or on another branch than the session of the task.
        """
        context = get_current_context()
        session = session_of(context)
        if session is None:
            return cls._of(context, None, connection, branch)
        run = None if connection != session.connection else cls.of_session(session)
        if run is None or branch not in (None, session.branch, run.branch):
            raise InvalidDefinition(
                f"task {context['ti'].task_id} is in the session {session.group_id!r} of the connection "
                f"{session.connection!r} and the branch {session.branch or DEFAULT_BRANCH!r}, and {path} has the "
                f"connection {connection!r} and the branch {branch or DEFAULT_BRANCH!r}: a session publishes one "
                "branch of one lake, so use two"
            )
        return run

    @classmethod
    def of_session(cls, session: SessionGroup, context: Any = None) -> TaskRun:
        """Return the run of the task that is running, for the session of its group.

        `context` is that of a task which only begins, whose fields are rendered.
        """
        context = context or get_current_context()
        return cls._of(context, session, session.connection, session.branch_in(context))

    def check_former(self, path: str) -> None:
        """Raise InvalidDefinition if the run has published a dataset under the name of what its DAG has no longer."""
        from lake_orch.airflow.former_sessions import check_former_sessions

        check_former_sessions(self.run, get_current_context()["dag"], self.ti, path)

    @classmethod
    def _of(cls, context: Any, session: SessionGroup | None, connection: str, branch: str | None) -> TaskRun:
        ti, dag_run = context["ti"], context["dag_run"]
        hook = LakeHook(connection)
        place = hook.place()
        own = None if session is not None else OneTaskState(str(ti.id))
        parts = ("task", ti.task_id, str(ti.map_index)) if session is None else ("session", session.group_id or "")
        states = own if session is None else TaskInstanceStates(ti, session.work_ids())
        assert states is not None
        lake, branch = place.open(), branch or DEFAULT_BRANCH
        metadata = {
            "airflow/dag": ti.dag_id,
            "airflow/run": ti.run_id,
            "airflow/session": parts[1],
            "airflow/instance": hook.instance(),
        }
        # A run that was cleared may have written before its newest start.
        began = dag_run.start_date if not dag_run.clear_number else min(dag_run.start_date, dag_run.run_after)
        run = Run(
            lake,
            branch,
            lake.session_name(ti.dag_id, ti.run_id, *parts),
            states,
            began,
            message=f"{ti.dag_id}.{parts[1]} {ti.run_id}",
            metadata=metadata,
        )
        return cls(ti, session, connection, branch, run, own, place.ui_url)

    @property
    def lake(self) -> Lake:
        """Return the lake."""
        return self.run.lake

    @property
    def shown(self) -> str:
        """Return how people know the task."""
        return shown_name(self.ti.task_id, self._map_index)

    @property
    def _map_index(self) -> int:
        return -1 if self.ti.map_index is None else int(self.ti.map_index)

    def begin(self, *, replaces: bool = False, lasting: str | None = None) -> StagedWrites:
        """Begin to write, as the next part of this try. What no longer counts is taken out of the session first.

        Args:
            replaces: Whether the task writes in place of what it wrote before, such as by an overwrite or a merge by
                keys. What it has published may then stay where others have rewritten it since.
            lasting: The name under which it writes, if what it writes stays when the task is cleared.

        Raises:
            StaleAttempt: The try does not count any longer.
            Conflict: Others build on what is to be taken out: clear these tasks as well.
        """
        self._check_closes()
        token = str(self.ti.id)
        tell_try(self.ti)  # fields such as `handover()` are rendered before the task begins, and tells it
        task = task_name(self.ti.task_id, self._map_index, replaces=replaces)
        part = "0" if lasting is not None else self._next_part(task, token)
        stayed: set[str] = set()
        with without_retry(Conflict):
            attempt = TaskAttempt(task, int(self.ti.try_number), token, part)
            writer = self.run.begin(attempt, stayed=stayed, lasting=lasting)
        if stayed:
            _log.warning(
                "others have rewritten what this run had published into %s, so it stays until it is written again",
                ", ".join(sorted(stayed)),
            )
        # Each try writes anew what it replaces, and each part adds to it. So their writes have names of their own.
        name = f"{task}{self.ti.dag_id} {self.ti.run_id} {token} {part}"
        return StagedWrites(self.lake, writer, self.branch, self.lake.url, name)

    def _check_closes(self) -> None:
        """Check that what is written can still be published.

        Airflow clears `close` with a task that follows `open`, and not with one whose trigger rule forbids that.

        Raises InvalidDefinition.
        """
        close_id = None if self.session is None else self.session.own_id(CLOSE_TASK)
        if close_id is not None and TaskInstanceStates(self.ti, [close_id]).states().get((close_id, -1)) == "success":
            raise InvalidDefinition(
                f"nothing would publish what {self.shown} writes, as {close_id} has ended: clear that as well"
            )

    def assign(self) -> Assignment:
        """Begin to write, and return what another process needs to write in place of this one, as a part of the try."""
        workspace = self.begin()
        workspace.discard()
        writer = workspace.writer
        return Assignment(
            self.lake.url,
            workspace.task_id,
            self.branch,
            session=writer.session,
            epoch=writer.epoch,
            attempt=writer.attempt.number,
            token=writer.attempt.token,
            part=writer.attempt.part,
            session_task=writer.attempt.task or "",
        )

    def _next_part(self, task: str, token: str) -> str:
        """Return a name for the writes of this process, which no other process of the try has used."""
        record = self.run.session
        batches = [] if record is None else self.lake.get_session(record.id).list_batches()
        # Parts that did not end count, too: what they hold is left out, and not replaced by that of another part.
        used = (int(batch.part.split(".")[0]) for batch in batches if batch.task == task and batch.token == token)
        number = max(max(used, default=-1) + 1, _opened.get(token, 0))
        _opened[token] = number + 1
        return str(number)

    def publish_own(self, *, writes_nothing: bool = False) -> PublishedRun | None:
        """Publish what a task wrote that publishes by itself.

        Args:
            writes_nothing: Whether its try has ended without a write. What an earlier one published is taken out then.

        Raises:
            StaleAttempt: The task was cleared or marked in the meantime: its process has yet to be told.
        """
        assert self.own is not None
        self.check_alive()
        self.own.has_written = True
        return self.run.publish(half_written="leave out" if writes_nothing else "refuse", check_alive=self.check_alive)

    def check_alive(self) -> None:
        """Raise StaleAttempt if Airflow has taken the process of the task for dead, or ended the task otherwise."""
        state = TaskInstanceStates(self.ti, [self.ti.task_id]).states().get((self.ti.task_id, self._map_index))
        if state != "running":
            raise StaleAttempt(f"{self.shown} does not run any longer, by Airflow, but is {state or 'cleared'}")

    def ref(self) -> str:
        """Return what the task reads: its session, if something is in it, or else the branch."""
        record = None if self.session is None else self.run.session
        return self.branch if record is None or record.state not in (OPEN, FAILED) else record.id
