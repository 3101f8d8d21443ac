"""A run's session, from the first task to the publish, for every orchestrator. See docs/internals/runs.md.

An orchestrator says which tries at its tasks there are, by its `TaskStates`. What a session holds of them follows from
that alone: a try that does not count any longer leaves nothing, neither in the session nor in what was published.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lake_core.lake.errors import (
    AttemptTakenOut,
    BatchesGone,
    RefNotFound,
    SessionClosed,
    StaleAttempt,
    StaleEpoch,
    UnfinishedTasks,
)
from lake_core.lake.refs.session_record import ABANDONED, EXPIRED, FAILED, MOST_EXPIRY, OPEN
from lake_core.lake.session.generations import REPLACEABLE, is_generation
from lake_core.lake.session.session_state import KEEP_FAILED
from lake_core.lake.session.task_attempt import TaskAttempt
from lake_core.lake.session.tasks import unfinished_parts
from lake_core.readable import listed
from lake_orch.errors import InvalidDefinition
from lake_orch.runs.task_states import TryState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from lake_core.lake import Lake, SharedSession
    from lake_core.lake.publish.published import Published
    from lake_core.lake.refs.session_record import Batch, SessionRecord
    from lake_core.lake.session.session_writer import SessionWriter
    from lake_orch.runs.task_states import TaskStates

_LASTING = "lasting "
"""How the names of tasks begin whose writes do not depend on their tries."""
_TRIES = 8
"""How often the tasks are looked at again because one of them has written in between."""


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """What the publish of a run did."""

    published: Published
    left_out: Collection[str] = ()
    """Tasks whose writes into the session are not published, because their tries do not count."""
    replaced: Collection[str] = ()
    """Tasks of which what they published earlier was taken out."""
    stayed: Collection[str] = ()
    """Datasets and plain files in which something of these stays, because others have rewritten it since."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of an orchestrator that may run any of its tasks again, also once it is published.

    Any process of the run may make one: all its state is in the lake.
    """

    lake: Lake
    branch: str
    name: str
    """The id of its session, as `lake.session_name` makes it of the names of the run."""
    states: TaskStates
    began: datetime
    """When the run began to write, or a time before. What it published is not known for ever."""
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def session(self) -> SessionRecord | None:
        """Return the newest generation of its session, or None if nothing has been opened yet."""
        return next(reversed(self._generations()), None)

    @property
    def is_published(self) -> bool:
        """Return whether all that the run has written is published, and nothing of it is to be taken out."""
        record = self.session
        if record is None or not record.is_published or record.branch != self.branch:
            return False
        return not self._is_outdated() and not self._taken_out()

    @property
    def holds_writes(self) -> bool:
        """Return whether its session holds changes that are not published."""
        record = self.session
        return record is not None and not record.is_published and has_changes(record.batches)

    def open(self, *, anew: bool = False) -> SharedSession:
        """Open the session, resume it if it failed, or open the next generation if it has ended.

        All processes of the run may do so: while it is open, its epoch stays. A failed session of which nothing counts
        is not resumed: the next generation begins at what the branch has now.

        Args:
            anew: Whether that holds for an open one as well, because the run begins, or begins again.

        Raises:
            InvalidDefinition: The run has another branch than what counts of it was written for.
        """
        record = self.session
        if record is not None:
            self._check_branch(record)
        if record is not None and record.state in (OPEN, FAILED):
            written = [batch for batch in record.batches if batch.task is not None]
            counts = len(_batches(written, self.states, TryState.GONE)) < len(written)
            begins = (anew or record.state == FAILED) and not counts
            is_behind = record.base != self.lake.list_branches().get(self.branch)
            if record.branch != self.branch or (begins and is_behind):
                self.lake.get_session(record.id).abandon()
        return self.lake.open_session(
            self.branch,
            id=self.name,
            expires_in=MOST_EXPIRY,
            message=self.message,
            metadata=self.metadata,
            renew=True,
            owner=self.name,
        )

    def _check_branch(self, record: SessionRecord) -> None:
        """Check that what counts in a generation was written for the branch of the run. Raises InvalidDefinition."""
        if record.branch == self.branch or record.state in (ABANDONED, EXPIRED):
            return
        counting = _tasks(record.batches, self.states, TryState.RUNNING, TryState.SUCCEEDED, TryState.FAILED)
        tasks = sorted(self.states.name(task) for task in counting if not is_lasting(task))
        if tasks:
            raise InvalidDefinition(
                f"the run is for branch {self.branch!r}, and these tasks have written for {record.branch!r}, into "
                f"session {record.id}: {listed(tasks)}. Run them again as well, or let the run be for "
                f"{record.branch!r} again"
            )

    def begin(
        self, attempt: TaskAttempt, *, stayed: set[str] | None = None, lasting: str | None = None
    ) -> SessionWriter:
        """Begin to write for a try at a task, or for a part of it.

        What tries wrote that do not count any longer is taken out first, by whomever and in whichever generation, so
        that the task meets the state that it is to build on.

        Args:
            attempt: The try.
            stayed: Gets the datasets in which something stays of what tries had published that do not count, because
                others have rewritten it since, and the task replaces it anyway.
            lasting: The name under which it writes, if what it writes stays whatever becomes of the try, as long as
                the session does: the next run writes it otherwise.

        Raises:
            StaleAttempt: The try does not count any longer: let its process end.
            Conflict: Others, that do count, build on what is to be taken out: run these again as well.
            BatchesGone: The run was published too long ago to replace a part of it.
        """
        self._check_known()
        for is_last in _tries():
            self.states.look()
            self._check_running(attempt)
            try:
                session = self.open()
                discard_gone(session, self.states)
                self._replace(session, set() if stayed is None else stayed)
                # What other tries at the task wrote is taken out by now, unless they came after this one.
                return session.join(
                    task=attempt.task if lasting is None else f"{_LASTING}{lasting}",
                    attempt=attempt.number,
                    token=attempt.token,
                    part=attempt.part,
                    replace=False,
                )
            except (SessionClosed, StaleAttempt, StaleEpoch):
                if is_last:
                    raise
        raise AssertionError("the last try returns or raises")

    def _check_running(self, attempt: TaskAttempt) -> None:
        state = self.states.of(attempt)
        if state is not TryState.RUNNING:
            raise StaleAttempt(
                f"try {attempt.number} at {attempt.task!r} is not running, by its orchestrator: it is {state.value}"
            )

    def _check_known(self) -> None:
        """Check that the lake still knows what the run may have written. Raises BatchesGone.

        The sessions of a run are forgotten after some time. Its commits are not.
        """
        if self.session is not None or self.lake.repository.clock() - self.began <= REPLACEABLE:
            return
        succeeded = self.states.succeeded()
        if succeeded:
            raise BatchesGone(
                f"run {self.name!r} began on {self.began:%Y-%m-%d}, and the lake no longer knows what these tasks have "
                f"written: {listed(sorted(succeeded))}. Run them again as well, or start a new run"
            )
        for commit in self.lake.log(self.branch, first_parent=True, since=self.began):
            if is_generation(commit.metadata.get("session", ""), self.name):
                raise BatchesGone(
                    f"run {self.name!r} was published with commit {commit.id[:12]} on {commit.creation_date:%Y-%m-%d}, "
                    "too long ago to replace what it has written: start a new run"
                )

    def publish(
        self,
        *,
        half_written: Literal["refuse", "leave out"] = "refuse",
        check_alive: Callable[[], object] = lambda: None,
        keep: timedelta = KEEP_FAILED,
    ) -> PublishedRun | None:
        """Publish what the tries that count have written, and nothing else. A repeated call has the same result.

        Args:
            check_alive: Raises an error if the process that publishes was taken for dead by the orchestrator.
            half_written: What to do with tasks that succeeded by the orchestrator, but whose writers did not end, as
                when a person marks a task that died: refuse to publish, or leave out what they wrote.
            keep: How long the session is kept if it fails by a conflict.

        Returns:
            What was published; None if the run has written nothing.

        Raises:
            UnfinishedTasks: Tasks have yet to be run to their end.
            AttemptTakenOut: Tasks were cleared, taken out, and then marked as successes.
            InvalidDefinition: The run has another branch than what counts of it was written for.
            Conflict: Others published conflicting changes, or build on what is to be left out.
            SessionClosed: The session was abandoned, or has expired.
            BatchesGone: The run is too long ago.
        """
        self._check_known()
        left_out: set[str] = set()
        replaced: set[str] = set()
        stayed: set[str] = set()
        for is_last in _tries():
            self.states.look()
            check_finished(self.name, self.states.unfinished())
            self._check_not_lost()
            record = self.session
            if record is None:
                return None
            self._check_branch(record)
            check_alive()
            try:
                if record.is_published and not self._is_outdated():
                    return PublishedRun(self.lake.get_session(record.id).publish())
                session = self.open()
                left_out.update(discard_gone(session, self.states))
                replaced.update(self._replace(session, stayed))
                published = publish_standing(session, self.states, left_out, half_written=half_written, keep=keep)
                return PublishedRun(published, sorted(left_out), sorted(replaced), sorted(stayed))
            except (UnfinishedTasks, StaleEpoch, SessionClosed):
                if is_last:
                    raise
        raise AssertionError("the last try returns or raises")

    def close(self, reason: str, *, keep: timedelta) -> Literal["published", "nothing", "unpublished"]:
        """End the run, whose orchestrator will not publish it any more, and return what became of its writes.

        A session with writes is failed: it can be read, and goes on once a task of the run begins again, or `publish`.
        An orchestrator must not call a run a success that is `unpublished`.
        """
        self.states.look()
        record = self.session
        if record is None:
            return "nothing"
        if record.state in (OPEN, FAILED) and not record.conflicts:
            session = self.lake.get_session(record.id)
            if has_changes(record.batches):
                # Who was taken for dead while it published must not go on with that.
                session.fence()
                session.fail(reason, keep=keep)
            else:
                session.abandon()
        if has_changes(record.batches) and not record.is_published:
            return "unpublished"
        if self._lost() or self._taken_out() or self._is_outdated():
            return "unpublished"
        return "published" if any(each.is_published for each in self._generations()) else "nothing"

    def _generations(self) -> Sequence[SessionRecord]:
        return self.lake.list_generations(self.name)

    def _lost(self) -> Mapping[str, Collection[str]]:
        """Return the tasks whose tries count, but wrote into generations that ended unpublished, by generation."""
        ended = [each for each in self._generations() if each.conflicts or each.state in (ABANDONED, EXPIRED)]
        lost = {
            each.id: {
                task
                for task in _tasks(_changing(each.batches), self.states, TryState.SUCCEEDED)
                if not is_lasting(task)
            }
            for each in ended
        }
        return {id: tasks for id, tasks in lost.items() if tasks}

    def _taken_out(self) -> Collection[str]:
        """Return the tasks whose tries count again, but whose writes were taken out when they did not."""
        attempts = self.lake.taken_out(self.name)
        return sorted({str(each.task) for each in attempts if self.states.of(each) is TryState.SUCCEEDED})

    def _check_not_lost(self) -> None:
        """Check that all is there that tries wrote which count.

        Raises:
            AttemptTakenOut: Some did not count in the meantime, and were taken out.
            SessionClosed: Some wrote into generations that ended unpublished.
        """
        taken_out = [self.states.name(task) for task in self._taken_out()]
        if taken_out:
            raise AttemptTakenOut(
                f"session {self.name!r} is not published, because what these tasks wrote was taken out when they were "
                f"cleared, and they were marked as successes since: {listed(taken_out)}. Run them again"
            )
        for id, tasks in self._lost().items():
            record = self.lake.get_session(id).record
            why = f"failed: {record.reason}" if record.conflicts else record.state
            raise SessionClosed(
                f"session {id!r} has ended unpublished ({why}), and with it what these tasks wrote: "
                f"{listed(sorted(tasks))}. Run them again",
                state=record.state,
            )

    def _replace(self, session: SharedSession, stayed: set[str]) -> Collection[str]:
        """Take what tries published that do not count any longer out of an open session, and return their tasks.

        What such tries wrote into this session may build on it, and has to be taken out before.
        """
        replaced: set[str] = set()
        for commit, tasks in self._gone_published().items():
            may_stay = {task for task in tasks if self.states.replaces(task)}
            replaced.update(session.replace_published(commit, tasks, may_stay=may_stay, stayed=stayed))
        return replaced

    def _is_outdated(self) -> bool:
        """Return whether something is published that is to be taken out. After some weeks, nobody knows."""
        try:
            return bool(self._gone_published())
        except BatchesGone:
            return False

    def _gone_published(self) -> Mapping[str, Collection[str]]:
        """Return the tasks whose published tries do not count any longer, by commit, newest first."""
        published = self.lake.published_batches(self.name)
        elsewhere = {each.commit for each in self._generations() if each.branch != self.branch}
        gone = (
            (commit, gone_tasks(batches, self.states))
            for commit, batches in reversed([*published.items()])
            # What was published on another branch stays there.
            if commit not in elsewhere or self._has_reached(commit)
        )
        return {commit: tasks for commit, tasks in gone if tasks}

    def _has_reached(self, commit: str) -> bool:
        try:
            return self.lake.has_reached(commit, self.branch)
        except RefNotFound:
            return False


def publish_standing(
    session: SharedSession,
    states: TaskStates,
    left_out: set[str],
    *,
    half_written: Literal["refuse", "leave out", "publish"],
    keep: timedelta,
) -> Published:
    """Publish what the tries that count have written into a session.

    Args:
        session: The session.
        states: The states of the tries.
        left_out: Gets the tasks whose writes are taken out of the session, because their tries do not count.
        half_written: What to do with tasks that succeeded, but whose writers did not end.
        keep: How long the session is kept if it fails by a conflict.

    Raises:
        UnfinishedTasks: Tasks that wrote are running or failed, or have written in the meantime: look again.
    """
    left_out.update(discard_gone(session, states))
    batches = session.list_batches()
    check_finished(session.id, map(states.name, _tasks(batches, states, TryState.RUNNING, TryState.FAILED)))
    succeeded = _tasks(batches, states, TryState.SUCCEEDED)
    parts = unfinished_parts(batches) if half_written == "leave out" else set()
    half = [batch.id for batch in batches if batch.task in succeeded and (batch.task, batch.part) in parts]
    if half:
        left_out.update(session.discard_batches(half))
    return session.publish(tasks=succeeded, without_end=half_written == "publish", keep=keep)


def check_finished(session: str, unfinished: Iterable[str]) -> None:
    """Raise UnfinishedTasks if there are tasks that have yet to be run to their end."""
    names = sorted(set(unfinished))
    if names:
        raise UnfinishedTasks(
            f"session {session!r} is not published, because tasks have yet to be run to their end: {listed(names)}",
            unfinished=names,
        )


def discard_gone(
    session: SharedSession, states: TaskStates, batches: Collection[Batch] | None = None
) -> Collection[str]:
    """Take out of a session what tries wrote that do not count any longer, and return their tasks.

    `batches`: those to judge; by default all.
    """
    gone = _batches(session.list_batches() if batches is None else batches, states, TryState.GONE)
    return session.discard_batches([batch.id for batch in gone], remember=True) if gone else ()


def is_lasting(task: str | None) -> bool:
    """Return whether what a task wrote stays, whatever becomes of its tries."""
    return task is not None and task.startswith(_LASTING)


def has_changes(batches: Iterable[Batch]) -> bool:
    """Return whether some batches have changed their session: those of a task that wrote nothing do not."""
    return bool(_changing(batches))


def _changing(batches: Iterable[Batch]) -> Sequence[Batch]:
    return [batch for batch in batches if batch.before != batch.after]


def gone_tasks(batches: Iterable[Batch], states: TaskStates) -> set[str]:
    """Return the tasks whose batches are by tries that do not count any longer."""
    return _tasks(batches, states, TryState.GONE)


def _tasks(batches: Iterable[Batch], states: TaskStates, *wanted: TryState) -> set[str]:
    return {str(batch.task) for batch in _batches(batches, states, *wanted)}


def _batches(batches: Iterable[Batch], states: TaskStates, *wanted: TryState) -> list[Batch]:
    written = (batch for batch in batches if batch.task is not None)
    return [batch for batch in written if states.of(TaskAttempt.of_batch(batch)) in wanted]


def _tries() -> Sequence[bool]:
    """Return, for each try at something that others may get in the way of, whether it is the last."""
    return (*[False] * (_TRIES - 1), True)
