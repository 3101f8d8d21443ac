"""The writers of a shared session. A process has one, which adds its changes to the session in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from lake_core import runtime
from lake_core.lake.errors import SessionClosed, StaleAttempt
from lake_core.lake.publish.apply import apply
from lake_core.lake.publish.branch_update import MOST_TRIES
from lake_core.lake.publish.tree_update import check_references, write_tree
from lake_core.lake.refs.session_record import OPEN, Batch, SessionRecord
from lake_core.lake.session.batch_change import change_batches
from lake_core.lake.session.session_state import open_record, renewed_expiry
from lake_core.lake.session.taken_out import without_batches
from lake_core.lake.session.task_attempt import TaskAttempt, standing
from lake_core.lake.session.write_session import WriteSession
from lake_core.lake.state.changes import Changes
from lake_core.lake.state.view import Overlay, View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore


class SessionWriter(WriteSession):
    """A writer of a shared session. Its changes are private until `flush` adds them to the session as one batch."""

    def __init__(
        self, repository: Repository, session: str, epoch: int | None, attempt: TaskAttempt, *, replaces: bool = True
    ) -> None:
        """Join a session.

        Raises:
            SessionNotFound: The lake has no such session.
            SessionClosed: The session was published, abandoned or failed, or has expired.
            StaleEpoch: Another process has resumed the session.
            StaleAttempt: A later attempt at the task is in the session already.
            Conflict: Others rewrote or removed what an earlier attempt at the task wrote.
        """
        refs = repository.refs()
        record = open_record(repository, refs, session, epoch)
        super().__init__(
            Changes(
                repository.root,
                View(repository.graveler, record.tree, Overlay()),
                repository.clock,
                name=f"session {session}",
                base=repository.commit_state(refs.commit(record.base), f"the base of session {session}").tree,
                records_reads=record.isolation == "serializable",
            )
        )
        self._repository = repository
        self.session, self.epoch, self.attempt = session, record.epoch, attempt
        self.id = runtime.uuid4().hex
        self._replaces = replaces
        """Whether it replaces what another attempt wrote."""
        self._is_last = False
        """Whether this is the last flush."""
        self._flushed = 0
        """The number of flushed batches."""
        self._tried: StateStore | None = None
        """The state that the last flush would have added, if it failed. It may have been added nevertheless."""
        self._added: StateStore | None = None
        """The state that a failed flush did add."""
        batches = refs.batches_of(record, attempt.task, self.id)
        self._tokens = frozenset(batch.token for batch in batches)
        """The tokens of the attempts that were there when this one began."""
        self.is_complete = False
        """Whether the same part of the same attempt is in the session already, so that nothing is added."""
        # A later attempt begins at the same tree as the earlier one: it must not see the rows that it will replace.
        earlier = self._replaced(record, batches)
        tree = without_batches(repository, record, earlier, repository.pending_deletions(refs))
        self.changes.show(View(repository.graveler, tree, Overlay()))
        if attempt.token and not self.is_complete:
            self.flush()  # others of the same number learn that they were replaced

    def flush(self) -> None:
        """Add the changes since the last flush to the session as one batch, and then see those of other writers.

        Raises:
            Conflict: Another writer of the session made changes that conflict.
            SessionClosed: The session or this writer has ended, or too many processes flush at once. Then flush again.
            StaleEpoch: Another process has resumed the session.
            StaleAttempt: Another attempt at the task has replaced this one. Let that one go on.
            Collected: What it would bring back is being garbage-collected. Do the work again in a session.
        """
        self.changes.check_open()
        with self.changes.lock:
            self.changes.flush_buffers()
            try:
                tree = self._flush()
            except BaseException:
                self._tried = self.changed({})
                raise
            self._tried, self._added, self._flushed = None, None, self._flushed + 1
            self.changes.show(View(self._repository.graveler, tree, Overlay()))

    def _flush(self) -> str:
        """Add the changes to the session, and return its new tree."""
        for _ in range(MOST_TRIES):
            refs = self._repository.refs()
            record = open_record(self._repository, refs, self.session, self.epoch)
            tree = self._try_flush(refs, record)
            if tree is not None:
                return tree
        raise SessionClosed(f"too many processes write to session {self.session!r} at once: flush again", state=OPEN)

    def _try_flush(self, refs: RefsState, record: SessionRecord) -> str | None:
        """Try once to add the changes, and return the session's new tree. Return None if another batch was faster."""
        repository, changes = self._repository, self.changes
        batches = refs.batches_of(record, self.attempt.task, self.id)
        if any(batch.id == self._batch_id for batch in batches):
            # It was added, but the response was lost. What was written since is added by another batch.
            self._added, self._tried, self._flushed = self._tried, None, self._flushed + 1
        before = self._added or repository.state(self.view.tree, f"session {record.id}")
        earlier = self._replaced(record, batches)
        if self.is_complete:
            return record.tree
        now = repository.clock()
        pending = repository.pending_deletions(refs)
        tree = without_batches(repository, record, earlier, pending)
        state = repository.state(tree, f"session {record.id}")
        update = apply(before, self, state, now=now, session=record.id, commit=record.base, in_session=True)
        check_references(update.references, pending)
        after = write_tree(repository, update.onto, update.items, pending)
        reads = sorted({*record.reads, *self.reads})
        # An attempt that wrote nothing is recorded too, so that late writes of an older attempt are refused.
        must_be_recorded = self.attempt.task is not None and (
            self._is_last or not any(batch.writer == self.id for batch in batches)
        )
        if (
            after == record.tree
            and reads == list(record.reads)
            and not changes.ended_retention
            and not must_be_recorded
        ):
            return after
        batch = Batch(
            self._batch_id,
            self.id,
            tree,
            after,
            self.attempt.task,
            self.attempt.number,
            self._is_last,
            self.attempt.token,
            self.attempt.part,
        )
        retention = {f"retention:{path}": before.isoformat() for path, before in changes.ended_retention.items()}
        newer = replace(
            record,
            tree=after,
            reads=reads,
            metadata=dict(record.metadata) | retention,
            expires=renewed_expiry(record, now, record.expires - record.opened),
        )
        is_added = change_batches(repository, refs, record, newer, removed=earlier, added=[batch])
        return after if is_added else None

    @property
    def _batch_id(self) -> str:
        return f"{self.id}-{self._flushed}"

    def _replaced(self, record: SessionRecord, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return which of the task's batches this attempt replaces.

        Raises StaleAttempt if a later attempt is there, or another process has begun the same attempt again.
        """
        others = [batch for batch in batches if batch.writer != self.id]
        has_flushed = self._flushed and not self.is_complete
        if self.attempt.task is not None and has_flushed and len(others) == len(batches):
            raise StaleAttempt(
                f"what this attempt, {self.attempt.number}, at {self.attempt.task!r} wrote into session {record.id!r} "
                "was replaced by another process, or discarded: let that process go on, or begin again"
            )
        joined_after = {batch.token for batch in others} - self._tokens - {self.attempt.token}
        there = standing(self.attempt, others, joined_after)
        own = self.attempt.number, self.attempt.token
        if not self._replaces and any((batch.attempt, batch.token) != own for batch in there.replaced):
            raise StaleAttempt(
                f"another attempt at {self.attempt.task!r} has written into session {record.id!r}: discard that first, "
                "if it does not count any longer"
            )
        self.is_complete = there.is_complete
        return there.replaced

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.state == "open":
            self._is_last = True
            self.flush()
        if self.state == "open":
            self.changes.status = "closed"
