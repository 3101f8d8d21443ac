"""The writers of a shared session. A process has one, which adds its changes to the session in batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from lake_core import runtime
from lake_core.journal import Action, Add, Append, Delete, State, Update
from lake_core.lake.errors import Conflict, SessionClosed, StaleAttempt
from lake_core.lake.publish.apply import apply
from lake_core.lake.publish.commit_to_branch import MOST_TRIES
from lake_core.lake.publish.tree_update import check_references, write_tree
from lake_core.lake.refs.pending_deletions import PendingDeletions, collections
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.refs.session_record import OPEN, Batch, SessionRecord, batch_key
from lake_core.lake.session.session_state import open_record, renewed_expiry
from lake_core.lake.session.write_session import WriteSession
from lake_core.lake.state.changes import Changes
from lake_core.lake.state.view import Overlay, View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """The caller's name for a task, and the number of the attempt at it."""

    task: str | None = None
    attempt: int = 0


class SessionWriter(WriteSession):
    """A writer of a shared session. Its changes are private until `flush` adds them to the session as one batch."""

    def __init__(self, repository: Repository, session: str, epoch: int | None, attempt: TaskAttempt) -> None:
        """Join a session. Raises SessionNotFound, SessionClosed, StaleEpoch, StaleAttempt, Conflict."""
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
        self.session, self.epoch, self.task, self.attempt = session, record.epoch, attempt.task, attempt.attempt
        self.id = runtime.uuid4().hex
        self._is_last = False
        """Whether this is the last flush."""
        self._flushed = 0
        """The number of flushed batches."""
        self._tried: StateStore | None = None
        """The state that the last flush would have added, if it failed. It may have been added nevertheless."""
        self._added: StateStore | None = None
        """The state that a failed flush did add."""
        # A later attempt begins at the same tree as the earlier one: it must not see the rows that it will replace.
        earlier, _ = self._earlier_attempts(record, refs.batches_of(record, self.task, self.id))
        tree = _without(repository, record, earlier, repository.pending_deletions(refs))
        self.changes.show(View(repository.graveler, tree, Overlay()))

    def flush(self) -> None:
        """Add the changes since the last flush to the session as one batch, and then see those of other writers.

        Raises StaleEpoch, SessionClosed, StaleAttempt, Collected; Conflict if another writer made changes that
        conflict.
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
        batches = refs.batches_of(record, self.task, self.id)
        if any(batch.id == self._batch_id for batch in batches):
            # It was added, but the response was lost. What was written since is added by another batch.
            self._added, self._tried, self._flushed = self._tried, None, self._flushed + 1
        before = self._added or repository.state(self.view.tree, f"session {record.id}")
        earlier, is_whole = self._earlier_attempts(record, batches)
        if is_whole:
            return record.tree
        now = repository.clock()
        pending = repository.pending_deletions(refs)
        tree = _without(repository, record, earlier, pending)
        state = repository.state(tree, f"session {record.id}")
        update = apply(before, self, state, now=now, session=record.id, commit=record.base, in_session=True)
        check_references(update.references, pending)
        after = write_tree(repository, update.onto, update.items, pending)
        reads = sorted({*record.reads, *self.reads})
        # An attempt that wrote nothing is recorded too, so that late writes of an older attempt are refused.
        must_be_recorded = self.task is not None and (
            self._is_last or not any(batch.writer == self.id for batch in batches)
        )
        if (
            after == record.tree
            and reads == list(record.reads)
            and not changes.ended_retention
            and not must_be_recorded
        ):
            return after
        batch = Batch(self._batch_id, self.id, tree, after, self.task, self.attempt, self._is_last)
        kept = [other for other in record.batches if other not in earlier]
        has_batch_keys = repository.format.has_batch_keys
        retention = {f"retention:{path}": before.isoformat() for path, before in changes.ended_retention.items()}
        newer = replace(
            record,
            tree=after,
            batches=kept if has_batch_keys else (*kept, batch),
            reads=reads,
            metadata=dict(record.metadata) | retention,
            expires=renewed_expiry(record, now, record.expires - record.opened),
        )
        known_collections = collections(refs)

        def plan(state: State) -> Append[str | None]:
            newest = RefsState(state)
            current = newest.session(record.id)
            if current != record or collections(newest) != known_collections:
                return Append((), None)
            keys = (batch_key(record.id, other) for other in earlier)
            actions: list[Action] = [
                Update(record.key, newer.to_json()),
                *(Delete(key) for key in keys if key in state),
            ]
            if has_batch_keys:
                actions.append(Add(batch_key(record.id, batch), batch.to_json()))
            return Append(actions, after)

        return repository.journal.append(plan)

    @property
    def _batch_id(self) -> str:
        return f"{self.id}-{self._flushed}"

    def _earlier_attempts(self, record: SessionRecord, batches: Sequence[Batch]) -> tuple[list[Batch], bool]:
        """Return which of the task's batches are of earlier attempts, and whether this attempt is complete already.

        Raises StaleAttempt if a later attempt is there, or another process has begun the same attempt again.
        """
        if self.task is None:
            return [], False
        if self._flushed and not any(batch.writer == self.id for batch in batches):
            raise StaleAttempt(
                f"another process has begun attempt {self.attempt} of {self.task!r} in session {record.id!r} again, or "
                "a later one, and replaced what this one had written: let that process go on"
            )
        others = [batch for batch in batches if batch.writer != self.id]
        newest = max((batch.attempt for batch in others), default=-1)
        if newest > self.attempt:
            raise StaleAttempt(
                f"session {record.id!r} already has attempt {newest} of {self.task!r}, "
                f"which is newer than this attempt, {self.attempt}"
            )
        is_whole = any(batch.attempt == self.attempt and batch.is_last for batch in others)
        return ([], True) if is_whole else (others, False)

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


def _without(repository: Repository, record: SessionRecord, batches: Sequence[Batch], pending: PendingDeletions) -> str:
    """Write the tree of a session without the changes of some batches."""
    tree = record.tree
    for batch in reversed(batches):
        tree = _reverted(repository, record, batch, tree, pending)
    return tree


def _reverted(repository: Repository, record: SessionRecord, batch: Batch, tree: str, pending: PendingDeletions) -> str:
    """Write the tree of a session without the changes of a batch. Raises Conflict if later batches depend on them."""
    name = f"session {record.id}"
    try:
        update = apply(
            repository.state(batch.after, name),
            repository.state(batch.before, name),
            repository.state(tree, name),
            now=repository.clock(),
            session=record.id,
            commit=record.base,
            in_session=True,
        )
    except Conflict as error:
        summary = (
            f"attempt {batch.attempt} of {batch.task!r} is to be replaced, but other writes build on it: "
            f"{error.summary}"
        )
        raise error.replace(summary=summary, remedy="Start a new run") from None
    return write_tree(repository, update.onto, update.items, pending)
