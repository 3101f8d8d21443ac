"""Shared sessions: several processes write into one, which is published once (Arraylake: cooperative mode).

Opening a session that exists resumes it: its epoch rises, and writes of older epochs are refused. The expiry of a
session is an entry of the journal, like every other change of its state. Clocks only decide when to write this entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from lake_core import runtime
from lake_core.journal import Action, Add, Append, State, Update
from lake_core.lake.errors import RefExists
from lake_core.lake.publish.branch_update import RefsMoved
from lake_core.lake.publish.tree_update import write_tree
from lake_core.lake.refs.pending_deletions import collections
from lake_core.lake.refs.refs_state import RefsState, check_name
from lake_core.lake.refs.session_record import ABANDONED, EXPIRED, FAILED, MOST_EXPIRY, OPEN, SessionRecord
from lake_core.lake.session.generations import generation_id, generations
from lake_core.lake.session.session_state import (
    DEFAULT_EXPIRY,
    KEEP_FAILED,
    check_tree,
    closed,
    expire_if_due,
    fail,
    fence,
    renewed_expiry,
)
from lake_core.lake.session.session_writer import SessionWriter
from lake_core.lake.session.task_attempt import TaskAttempt
from lake_core.lake.state.state_store import StateStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lake_core.lake.publish.preview import ChangePreview
    from lake_core.lake.publish.published import Published
    from lake_core.lake.refs.session_record import Batch
    from lake_core.lake.repository import Repository


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """The options of a shared session."""

    branch: str
    id: str | None = None
    expires_in: timedelta = DEFAULT_EXPIRY
    isolation: str = "snapshot"
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    renews: bool = False
    """Whether the next generation is opened if the last one has ended, which may replace what the last one wrote."""
    owner: str = ""
    """What settles the session. An open session that it owns keeps its epoch."""

    def check(self) -> None:
        """Check the options. Raises ValueError."""
        if not timedelta(0) < self.expires_in <= MOST_EXPIRY:
            raise ValueError(f"a session lasts at most {MOST_EXPIRY.days} days, not {self.expires_in}")
        if self.isolation not in ("snapshot", "serializable"):
            raise ValueError(f"isolation must be 'snapshot' or 'serializable', not {self.isolation!r}")


class SharedSession(StateStore):
    """A handle of a shared session. `join` returns a writer.

    It reads what the writers had flushed when it was made: `Lake.get_session` returns a handle that reads the rest.
    """

    def __init__(
        self,
        repository: Repository,
        record: SessionRecord,
        *,
        epoch: int | None = None,
        on_read: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(repository.state(record.tree, f"session {record.id}", on_read=on_read).tree)
        self._repository, self._record = repository, record
        self.id, self.branch, self.commit, self.lineage = record.id, record.branch, record.base, record.lineage
        self.epoch = record.epoch if epoch is None else epoch
        """How often the session was resumed or taken over. Older epochs can neither write nor publish."""
        self._relied_on: set[tuple[str, str]] = set()
        """The commits and reads that this handle has recorded."""

    @property
    def record(self) -> SessionRecord:
        """Return the lake's record of the session as it was when this handle was made, or as expired if it is due."""
        record = expire_if_due(self._repository, self._record)
        return replace(record, batches=self._repository.refs(refresh=False).batches(record))

    def list_batches(self) -> Sequence[Batch]:
        """List the batches that are in the session now, in the order of their flushes."""
        refs = self._repository.refs()
        return refs.batches(refs.session(self.id))

    def join(
        self, *, task: str | None = None, attempt: int = 0, token: str = "", part: str = "", replace: bool = True
    ) -> SessionWriter:
        """Return a writer. Its changes are private until `flush`; the end of its `with` block flushes as well.

        Args:
            task: The caller's name for what is written. A later attempt at the same task replaces what an earlier one
                wrote.
            attempt: The number of the attempt at the task. An attempt that is in the session already is skipped.
            token: What tells attempts of the same number apart, such as the id of a try. The same token again is the
                same attempt, whose response was lost: it is skipped. Another token replaces it.
            part: The part of the attempt that is written, where there are several, also in several processes. Parts of
                one attempt add up; each is written once.
            replace: Whether to replace what another attempt wrote. Otherwise it must have been discarded before.

        Raises:
            SessionClosed: The session was published, abandoned or failed, or has expired.
            StaleEpoch: Another process has resumed the session.
            StaleAttempt: A later attempt at the task is in the session already, or another one that is not to be
                replaced.
            ValueError: There is a token or a part, but no task.
        """
        if task is None and (token or part):
            raise ValueError("a token or a part is that of an attempt at a task: name the task as well")
        return SessionWriter(
            self._repository, self.id, self.epoch, TaskAttempt(task, attempt, token, part), replaces=replace
        )

    def rely_on(self, commit: str, *reads: str) -> None:
        """Record what was read for the session, outside of its writers, if the session is serializable.

        `reads` are keys of a commit of the session's branch, and prefixes ending in "*". The publish is then a conflict
        if others have changed them. A session that accepts no more writes does not change.

        Raises:
            Conflict: They differ between the commit and the session's base. Do the work again.
        """
        if self._record.isolation != "serializable" or self._relied_on.issuperset((commit, read) for read in reads):
            return
        repository = self._repository
        refs = repository.refs()
        record = refs.session(self.id)
        from lake_core.lake.publish.prepare import check_unchanged

        check_unchanged(repository, refs, reads, refs.commit(commit), refs.commit(record.base))

        def plan(state: State) -> Sequence[Action]:
            record = RefsState(state).session(self.id)
            if record.state != OPEN or self.epoch < record.epoch or set(reads) <= set(record.reads):
                return ()
            return [Update(record.key, replace(record, reads=sorted({*record.reads, *reads})).to_json())]

        repository.journal.append(plan)
        self._relied_on.update((commit, read) for read in reads)

    def discard(self, tasks: Collection[str]) -> Sequence[str]:
        """Take what tasks have written out of the session, as if they had not run yet.

        What other tasks wrote stays, also on top of it. A dataset that one of the tasks created goes, unless others
        have written to it. Writers of these tasks that have flushed can write no more.

        Args:
            tasks: The tasks.
            may_stay: Those whose writes may stay where others have rewritten them since, because the tasks replace
                them anyway, such as by an overwrite or a merge by keys.
            stayed: Gets the datasets and plain files whose writes stay.

        Returns:
            Those of the tasks that had written something.

        Raises:
            Conflict: Other tasks rewrote or removed what is to be taken out: discard these as well.
            SessionClosed: The session was published or abandoned, or has expired.
            StaleEpoch: Another process has resumed the session.
        """
        from lake_core.lake.session.tasks import discard

        return discard(self._repository, self.id, self.epoch, lambda batch: batch.task in tasks)

    def discard_batches(self, ids: Collection[str], *, remember: bool = False) -> Sequence[str]:
        """Take batches out of the session by their ids, as `discard` does. Those that are gone already are passed over.

        It is for a caller who has judged these batches: what their tasks have written in the meantime stays.

        Args:
            ids: The ids of the batches.
            remember: Whether `Lake.taken_out` lists their attempts from now on, because these must not count again.

        Raises:
            Conflict: Other tasks rewrote or removed what is to be taken out: discard these as well.
            SessionClosed: The session was published or abandoned, or has expired.
            StaleEpoch: Another process has resumed the session.
        """
        from lake_core.lake.session.tasks import discard

        return discard(self._repository, self.id, self.epoch, lambda batch: batch.id in ids, remember=remember)

    def replace_published(
        self, commit: str, tasks: Collection[str], *, may_stay: Collection[str] = (), stayed: set[str] | None = None
    ) -> Sequence[str]:
        """Take what tasks published with a commit out of this session, so that they can write it anew.

        Others read it until this session is published, which then replaces it at once. A repeated call does nothing,
        nor does one for a commit that was reverted since. A dataset that one of the tasks created goes, unless others
        have written to it.

        Args:
            commit: The id of the commit of a session that was opened with `renew=True`.
            tasks: The tasks.
            may_stay: Those whose writes may stay where others have rewritten them since, because the tasks replace
                them anyway, such as by an overwrite or a merge by keys.
            stayed: Gets the datasets and plain files whose writes stay.

        Returns:
            Those of the tasks that had written something, and were not taken out before.

        Raises:
            Conflict: Others rewrote or removed what is to be taken out, or this session began before the commit.
            BatchesGone: The commit is too long ago, or its session was not opened with `renew=True`.
            SessionClosed: This session accepts no more writes.
            StaleEpoch: Another process has resumed this session.
        """
        from lake_core.lake.session.replace_published import replace_published

        return replace_published(
            self._repository, self.id, self.epoch, commit, tasks, may_stay, set() if stayed is None else stayed
        )

    def publish(
        self,
        *,
        tasks: Collection[str] | None = None,
        others: Literal["refuse", "leave out"] = "refuse",
        without_end: bool = False,
        expected_tree: str | None = None,
        expected_head: str | None = None,
        keep: timedelta = KEEP_FAILED,
    ) -> Published:
        """Publish the session. A repeated call returns the same result.

        Args:
            tasks: The tasks that ended well. By default, all that is in the session is published.
            others: What to do with writes of other tasks, and of tasks whose last attempt did not end: refuse to
                publish, or discard them.
            without_end: Publish also those of the tasks whose writer did not end its block, because the caller knows
                that they wrote all.
            expected_tree: The tree that the session must have, as its record names it. None for any.
            expected_head: The commit that the branch must be at. None for any.
            keep: How long the session is kept if it fails by a conflict.

        Raises:
            UnexpectedHead: The session has another tree, or the branch another head. Look at it again.
            UnfinishedTasks: There are such writes, and they are not to be left out.
            Conflict: The changes conflict with later publishes. The session fails, stays readable, and can be forked.
            SessionClosed: The session was abandoned, or has expired.
            StaleEpoch: Another process has resumed the session.
            ProtectedBranch: The branch accepts only merges. Publish on another branch, and merge that.
            Collected: What it would bring back is being garbage-collected. Do the work again in a session.
            Diverged: Another writer changed the checked-out log of a dataset. `lake adopt` merges the two.
            PublishTimeout: Other writers moved the branch first at every try. Nothing was published: try again.
        """
        from lake_core.lake.session.publish_session import publish_session

        if tasks is None:
            return publish_session(self._repository, self.id, self.epoch, None, expected_tree, expected_head, keep)

        from lake_core.lake.session.tasks import Ended, publish_tasks

        ended = Ended(frozenset(tasks), without_end)
        return publish_tasks(
            self._repository,
            self.id,
            self.epoch,
            lambda: publish_session(self._repository, self.id, self.epoch, ended, expected_tree, expected_head, keep),
            leaves_out=others == "leave out",
        )

    def preview_publish(self) -> ChangePreview:
        """Return what `publish` would do now, and write nothing.

        Objects that were garbage-collected, and changes of main's logs by other writers, are only looked for by
        `publish`.

        Raises:
            Conflict: The changes conflict with later publishes. The session does not fail by this call.
            SessionClosed: The session was published or abandoned, or has expired.
            ProtectedBranch: The branch accepts only merges. Publish on another branch, and merge that.
        """
        from lake_core.lake.session.publish_session import preview_publish

        return preview_publish(self._repository, self.id)

    def fence(self) -> None:
        """Take the session over: processes that joined it before this can neither write nor publish any longer.

        A session that has ended, or that another process has resumed, does not change.
        """
        self.epoch = fence(self._repository, self.id, self.epoch)

    def fail(self, reason: str, *, keep: timedelta = KEEP_FAILED) -> None:
        """Mark an open session as failed: it accepts no writes, but can be read, resumed and published for `keep`.

        A session that has ended, or that another process has resumed, does not change.
        """
        fail(self._repository, self.id, reason, keep, self.epoch)

    def abandon(self, *, expected_tree: str | None = None) -> None:
        """End the session and discard its changes.

        Args:
            expected_tree: The tree that the session must have, as its record names it. None for any.

        Raises:
            UnexpectedHead: The session has another tree. Look at it again.
            SessionClosed: The session is published. Revert its commit instead.
        """

        def plan(state: State) -> Sequence[Action]:
            record = RefsState(state).session(self.id)
            if record.state in (ABANDONED, EXPIRED):
                return ()
            if record.is_published:
                raise closed(record)
            check_tree(record, expected_tree)
            return [Update(record.key, replace(record, state=ABANDONED).to_json())]

        self._repository.journal.append(plan)

    def fork(
        self,
        *,
        without: Sequence[str] = (),
        expires_in: timedelta = DEFAULT_EXPIRY,
        expected_tree: str | None = None,
        id: str | None = None,
    ) -> SharedSession:
        """Open a new session with the changes of this one, except those to the datasets and keys `without`.

        The new session has the same lineage. If this one is serializable, the new one relies on all that was read in
        this one, also for what is left out. With `expected_tree`, this one must have that tree. With `id`, the new
        session has this id, so that a call that is repeated forks once.

        Raises:
            RefExists: The `id` is or was that of a session, a branch or a tag.
            UnexpectedHead: This session has another tree. Look at it again.
            SessionClosed: This session was published or abandoned, or has expired.
        """
        while (session := self._try_fork(without, expires_in, expected_tree, id)) is None:
            pass  # the session has changed, or a collection has begun: the tree must not use what it deletes
        return session

    def _try_fork(
        self, without: Sequence[str], expires_in: timedelta, expected_tree: str | None, id: str | None
    ) -> SharedSession | None:
        """Try once to fork. Return None if the refs have changed so that it must be tried again."""
        repository = self._repository
        refs = repository.refs()
        record = expire_if_due(repository, refs.session(self.id))
        if record.state not in (OPEN, FAILED):
            raise closed(record)
        check_tree(record, expected_tree)
        base = repository.commit_state(refs.commit(record.base))
        items = {}
        for path in without:
            prefix = path.strip("/")
            for difference in repository.graveler.diff(base.view.tree, record.tree):
                key = difference.key.decode()
                if key == f"_lake/datasets/{prefix}" or key == prefix or key.startswith(f"{prefix}/"):
                    items[key] = base.view.get(key)
        tree = write_tree(repository, record.tree, items, repository.pending_deletions(refs))
        options = SharedOptions(record.branch, id, expires_in, record.isolation, record.message, record.metadata)
        try:
            return open_shared(repository, options, origin=Origin(refs, record, tree))
        except RefsMoved:
            return None


@dataclass(frozen=True, slots=True)
class Origin:
    """The session that a new session continues, and the tree that the new one begins with."""

    refs: RefsState
    """The refs by which the tree was written."""
    record: SessionRecord
    tree: str

    def check(self, refs: RefsState) -> None:
        """Raise RefsMoved if a collector may have deleted what the tree uses."""
        current = refs.session(self.record.id)
        is_same = (
            current.state in (OPEN, FAILED) and current.tree == self.record.tree and current.reads == self.record.reads
        )
        if not is_same or collections(refs) != collections(self.refs):
            raise RefsMoved


def open_shared(
    repository: Repository, options: SharedOptions, *, resume: bool = True, origin: Origin | None = None
) -> SharedSession:
    """Open a session on a branch, or resume the session with this id: its epoch rises.

    Without `resume`, an open session keeps its epoch.

    A new session begins with the base, tree, lineage and reads of `origin`.

    Raises RefNotFound, RefExists, SessionClosed; RefsMoved if the origin has changed.
    """
    options.check()
    first = check_name(options.id, "session") if options.id is not None else f"s-{runtime.uuid4().hex}"

    def name_in(refs: RefsState) -> str:
        """Return the id of the newest generation, or of the next one if that has ended."""
        newest = max(generations(refs, first).items(), default=None)
        if newest is None:
            return first
        number, record = newest
        goes_on = record.state in (OPEN, FAILED) and not record.conflicts
        return record.id if goes_on else generation_id(first, number + 1)

    def plan(state: State) -> Append[SessionRecord]:
        refs, now = RefsState(state), repository.clock()
        name = name_in(refs) if options.renews else first
        if any(f"{other}/{name}" in state for other in ("branch", "tag")):
            raise RefExists(f"{name!r} is or was the name of a branch or tag: choose another id for the session")
        if f"session/{name}" in state:
            if origin is not None:
                raise RefExists(f"{name!r} is or was the id of a session: choose another one for the new session")
            record = refs.session(name)
            if record.state not in (OPEN, FAILED):
                raise closed(record)
            is_owned = options.owner != "" and record.owner == options.owner
            if (is_owned or not resume) and record.state == OPEN and now < record.expires:
                return Append((), record)
            expires = renewed_expiry(record, now, options.expires_in)
            epoch, owner = record.epoch + 1, options.owner
            record = replace(record, epoch=epoch, state=OPEN, reason="", expires=expires, owner=owner, conflicts=False)
            return Append([Update(record.key, record.to_json())], record)
        if origin is not None:
            origin.check(refs)
        commit = refs.commit(refs.branch(options.branch) if origin is None else origin.record.base)
        tree, lineage = (commit.metarange_id, name) if origin is None else (origin.tree, origin.record.lineage)
        reads = () if origin is None else origin.record.reads
        record = SessionRecord(
            name, options.branch, commit.id, tree, 1, OPEN, now, now + options.expires_in, refs.number, lineage,
            options.message, options.isolation, reads, dict(options.metadata), owner=options.owner,
            renews=first if options.renews else "",
        )  # fmt: skip
        return Append([Add(record.key, record.to_json())], record)

    return SharedSession(repository, repository.journal.append(plan))
