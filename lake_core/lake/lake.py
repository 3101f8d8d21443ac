"""`Lake`: transactions over a bucket or a folder, with no server to run."""

from __future__ import annotations

import getpass
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from lake_core import runtime
from lake_core.clock import Clock, aware
from lake_core.dataset import MOST_ROWS
from lake_core.graveler import Commit, Graveler
from lake_core.journal import Action, Add, Journal, State
from lake_core.lake.errors import FolderInUse, InvalidRef, LakeAlreadyExists
from lake_core.lake.lake_format import check_no_repository, create_format, create_origin, read_format
from lake_core.lake.refs.branches import create_branch, create_tag, delete_branch, delete_tag
from lake_core.lake.refs.commit_archive import COMMIT_ARCHIVE
from lake_core.lake.refs.commit_record import check_metadata, commit_value
from lake_core.lake.refs.history import log
from lake_core.lake.refs.reached import CommitLinks, has_reached
from lake_core.lake.refs.refs_state import RefsState, check_name
from lake_core.lake.refs.revision import resolve, resolve_commit
from lake_core.lake.refs.session_record import FAILED, OPEN, Batch, SessionRecord
from lake_core.lake.repository import CONFIG, REFS, Repository
from lake_core.lake.session.session_name import session_name
from lake_core.lake.session.session_state import DEFAULT_EXPIRY
from lake_core.lake.settings import LakeSettings
from lake_core.lake.state.addresses import external_location
from lake_core.store import ObjectStore, store_at

# What only some methods need is imported by them: a program that opens a lake must not wait for the rest.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from lake_core.delta import DeltaTable
    from lake_core.icechunk import DatasetRepository
    from lake_core.lake.maintenance import LakeMaintenance
    from lake_core.lake.publish.comparison import ChangedKey, Comparison
    from lake_core.lake.publish.preview import ChangePreview
    from lake_core.lake.publish.published import Published
    from lake_core.lake.publish.tree_update import MergeStrategy
    from lake_core.lake.session.private_session import Session
    from lake_core.lake.session.shared_session import SharedSession
    from lake_core.lake.session.task_attempt import TaskAttempt
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.state_store import StateStore
    from lake_core.pool import Pool

_FIRST_MESSAGE = "Repository created"


@dataclass(frozen=True, slots=True)
class Status:
    """A summary of a lake."""

    url: str
    branches: Mapping[str, str]
    """The commit of each branch."""
    sessions: int
    """The number of open sessions."""
    entries: int
    """The number of entries of the refs journal."""
    pending_checkout: Sequence[str]
    """Published commits of main that may not be checked out yet. The next publish completes them."""


class Lake:
    """A lake: datasets and files in one folder or bucket that are published together, with branches and history.

        lake = Lake.create("s3://bucket/lake", exist_ok=True)
        with lake.session("main", message="nightly") as s:
            s.create_delta("tables/orders", schema, exist_ok=True).append(rows, txn=("orders", 7))
            s.put("reports/today.json", b"{}")
        lake.delta("tables/orders", ref="main").to_arrow()

    A ref is a branch, a tag, a commit, a session, or an expression such as `main~1` or `main@{2026-01-31T12:00:00Z}`.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    @classmethod
    def create(
        cls,
        url: str | PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        profile: Literal["small", "lakefs"] = "small",
        exist_ok: bool = False,
    ) -> Self:
        """Create a lake in a folder or bucket, with an empty branch `main`.

        `profile` sets the size of the ranges of a tree. It cannot be changed later.

        Raises:
            LakeAlreadyExists: A lake exists there, and `exist_ok` is false. Open it.
            FolderInUse: The folder holds the metadata of a lakeFS repository, or of an export to one. Choose another
                folder, or import the repository.
            InvalidUrl: The location cannot be opened as a store.
            UnsafeStore: The store ignores conditional puts, so writers could lose data. Choose another one.
        """
        root = store_at(url, storage_options)
        try:
            check_no_repository(root)
            create_format(root, profile, aware(clock)())
        except LakeAlreadyExists:
            if not exist_ok:
                raise
        lake = cls._open(root, clock)
        lake._begin()
        return lake

    @classmethod
    def import_lakefs(
        cls,
        namespace: str | PathLike[str] | ObjectStore,
        *,
        rename: Mapping[str, str] | None = None,
        external: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Self:
        """Convert a lakeFS repository to a lake, in its storage namespace. No data is copied.

        The lake has the commits, branches and tags that `lakectl refs-dump` has written, with lakeFS's ids, and no
        uncommitted changes. Objects stay where they are, and garbage collection never deletes those older than the
        lake. Tables are plain files: `import_dataset(path, copy_files=True)` of a session registers one as a dataset.
        lakeFS's garbage collection must not run there any more. Run an import that was interrupted again.

        Args:
            namespace: The repository's storage namespace, which becomes the lake's root.
            rename: Names in the lake, by the names of branches and tags in lakeFS. One branch must become `main`.
            external: The locations of objects that may be read by full URLs, such as `s3://bucket/raw`.
            storage_options: The options of fsspec that open the namespace.
            clock: As for `open`.
            progress: Called with "checked" and the number of commits.

        Raises:
            ForeignRepository: The repository cannot become a lake as it is. Nothing was written.
            LakeAlreadyExists: A lake exists there already. Open it.
            InvalidRef: A name cannot be that of a branch or tag of a lake. Give another one by `rename`.
            RefNotFound: `rename` names a branch or tag that the repository does not have.
            InvalidUrl: The namespace, or a location of `external`, cannot be opened as a store.
            UnsafeStore: The store ignores conditional puts, so writers could lose data.
        """
        root = store_at(namespace, storage_options)
        if cls.exists(root) and not read_format(root).origin:
            raise LakeAlreadyExists(f"a lake exists at {root.url()}: open it with Lake.open")
        from lake_core.lake.lakefs.repository_import import read_repository, write_refs

        locations = [external_location(url) for url in external]
        repository = read_repository(root, "main", rename=rename or {}, progress=progress)
        create_origin(root, repository.manifest)
        with suppress(LakeAlreadyExists):
            create_format(root, "lakefs", aware(clock)(), origin="lakefs")
        lake = cls._open(root, clock)
        if locations:
            lake.settings.update(external=locations)
        write_refs(lake._repository, repository)
        return lake

    @classmethod
    def open(
        cls,
        url: str | PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Open the lake at a location.

        `clock` returns the time, with a zone.

        Raises:
            LakeNotFound: No lake exists there. Check the location, or create one.
            UnsupportedLake: A later release wrote the lake's format, or its format file is damaged. Upgrade this
                package, or restore the file.
            InvalidUrl: The location cannot be opened as a store.
        """
        root = store_at(url, storage_options)
        return cls._open(root, clock)

    @classmethod
    def exists(
        cls, url: str | PathLike[str] | ObjectStore, *, storage_options: Mapping[str, Any] | None = None
    ) -> bool:
        """Return whether a lake exists at a location."""
        root = store_at(url, storage_options, read_only=True)
        return root.exists("_lake/format.json")

    @classmethod
    def _open(cls, root: ObjectStore, clock: Clock | None) -> Self:
        time = aware(clock)
        journal = Journal(root, REFS, clock=time)
        format, _ = root.gather(lambda: read_format(root), journal.look)
        if format.version > 1:
            journal.archive = COMMIT_ARCHIVE
        graveler = Graveler(root, profile=format.ranges)
        return cls(
            Repository(
                root,
                format,
                graveler,
                journal,
                Journal(root, CONFIG, clock=time),
                time,
                _committer(),
                clock is not None,
            )
        )

    def _begin(self) -> None:
        """Create the empty branch main, unless it exists.

        Raises FolderInUse if an import was interrupted.
        """
        repository = self._repository
        branch = repository.format.branch

        def plan(state: State) -> Sequence[Action]:
            if f"branch/{branch}" in state:
                return ()
            if repository.format.origin:
                raise FolderInUse(f"an import of the lakeFS repository at {self.url} was interrupted: import it again")
            metadata = {"lake": repository.format.id}
            first = Commit.create(repository.committer, _FIRST_MESSAGE, repository.clock(), "", metadata=metadata)
            return [
                Add(f"commit/{first.id}", commit_value(first)),
                Add(f"branch/{branch}", {"commit": first.id}),
                Add(f"place/{branch}", {"commit": first.id}),
            ]

        repository.journal.append(plan)

    @property
    def repository(self) -> Repository:
        """Return the parts of the lake: its root, its refs, its trees."""
        return self._repository

    @property
    def url(self) -> str:
        """Return the URL of the lake."""
        return self._repository.root.url()

    def uri(self, ref: str = "main", path: str = "") -> str:
        """Return the URL of a path at a ref, for fsspec: `lake://<the lake's location, encoded>/<ref>/<path>`.

        If the ref is a commit, the URL always names the same state.
        """
        return f"lake://{quote(self.url, safe='')}/{ref}/{path.lstrip('/')}".rstrip("/")

    @property
    def id(self) -> str:
        """Return the unique id of this lake, which it keeps when it is moved."""
        return self._repository.format.id

    # Sessions

    def session(
        self,
        branch: str = "main",
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        isolation: Literal["snapshot", "serializable"] | None = None,
        id: str | None = None,
        owner: str = "",
    ) -> Session:
        """Begin a private session. It publishes when its `with` block ends. If the block raises, it is discarded.

        `isolation` is the lake's by default. Under `snapshot`, changes conflict by the rules of their formats, and if
        both sides wrote the same plain file. Under `serializable`, it is also a conflict if others changed what the
        session read. If several sessions with one `id` began at the same commit, one publishes, and the others get its
        result. Once its `owner`, such as a run, is fenced, the session is not published.

        Raises:
            RefNotFound: There is no such branch.
            InvalidRef: The `id` cannot be the name of a session.
            StaleEpoch: The owner is fenced.
            ValueError: `metadata` has keys that the lake writes itself, or values that are not text.
        """
        from lake_core.lake.session.private_session import Session, SessionOptions

        check_metadata(message, metadata)
        id = f"s-{runtime.uuid4().hex}" if id is None else check_name(id, "session")
        isolation = isolation or self.settings.isolation
        return Session(self._repository, SessionOptions(id, branch, message, metadata, isolation, owner))

    def fence(self, *owners: str) -> None:
        """Publish no private session of these owners any longer, whatever process has it. It stays so for 30 days.

        Whoever takes over the work of a process that is taken for dead calls this first, since it may yet go on. Of a
        shared session, `SharedSession.fence` does the same.
        """
        from lake_core.lake.refs.fence import fence_owners

        fence_owners(self._repository.journal, owners, self._repository.clock())

    def open_session(
        self,
        branch: str = "main",
        *,
        id: str | None = None,
        expires_in: timedelta = DEFAULT_EXPIRY,
        isolation: Literal["snapshot", "serializable"] | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        resume: bool = True,
        renew: bool = False,
        owner: str = "",
    ) -> SharedSession:
        """Open a shared session, or resume the session with this id: its epoch rises, and older epochs cannot write.

        The handle only reads; writers come from its `join`.

        Args:
            branch: The branch that the session is published on.
            id: The id of the session. Without one, a new session is opened.
            expires_in: The time after which the session expires, at most 7 days. Each flush begins the time anew.
            isolation: What the publish takes for a conflict. The default is the lake's setting.
            message: The message of the commit.
            metadata: The metadata of the commit.
            resume: Whether the epoch of a session that is open rises.
            renew: Whether a session that has ended, or that conflicts with what others published, is followed by its
                next generation, `<id>.2` and so on; the handle's `id` names it.
            owner: What settles the session, such as the id of a run. An open session of the same owner keeps its epoch:
                its processes do not fence one another.

        Raises:
            RefNotFound: There is no such branch.
            SessionClosed: The session has ended. Open one with another id, or pass `renew=True`.
            InvalidRef: The `id` cannot be the name of a session.
            RefExists: The `id` is or was the name of a branch or tag. Choose another one.
            ValueError: `metadata` has keys that the lake writes itself, or `expires_in` is longer than 7 days.
        """
        from lake_core.lake.session.shared_session import SharedOptions, open_shared

        check_metadata(message, metadata)
        isolation = isolation or self.settings.isolation
        options = SharedOptions(branch, id, expires_in, isolation, message, metadata or {}, renew, owner)
        return open_shared(self._repository, options, resume=resume)

    session_name = staticmethod(session_name)

    def get_session(self, id: str, *, epoch: int | None = None) -> SharedSession:
        """Return a handle of an existing shared session, from any process.

        Pass the `epoch` of the process that opened it; the default is the current one.

        Raises:
            SessionNotFound: The lake has no session with this id, or no longer its record.
        """
        from lake_core.lake.session.shared_session import SharedSession

        return SharedSession(self._repository, self._repository.refs().session(id), epoch=epoch)

    def list_sessions(self, *, include_ended: bool = False) -> list[SessionRecord]:
        """List the shared sessions that are open or failed, oldest first, and with `include_ended` those that ended."""
        refs = self._repository.refs()
        records = [record for record in refs.sessions() if include_ended or record.state in (OPEN, FAILED)]
        return [replace(record, batches=refs.batches(record)) for record in records]

    def published_batches(self, id: str) -> Mapping[str, Sequence[Batch]]:
        """Return what tasks published with the generations of a session, and later ones did not replace, by commit.

        Raises:
            BatchesGone: A generation was published too long ago, or the session was not opened with `renew=True`.
        """
        from lake_core.lake.session.generations import published_batches

        return published_batches(self._repository.refs(), id)

    def taken_out(self, id: str) -> Sequence[TaskAttempt]:
        """Return the attempts of which something was taken out of a session's generations for good.

        That is what `SharedSession.discard_batches` was told to remember, and what `replace_published` took out, unless
        its session was abandoned, has expired, or was reverted.
        """
        from lake_core.lake.session.generations import taken_out

        return taken_out(self._repository.refs(), id)

    def list_generations(self, id: str) -> list[SessionRecord]:
        """List the generations of a session that was opened with `renew=True`, oldest first."""
        from lake_core.lake.session.generations import generations

        refs = self._repository.refs()
        return [replace(record, batches=refs.batches(record)) for record in generations(refs, id).values()]

    # Branches, tags and merges

    def list_branches(self) -> dict[str, str]:
        """List the commit of each branch."""
        return self._repository.refs().branches()

    def create_branch(self, name: str, *, at: str = "main", exist_ok: bool = False) -> str:
        """Create a branch at a ref and return its commit. Copies no data.

        Raises:
            RefExists: The name is or was that of a branch, tag or session. Choose another one.
            InvalidRef: The name cannot be that of a branch, or `at` is no ref to a commit.
            RefNotFound: The lake has no ref `at`.
        """
        return create_branch(self._repository.journal, name, at, exist_ok)

    def delete_branch(self, name: str, *, at: str | None = None) -> bool:
        """Delete a branch, and return whether it is gone. Another ref, or the retention, may keep its commits.

        With `at`, a commit's id, the branch is deleted only if it is still at this commit.

        Raises:
            RefNotFound: There is no such branch.
            InvalidRef: The branch is checked out, so it cannot be deleted.
        """
        if name == self._repository.format.branch:
            raise InvalidRef(f"the branch {name!r} is the one that is checked out: it cannot be deleted")
        return delete_branch(self._repository.journal, name, at)

    def list_tags(self) -> dict[str, str]:
        """List the commit of each tag."""
        return self._repository.refs().tags()

    def create_tag(self, name: str, *, at: str = "main") -> str:
        """Give a commit a permanent name, and return the commit.

        Raises:
            RefExists: The name is or was that of a branch, tag or session, even of a deleted tag. Choose another one.
            InvalidRef: The name cannot be that of a tag, or `at` is no ref to a commit.
            RefNotFound: The lake has no ref `at`.
        """
        return create_tag(self._repository.journal, name, at)

    def delete_tag(self, name: str) -> None:
        """Delete a tag. Its name cannot be used again.

        Raises:
            RefNotFound: There is no such tag.
        """
        delete_tag(self._repository.journal, name)

    def merge(
        self,
        ref: str,
        *,
        into: str = "main",
        message: str | None = None,
        strategy: MergeStrategy | None = None,
        squash: bool = False,
        expected_head: str | None = None,
    ) -> Published:
        """Bring to a branch the commits of a ref that have not reached it.

        A commit reaches a branch by a merge, a squash or a cherry-pick. What was reverted on the branch does not come
        back: revert the revert. What was reverted on the ref is undone on the branch. Datasets that both changed are
        merged by the rules of their formats.

        `strategy` resolves conflicts: with `"theirs"`, each dataset or plain file in conflict becomes as the ref has
        it; with `"ours"`, it stays as the branch has it. It applies to whole datasets, with their transaction
        identifiers; what does not conflict is merged from both sides. `"theirs"` does not resolve rows removed from an
        append-only table, a dataset and plain files at one path, or a dataset that was released. Neither resolves Zarr
        arrays that one side reshaped or deleted. lakeFS's words `"source-wins"` and `"dest-wins"` mean `"theirs"` and
        `"ours"`.

        With `squash`, the new commit has the head of the branch as its only parent, so the branch's log does not list
        the commits of the ref. They have reached the branch all the same: later merges bring what is new since.

        With `expected_head`, nothing is merged unless the branch is at this commit.

        Raises:
            UnexpectedHead: The branch is not at `expected_head`. Look at it again.
            Conflict: Both sides changed the same. Nothing was merged; the message says what to do, such as to pass a
                `strategy`.
            NothingToApply: The branch has all of the ref already.
            RefNotFound: There is no such branch or ref, or the two have no commit in common.
            InvalidRef: The ref is not written as one, or names a session.
            ContentGone: The content of a commit that it needs was garbage-collected. Merge newer branches, or do the
                work again in a session.
            Collected: What it would bring back is being garbage-collected. Do the work again in a session.
            Diverged: Another writer changed the checked-out log of a dataset. `lake adopt` merges the two.
            PublishTimeout: Other writers moved the branch first at every try. Nothing was published: try again.
            ValueError: There is no such strategy.
        """
        from lake_core.lake.publish.merge import merge

        refs = self._repository.refs()
        commit = self._commit(ref, refs)
        return merge(self._repository, commit, ref, into, message, strategy, squash=squash, expected_head=expected_head)

    def preview_merge(self, ref: str, *, into: str = "main", strategy: MergeStrategy | None = None) -> ChangePreview:
        """Return what `merge` would do now, and write nothing.

        Raises:
            Conflict: Both sides changed the same, so `merge` would fail. Pass a `strategy`, or resolve it in a session.
            NothingToApply: The branch has all of the ref already.
            RefNotFound: There is no such branch or ref, or the two have no commit in common.
            InvalidRef: The ref is not written as one, or names a session.
            ContentGone: The content of a commit that it needs was garbage-collected. Merge newer branches, or do the
                work again in a session.
            ValueError: There is no such strategy.
        """
        from lake_core.lake.publish.preview import preview_merge

        refs = self._repository.refs()
        return preview_merge(self._repository, self._commit(ref, refs), ref, into, strategy)

    def revert(
        self,
        commit: str,
        *,
        branch: str = "main",
        parent: int = 1,
        message: str | None = None,
        expected_head: str | None = None,
    ) -> Published:
        """Undo on a branch what came with a commit since its `parent`-th parent, in a new commit.

        Later changes stay. Those that have read or rewritten what the commit wrote conflict. What the commit itself had
        undone is in force again, so the revert of a revert brings back what that undid. Later merges do not bring back
        what is undone. With `expected_head`, nothing is undone unless the branch is at this commit.

        Raises:
            UnexpectedHead: The branch is not at `expected_head`. Look at it again.
            Conflict: Later changes have read or rewritten what the commit wrote. Undo those first.
            NothingToApply: The commit is reverted already, is not on the branch, or is the first one.
            RefNotFound: There is no such commit, branch or parent.
            InvalidRef: The ref is not written as one, or names a session.
            ProtectedBranch: The branch accepts only merges. Publish on another branch, and merge that.
            ContentGone: The content of a commit that it needs was garbage-collected. Merge newer branches, or do the
                work again in a session.
            Collected: What it would bring back is being garbage-collected. Do the work again in a session.
            Diverged: Another writer changed the checked-out log of a dataset. `lake adopt` merges the two.
            PublishTimeout: Other writers moved the branch first at every try. Nothing was published: try again.
        """
        from lake_core.lake.publish.merge import revert

        refs = self._repository.refs()
        return revert(self._repository, self._commit(commit, refs), branch, parent, message, expected_head)

    def preview_revert(self, commit: str, *, branch: str = "main", parent: int = 1) -> ChangePreview:
        """Return what `revert` would do now, and write nothing.

        Objects that were garbage-collected after a vacuum are only looked for by `revert`.

        Raises:
            Conflict: Later changes have read or rewritten what the commit wrote. Undo those first.
            NothingToApply: The commit is reverted already, is not on the branch, or is the first one.
            RefNotFound: There is no such commit, branch or parent.
            InvalidRef: The ref is not written as one, or names a session.
            ProtectedBranch: The branch accepts only merges. Publish on another branch, and merge that.
            ContentGone: The content of a commit that it needs was garbage-collected.
        """
        from lake_core.lake.publish.preview import preview_revert

        refs = self._repository.refs()
        return preview_revert(self._repository, self._commit(commit, refs), branch, parent)

    def cherry_pick(
        self,
        commit: str,
        *,
        onto: str,
        parent: int = 1,
        message: str | None = None,
        expected_head: str | None = None,
    ) -> Published:
        """Bring to a branch what came with a commit since its `parent`-th parent.

        A later merge brings the rest of the commit's branch. If the branch has all of the commit, also by way of a
        merge or a squash, there is nothing to apply, even if it was reverted there.

        Raises:
            Conflict: The branch has changed the same. Merge the commit's branch, or do the work again in a session.
            NothingToApply: The branch has the commit already, or it is the first one.
            RefNotFound: There is no such commit, branch or parent.
            InvalidRef: The ref is not written as one, or names a session.
            ProtectedBranch: The branch accepts only merges. Publish on another branch, and merge that.
            ContentGone: The content of a commit that it needs was garbage-collected. Merge newer branches, or do the
                work again in a session.
            Collected: What it would bring back is being garbage-collected. Do the work again in a session.
            Diverged: Another writer changed the checked-out log of a dataset. `lake adopt` merges the two.
            PublishTimeout: Other writers moved the branch first at every try. Nothing was published: try again.
        """
        from lake_core.lake.publish.merge import cherry_pick

        refs = self._repository.refs()
        return cherry_pick(self._repository, self._commit(commit, refs), onto, parent, message, expected_head)

    def preview_cherry_pick(self, commit: str, *, onto: str, parent: int = 1) -> ChangePreview:
        """Return what `cherry_pick` would do now, and write nothing.

        Objects that were garbage-collected after a vacuum are only looked for by `cherry_pick`.

        Raises:
            Conflict: The branch has changed the same. Merge the commit's branch, or do the work again in a session.
            NothingToApply: The branch has the commit already, or it is the first one.
            RefNotFound: There is no such commit, branch or parent.
            InvalidRef: The ref is not written as one, or names a session.
            ProtectedBranch: The branch accepts only merges. Publish on another branch, and merge that.
            ContentGone: The content of a commit that it needs was garbage-collected.
        """
        from lake_core.lake.publish.preview import preview_cherry_pick

        refs = self._repository.refs()
        return preview_cherry_pick(self._repository, self._commit(commit, refs), onto, parent)

    def has_reached(self, commit: str, ref: str = "main") -> bool:
        """Return whether what came with a commit has reached a ref, by parents, merges, squashes or cherry-picks.

        As for `cherry_pick`, that is what came since its first parent, and not what is before it. What was reverted
        there has reached it all the same. No content is read, and the commit's own may have been garbage-collected.

        Args:
            commit: The id of a commit, or any ref.
            ref: A branch, tag or commit.

        Raises:
            RefNotFound: The lake has no such commit, or no such ref.
            InvalidRef: One of them is a session, or no ref at all.
        """
        refs = self._repository.refs()
        links = CommitLinks(refs)
        id = commit if links.get(commit) is not None else self._commit(commit, refs).id
        return has_reached(links, self._commit(ref, refs).id, id)

    # Reading

    def at(self, ref: str = "main", *, on_read: Callable[[str, str], None] | None = None) -> StateStore:
        """Return a ref as a read-only store.

        A branch is read at its present commit, also after it has moved.

        `on_read` is called with each key, or prefix ending in "*", that is read, after the id of the commit, or of the
        commit that a session is based on. With `rely_on` of a session, what is read counts as read by that session.
        `ReadRecord.add` collects the reads for a session that begins later.

        Raises:
            RefNotFound: The lake has no such ref.
            InvalidRef: The ref is not written as one.
        """
        repository = self._repository
        revision = resolve(repository.refs(), repository.journal, ref)
        if isinstance(revision, SessionRecord):
            from lake_core.lake.session.shared_session import SharedSession

            return SharedSession(
                repository, revision, on_read=None if on_read is None else partial(on_read, revision.base)
            )
        return repository.commit_state(
            revision, ref, on_read=None if on_read is None else partial(on_read, revision.id)
        )

    def delta(self, path: str, *, ref: str = "main", **options: Any) -> DeltaTable:
        """Open a Delta table at a ref; `options` are those of `DeltaTable.open`.

        Raises:
            DatasetNotFound: The ref has no Delta table at this path. `list_datasets` lists what it has.
            RefNotFound: The lake has no such ref.
        """
        return self.at(ref).delta(path, **options)

    def icechunk(self, path: str, *, ref: str = "main", **options: Any) -> DatasetRepository:
        """Open an Icechunk repository at a ref; `options` are those of `Repository.open`.

        Raises:
            DatasetNotFound: The ref has no repository at this path. `list_datasets` lists what it has.
            RefNotFound: The lake has no such ref.
        """
        return self.at(ref).icechunk(path, **options)

    def pool(self, path: str, *, ref: str = "main") -> Pool:
        """Open a pool at a ref.

        Raises:
            DatasetNotFound: The ref has no pool at this path. `list_datasets` lists what it has.
            RefNotFound: The lake has no such ref.
        """
        return self.at(ref).pool(path)

    def list_datasets(self, ref: str = "main") -> list[DatasetRecord]:
        """List the datasets at a ref, by path.

        Raises:
            RefNotFound: The lake has no such ref.
        """
        return [record for _, record in sorted(self.at(ref).datasets().items())]

    def log(
        self,
        ref: str = "main",
        *,
        dataset: str | None = None,
        first_parent: bool = False,
        limit: int | None = None,
        since: datetime | None = None,
    ) -> list[Commit]:
        """List the commits of a ref, newest first: only those that changed `dataset`, and none from before `since`.

        Raises:
            RefNotFound: The lake has no such ref.
            InvalidRef: The ref is not written as one, or names a session.
        """
        refs = self._repository.refs()
        commits = log(refs, self._commit(ref, refs), first_parent=first_parent, dataset=dataset)
        if since is not None:
            commits = takewhile(lambda commit: commit.creation_date >= since, commits)
        return list(islice(commits, None if limit is None else max(limit, 0)))

    def diff(self, before: str, after: str, *, prefix: str = "") -> Iterator[ChangedKey]:
        """Yield the keys that differ between two refs, in order.

        Only the parts of the trees that differ are read.

        Raises:
            RefNotFound: The lake does not have one of the refs.
        """
        from lake_core.lake.publish.comparison import changed_keys

        return changed_keys(self.at(before), self.at(after), prefix)

    def compare(
        self, before: str, after: str, *, prefix: str = "", sample: int = 0, most_rows: int = MOST_ROWS
    ) -> Comparison:
        """Compare two refs: tables by their versions, rows and columns, plain files by key.

        Rows are counted exactly if the changed files of a table hold at most `most_rows`. The result shows up to
        `sample` of the rows that each table gained and lost.

        Raises:
            RefNotFound: The lake does not have one of the refs.
        """
        from lake_core.lake.publish.comparison import compare_states

        return compare_states(self.at(before), self.at(after), prefix=prefix, sample=sample, most_rows=most_rows)

    def status(self) -> Status:
        """Return a summary of the lake's state."""
        from lake_core.lake.publish.checkout import is_checked_out, pending_checkout

        refs = self._repository.refs()
        waiting = pending_checkout(refs, self._repository.format.branch)
        behind = [commit.id for commit in waiting if not is_checked_out(self._repository, commit)]
        return Status(
            self.url, refs.branches(), sum(record.state == OPEN for record in refs.sessions()), refs.number, behind
        )

    # Maintenance and settings

    @property
    def maintenance(self) -> LakeMaintenance:
        """Return the maintenance of the lake: checkout, garbage collection, verification, export, adoption."""
        from lake_core.lake.maintenance import LakeMaintenance

        return LakeMaintenance(self._repository)

    @property
    def settings(self) -> LakeSettings:
        """Return the settings of the whole lake: retention, isolation of sessions, protected branches."""
        return LakeSettings(self._repository)

    def _commit(self, ref: str, refs: RefsState) -> Commit:
        return resolve_commit(refs, self._repository.journal, ref)

    def __repr__(self) -> str:
        return f"Lake({self.url!r})"


def _committer() -> str:
    name = os.environ.get("LAKE_COMMITTER")
    if name:
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
