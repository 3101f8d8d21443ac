"""Private sessions: in memory, in one process, published when a `with` block ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from lake_core import runtime
from lake_core.errors import LakeError, StoreError
from lake_core.journal import Add, Append, State
from lake_core.journal.errors import JournalError
from lake_core.lake.errors import Collected, Conflict, SessionClosed
from lake_core.lake.publish.apply import apply
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.publish.prepare import Change, Proposal, check_unchanged
from lake_core.lake.publish.session_update import prepare_session
from lake_core.lake.publish.tree_update import check_references, rebuilt, write_tree
from lake_core.lake.refs.commit_record import check_metadata
from lake_core.lake.refs.fence import NotFenced
from lake_core.lake.refs.pending_deletions import collections
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.refs.session_record import FAILED, MOST_EXPIRY, SessionRecord
from lake_core.lake.session.earlier_publish import published_earlier, remedy
from lake_core.lake.session.session_state import KEEP_FAILED
from lake_core.lake.session.write_session import WriteSession
from lake_core.lake.state.changes import UNSETTLED, Changes
from lake_core.lake.state.view import Overlay, View

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from lake_core.graveler import Commit
    from lake_core.lake.publish.branch_update import BranchUpdate
    from lake_core.lake.publish.published import Published
    from lake_core.lake.repository import Repository


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options of a session."""

    id: str
    branch: str
    message: str = ""
    metadata: Mapping[str, str] | None = None
    isolation: str = "snapshot"
    owner: str = ""
    """What works for it, such as a run: once it is fenced, the session is not published. Empty for none."""


class Session(WriteSession):
    """A private session, in memory. It publishes when its `with` block ends, and is discarded if the block raises."""

    def __init__(self, repository: Repository, options: SessionOptions) -> None:
        refs = repository.refs()
        self.requirements = [NotFenced(options.owner)] if options.owner else []
        for requirement in self.requirements:
            requirement.check(refs)
        commit = refs.commit(refs.branch(options.branch))
        super().__init__(
            Changes(
                repository.root,
                View(repository.graveler, commit.metarange_id, Overlay()),
                repository.clock,
                name=f"session {options.id}",
                base=repository.commit_state(commit).tree,
                records_reads=options.isolation == "serializable",
            )
        )
        self._repository = repository
        self.id, self.branch, self.commit, self.opened_at = options.id, options.branch, commit.id, refs.number
        self.message, self.metadata, self.isolation = options.message, dict(options.metadata or {}), options.isolation
        self.opened = repository.clock()
        self.result: Published | None = None

    def publish(self) -> Published:
        """Publish now. A repeated call returns the same result.

        Raises:
            Conflict: Others have changed the same. The session is kept under its id as a failed one, unless it brings
                back what is being garbage-collected. The message says what to do.
            SessionClosed: The session has ended, or is older than 7 days.
            StaleEpoch: Its owner is fenced: others have taken its work over. Let them go on.
            ProtectedBranch: The branch accepts only merges. Publish on another branch, and merge that.
            Collected: What it would bring back is being garbage-collected. Do the work again in a session.
            Diverged: Another writer changed the checked-out log of a dataset. `lake adopt` merges the two.
            PublishTimeout: Other writers moved the branch first at every try. Nothing was published: try again.
            ValueError: The metadata has keys that the lake writes itself, or values that are not text.
        """
        if self.result is None:
            is_repeated = self.state == UNSETTLED
            if not is_repeated:
                self.changes.check_open()
            self.check_age()
            check_metadata(self.message, self.metadata)
            if not is_repeated:
                self.changes.flush_buffers()
            self.result = self._publish()
            self.changes.status = "published"
        return self.result

    def check_age(self) -> None:
        """Raise SessionClosed after 7 days.

        Content that the session did not write, because it existed, may have been collected since it began.
        """
        if self.clock() - self.opened > MOST_EXPIRY:
            self.changes.status = "expired"
            self.changes.check_open()

    def rely_on(self, commit: str, *reads: str) -> None:
        """Record what was read for the session before it began, if it is serializable.

        `reads` are keys of a commit of the session's branch, and prefixes ending in "*". The publish is then a conflict
        if others have changed them.

        Raises:
            Conflict: They differ between the commit and the session's base. Do the work again.
        """
        if self.isolation == "serializable":
            refs = self._repository.refs()
            check_unchanged(self._repository, refs, reads, refs.commit(commit), refs.commit(self.commit))
            for what in reads:
                self.changes.note_read(what)

    def abandon(self) -> None:
        """End the session and discard its changes."""
        if self.state in ("open", UNSETTLED):
            self.changes.status = "abandoned"

    def _publish(self) -> Published:
        try:
            return commit_to_branch(self._repository, _PrivateSource(self._repository, self))
        except Conflict as error:
            self.changes.status = "failed"
            kept = self._keep_failed(error)
            if kept is None:
                raise
            text = remedy(kept) if error.remedy == remedy(self.id) else error.remedy
            raise error.replace(session=kept, remedy=text) from error.__cause__
        except BaseException as error:
            # Others are raised before anything is published, if this is the first try.
            is_unknown = not isinstance(error, LakeError) or isinstance(error, JournalError | StoreError)
            if is_unknown and self.state == "open":
                self.changes.status = UNSETTLED
            raise

    def _keep_failed(self, error: Conflict) -> str | None:
        """Record the session in the journal, so that it can be read and forked.

        Return the id of the record: another one than the session's if there is such a record already. Return None if
        it is not recorded, as it brings back what is being garbage-collected.
        """
        try:
            while (kept := self._try_keep_failed(error)) is None:
                pass  # a collection has begun in the meantime: the tree must use nothing that it deletes
        except (Collected, SessionClosed):
            return None
        return kept

    def _try_keep_failed(self, error: Conflict) -> str | None:
        """Record the session, and return the id of the record; None if it must be tried again.

        Raises Collected, SessionClosed.
        """
        self.check_age()
        repository = self._repository
        refs = repository.refs()
        pending = repository.pending_deletions(refs)
        if pending.keys:
            alone = apply(
                self.base, self, self.base, now=repository.clock(), session=self.id, commit=self.commit, dry_run=True
            )
            check_references(alone.references, pending)
        onto = rebuilt(repository, self.view.tree, pending)
        tree = write_tree(repository, onto, dict(self.view.overlay.items), pending)

        another = f"{self.id}-{runtime.uuid4().hex[:8]}"

        def plan(state: State) -> Append[str | None]:
            if collections(RefsState(state)) != collections(refs):
                return Append((), None)
            now = repository.clock()
            record = SessionRecord(
                another if f"session/{self.id}" in state else self.id,
                self.branch, self.commit, tree, 1, FAILED, now, now + KEEP_FAILED, self.opened_at, self.id,
                self.message, self.isolation, self.reads, self.metadata, (), None, error.explanation[:1000],
            )  # fmt: skip
            return Append([Add(record.key, record.to_json())], record.id)

        return repository.journal.append(plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()
        elif self.state == "open":
            self.publish()


@dataclass(frozen=True, slots=True)
class _PrivateSource:
    """A `Source` that publishes a private session."""

    repository: Repository
    session: Session
    compares_checkout: bool = False

    @property
    def branch(self) -> str:
        return self.session.branch

    def prepare(self, refs: RefsState) -> BranchUpdate | Published:
        session = self.session
        commit = self._published_commit(refs)
        if commit is not None:
            return published_earlier(self.repository, refs, session.branch, session.id, commit)
        session.check_age()  # at each try: the process may have been suspended
        retention = {path: before.isoformat() for path, before in session.changes.ended_retention.items()}
        proposal = Proposal(session.branch, session.message, session.metadata, session=session.id, retention=retention)
        change = Change(session.base, session, session.reads, remedy=remedy(session.id))
        for requirement in session.requirements:
            requirement.check(refs)
        update = prepare_session(self.repository, refs, proposal, change, session.commit)
        return replace(update, requirements=(*update.requirements, *session.requirements))

    def _published_commit(self, refs: RefsState) -> Commit | None:
        """Find the commit of an earlier attempt whose response was lost."""
        commit = refs.commit(refs.branch(self.branch))
        while commit.id != self.session.commit and commit.parents:
            if commit.metadata.get("session") == self.session.id:
                return commit
            commit = refs.first_parent(commit)
        return None
