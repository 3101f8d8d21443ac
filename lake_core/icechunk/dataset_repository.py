"""A repository that is a dataset of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lake_core.dataset import DatasetStore
from lake_core.icechunk.conflict_detector import ConflictDetector
from lake_core.icechunk.refs import MAIN, RefKind
from lake_core.icechunk.repository import Repository
from lake_core.icechunk.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lake_core.icechunk.commit import CommitResult
    from lake_core.icechunk.config import RepositoryConfig
    from lake_core.icechunk.manifest import ChunkIndex, ChunkReference, ChunkReferences, Extents
    from lake_core.icechunk.snapshot import ArrayNode
    from lake_core.icechunk.store import IcechunkStore
    from lake_core.icechunk.virtual import Access
    from lake_core.store import ObjectStore

_MESSAGE = "Written in a session of the lake"


class BufferedSession(Session):
    """The session of a repository in a session of a lake, which flushes it.

    Its own commits are provisional, and it stays writable.
    """

    def check_writable(self) -> None:
        """Raise where the lake's session has ended, or the dataset was dropped in it."""
        super().check_writable()
        self._dataset.check_buffer(self)

    @property
    def _dataset(self) -> DatasetStore:
        store = self.assets.store
        assert isinstance(store, DatasetStore)
        return store

    def flush(self, message: str = _MESSAGE, metadata: Mapping[str, Any] | None = None) -> str:
        """Commit the changes, if there are any, to the lake's session."""
        return (
            self.commit(message, metadata, rebase_with=ConflictDetector())
            if self.has_uncommitted_changes
            else self.snapshot_id
        )

    def refresh(self) -> None:
        """Continue from the current snapshot of the lake's session."""
        self._base_id = self.assets.layout.lookup(RefKind.BRANCH, MAIN).snapshot_id

    def reference(self, array: ArrayNode, index: ChunkIndex) -> ChunkReference | None:
        """Return where the bytes of a chunk are.

        A serializable session then requires that no other commit changes the repository.
        """
        self._dataset.note_scan()
        return super().reference(array, index)

    def references(self, array: ArrayNode, extents: Extents | None = None) -> ChunkReferences:
        """Return where the bytes of chunks are.

        A serializable session then requires that no other commit changes the repository.
        """
        self._dataset.note_scan()
        return super().references(array, extents)

    def _finish(self, snapshot_id: bytes, result: CommitResult) -> CommitResult:
        super()._finish(snapshot_id, result)
        self._read_only = False
        return result


class OwnSession(Session):
    """A session of a repository that is opened by itself in a session of the lake, such as one that moves nodes.

    What it commits is shown by the session that all handles share.
    """

    shared: Callable[[], Session]
    """Returns the session that all handles share."""

    def _finish(self, snapshot_id: bytes, result: CommitResult) -> CommitResult:
        super()._finish(snapshot_id, result)
        shared = self.shared()
        if isinstance(shared, BufferedSession) and not shared.has_uncommitted_changes:
            shared.refresh()
        return result


class DatasetRepository(Repository):
    """A repository in a lake.

    In a session of the lake, `store` is writable, and publishing the session commits its writes with all others of the
    session. Elsewhere it is read-only. Branches and tags are the lake's: the repository has only the branch main.
    """

    def __init__(self, store: ObjectStore, *args: Any, **options: Any) -> None:
        super().__init__(store, *args, **options)
        self._reader: Session | None = None

    def reopen(
        self, config: RepositoryConfig | None = None, authorize_virtual_chunk_access: Mapping[str, Access] | None = None
    ) -> Self:
        """Return another handle on the repository, as `Repository.reopen` does."""
        other = super().reopen(config, authorize_virtual_chunk_access)
        other._reader = None
        return other

    @property
    def store(self) -> IcechunkStore:
        """Return the arrays and groups as a store of Zarr."""
        return self.session.store

    @property
    def session(self) -> Session:
        """Return the session that `store` shows. All handles on the repository in one session of the lake share it."""
        dataset = self.storage
        if isinstance(dataset, DatasetStore) and dataset.provisional:
            return dataset.write_buffer(lambda: self._buffered(dataset))
        if self._reader is None:
            self._reader = self.readonly_session(MAIN)
        return self._reader

    def writable_session(self, branch: str) -> Session:
        """Open a session on the tip of a branch, as `Repository.writable_session` does.

        In a session of the lake, it continues from what that has written so far.
        """
        tip = self._writable_tip(branch)
        if not (isinstance(self.storage, DatasetStore) and self.storage.provisional):
            return self._session(tip, branch, Session)
        shared = self.session
        if isinstance(shared, BufferedSession):
            shared.flush()
        own = self._session(self._writable_tip(branch), branch, OwnSession)
        own.shared = lambda: self.session
        return own

    def _buffered(self, dataset: DatasetStore) -> BufferedSession:
        return self._session(self._assets.layout.lookup(RefKind.BRANCH, MAIN).snapshot_id, MAIN, BufferedSession)
