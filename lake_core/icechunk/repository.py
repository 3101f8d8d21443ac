"""Repositories: branches, tags and history of a Zarr hierarchy in an object store."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from copy import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lake_core.clock import Clock, aware
from lake_core.errors import AlreadyExists, PreconditionFailed
from lake_core.icechunk import refs
from lake_core.icechunk.ancestry import ancestry
from lake_core.icechunk.asset_manager import SNAPSHOTS, AssetManager
from lake_core.icechunk.asynchronous import asynchronous
from lake_core.icechunk.config import RepositoryConfig
from lake_core.icechunk.config_file import CONFIG_KEY, encode_config
from lake_core.icechunk.diff import Diff, diff
from lake_core.icechunk.errors import (
    ConfigConflict,
    RefAlreadyExists,
    RepositoryAlreadyExists,
    SnapshotNotFound,
)
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.icechunk.maintenance import RepositoryMaintenance
from lake_core.icechunk.refs import MAIN, RefKind
from lake_core.icechunk.repository_layout import SPEC_V2_KEY, check_branch, check_spec_version, read_config
from lake_core.icechunk.repository_refs import RepositoryRefs
from lake_core.icechunk.session import Session
from lake_core.icechunk.snapshot import (
    SnapshotInfo,
    check_zone,
    initial_snapshot,
    microseconds,
    snapshot_document,
    snapshot_info,
)
from lake_core.icechunk.snapshot_file import encode_snapshot
from lake_core.icechunk.virtual import Access, VirtualChunks
from lake_core.store import ObjectStore, store_at

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterator, Mapping

    from lake_core.icechunk.conflict_solver import ConflictSolver

SessionT = TypeVar("SessionT", bound=Session)


class Repository(RepositoryRefs, RepositoryMaintenance):
    """A repository.

    `create`, `open` and `open_or_create` return one; all of them take a URL, a path or an `ObjectStore`.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: RepositoryConfig,
        *,
        config_etag: str | None,
        authorize_virtual_chunk_access: Mapping[str, Access] | None = None,
        clock: Clock | None = None,
        txn_retention: timedelta | None = None,
    ) -> None:
        config.check()
        self._store = store
        self._config = config
        self._config_etag = config_etag
        self._authorized = dict(authorize_virtual_chunk_access or {})
        self._clock = aware(clock)
        self._txn_retention = None if txn_retention is None else txn_retention // timedelta(microseconds=1)
        self._assets = AssetManager(store, compression_level=config.compression_level)
        self._default_metadata: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Repository at {self._store.url()}>"

    # Opening

    @classmethod
    def create(
        cls,
        location: str | os.PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, object] | None = None,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, Access] | None = None,
        exist_ok: bool = False,
        clock: Clock | None = None,
        txn_retention: timedelta | None = None,
    ) -> Self:
        """Create a repository in an empty folder.

        Args:
            location: A URL or path, or an object store.
            storage_options: What fsspec needs to reach a URL.
            config: The configuration. Values that differ from the defaults are stored in the repository.
            authorize_virtual_chunk_access: How virtual chunks are reached, by the URL prefix of their container.
            exist_ok: Whether to open a repository that exists.
            clock: Returns the time, for tests.
            txn_retention: How long the transaction identifiers of `commit(txn=…)` count. By default, they count
                forever.

        Raises:
            RepositoryAlreadyExists: The folder holds a repository, or other objects.
        """
        store = store_at(location, storage_options)
        config = config or RepositoryConfig()
        config.check()
        leftovers = {SNAPSHOTS + encode_id(INITIAL_SNAPSHOT), CONFIG_KEY}
        # What an interrupted creation left does not matter, because it has no branch.
        obstacle = (
            None if cls.exists(store) else next((meta.key for meta in store.list() if meta.key not in leftovers), None)
        )
        # Checked after the listing: the listed objects may be of a repository that another process has just created.
        if cls.exists(store):
            if exist_ok:
                return cls.open(
                    store,
                    config=config,
                    authorize_virtual_chunk_access=authorize_virtual_chunk_access,
                    clock=clock,
                    txn_retention=txn_retention,
                )
            raise RepositoryAlreadyExists(
                f"a repository exists at {store.url()}: open it (Repository.open), or create it with exist_ok=True"
            )
        if obstacle is not None:
            raise RepositoryAlreadyExists(
                f"{store.url()} holds other objects, such as {obstacle!r}: create the repository in an empty folder"
            )
        try:
            snapshot = initial_snapshot(microseconds(aware(clock)()))
            store.put(
                SNAPSHOTS + encode_id(INITIAL_SNAPSHOT),
                encode_snapshot(snapshot, config.compression_level),
                if_absent=True,
            )
        except AlreadyExists:
            pass
        etag = None
        if config != RepositoryConfig():
            etag = store.put(CONFIG_KEY, encode_config(config)).etag
        try:
            refs.create(store, RefKind.BRANCH, MAIN, INITIAL_SNAPSHOT)
        except RefAlreadyExists:
            if not exist_ok:
                raise RepositoryAlreadyExists(
                    f"a repository was created at {store.url()} at the same time: open it (Repository.open)"
                ) from None
        return cls(
            store,
            config,
            config_etag=etag,
            authorize_virtual_chunk_access=authorize_virtual_chunk_access,
            clock=clock,
            txn_retention=txn_retention,
        )

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, object] | None = None,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, Access] | None = None,
        clock: Clock | None = None,
        txn_retention: timedelta | None = None,
    ) -> Self:
        """Open a repository.

        Args:
            location: A URL or path, or an object store.
            storage_options: What fsspec needs to reach a URL.
            config: Values that replace the stored ones for this handle, except for those that are None.
            authorize_virtual_chunk_access: How virtual chunks are reached, by the URL prefix of their container:
                fsspec's storage options, a store whose keys follow the prefix, or None for neither. Other containers
                are not read.
            clock: Returns the time, for tests.
            txn_retention: How long the transaction identifiers of `commit(txn=…)` count. By default, they count
                forever.

        Raises:
            RepositoryNotFound: There is no repository.
            UnsupportedSpecVersion: The repository is of version 2 of the specification.
            DamagedObject: The branch main, or the configuration, cannot be read.
        """
        store = store_at(location, storage_options)
        check_spec_version(store)
        check_branch(store)
        stored, etag = read_config(store)
        return cls(
            store,
            stored if config is None else stored.merge(config),
            config_etag=etag,
            authorize_virtual_chunk_access=authorize_virtual_chunk_access,
            clock=clock,
            txn_retention=txn_retention,
        )

    @classmethod
    def open_or_create(cls, location: str | os.PathLike[str] | ObjectStore, **options: Any) -> Self:
        """Open a repository, or create it if there is none. Takes the arguments of `create`."""
        return cls.create(location, **{**options, "exist_ok": True})

    @staticmethod
    def exists(
        location: str | os.PathLike[str] | ObjectStore, *, storage_options: Mapping[str, object] | None = None
    ) -> bool:
        """Return whether the location holds a repository."""
        store = store_at(location, storage_options)
        return store.exists(refs.ref_key(RefKind.BRANCH, MAIN)) or store.exists(SPEC_V2_KEY)

    def reopen(
        self, config: RepositoryConfig | None = None, authorize_virtual_chunk_access: Mapping[str, Access] | None = None
    ) -> Self:
        """Return another handle on the repository.

        Args:
            config: Values that replace those of this handle, except for those that are None.
            authorize_virtual_chunk_access: As for `open`; by default that of this handle.

        Raises:
            InvalidConfig: A value is not valid.
        """
        other = copy(self)
        if config is not None:
            other._config = self._config.merge(config)
            other._config.check()
            if other._config.compression_level != self._config.compression_level:
                other._assets = AssetManager(self._store, compression_level=other._config.compression_level)
        if authorize_virtual_chunk_access is not None:
            other._authorized = dict(authorize_virtual_chunk_access)
        return other

    @classmethod
    async def create_async(cls, location: str | os.PathLike[str] | ObjectStore, **options: Any) -> Self:
        """Call `create` in a thread."""
        return await asyncio.to_thread(cls.create, location, **options)

    @classmethod
    async def open_async(cls, location: str | os.PathLike[str] | ObjectStore, **options: Any) -> Self:
        """Call `open` in a thread."""
        return await asyncio.to_thread(cls.open, location, **options)

    @classmethod
    async def open_or_create_async(cls, location: str | os.PathLike[str] | ObjectStore, **options: Any) -> Self:
        """Call `open_or_create` in a thread."""
        return await asyncio.to_thread(cls.open_or_create, location, **options)

    @classmethod
    async def exists_async(cls, location: str | os.PathLike[str] | ObjectStore, **options: Any) -> bool:
        """Call `exists` in a thread."""
        return await asyncio.to_thread(cls.exists, location, **options)

    @classmethod
    async def fetch_config_async(
        cls, location: str | os.PathLike[str] | ObjectStore, **options: Any
    ) -> RepositoryConfig | None:
        """Call `fetch_config` in a thread."""
        return await asyncio.to_thread(cls.fetch_config, location, **options)

    @staticmethod
    def fetch_config(
        location: str | os.PathLike[str] | ObjectStore, *, storage_options: Mapping[str, object] | None = None
    ) -> RepositoryConfig | None:
        """Return the stored configuration of a repository, or None if it has the default one."""
        config, etag = read_config(store_at(location, storage_options))
        return config if etag is not None else None

    @property
    def storage(self) -> ObjectStore:
        """Return the store that holds the repository."""
        return self._store

    @property
    def assets(self) -> AssetManager:
        """Return the files of the repository."""
        return self._assets

    # Configuration

    @property
    def config(self) -> RepositoryConfig:
        """Return the configuration."""
        return self._config

    def save_config(self) -> None:
        """Store the configuration in the repository.

        Raises:
            ConfigConflict: Another process saved one since this one was read.
        """
        data = encode_config(self._config)
        try:
            if self._config_etag is None:
                meta = self._store.put(CONFIG_KEY, data, if_absent=True)
            else:
                meta = self._store.put(CONFIG_KEY, data, if_match=self._config_etag)
        except (AlreadyExists, PreconditionFailed):
            raise ConfigConflict(
                "another process saved the configuration since it was read: "
                "open the repository again, and repeat the change"
            ) from None
        self._config_etag = meta.etag

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        """Return the URL prefixes of the virtual chunk containers that may be read."""
        return set(self._authorized)

    @property
    def default_commit_metadata(self) -> dict[str, Any]:
        """Return the metadata that every commit of this handle has."""
        return dict(self._default_metadata)

    def set_default_commit_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set the metadata that every commit of this handle has."""
        self._default_metadata = dict(metadata)

    # Sessions

    def writable_session(self, branch: str) -> Session:
        """Open a session on the tip of a branch.

        Raises:
            RefNotFound: There is no such branch. `list_branches` lists them.
            DamagedObject: The branch cannot be read.
            UnsupportedSpecVersion: Another client has upgraded the repository to version 2 of the specification.
        """
        return self._session(refs.lookup(self._store, RefKind.BRANCH, branch).snapshot_id, branch, Session)

    def readonly_session(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
    ) -> Session:
        """Open a read-only session on a branch, a tag or a snapshot.

        Args:
            branch: A branch.
            tag: A tag.
            snapshot_id: A snapshot.
            as_of: With a branch, a time: the session reads the tip of the branch at that time.

        Raises:
            RefNotFound: There is no such branch or tag.
            SnapshotNotFound: There is no such snapshot, or the branch has none at `as_of`.
        """
        if as_of is not None:
            if branch is None or tag is not None or snapshot_id is not None:
                raise ValueError("as_of needs a branch: pass a branch, and leave out tag and snapshot_id")
            return self._session(self._as_of(branch, as_of), None, Session)
        return self._session(self._resolve(branch=branch, tag=tag, snapshot_id=snapshot_id), None, Session)

    def _as_of(self, branch: str, time: datetime) -> bytes:
        check_zone("as_of", time)
        for snapshot in ancestry(self._assets, refs.lookup(self._store, RefKind.BRANCH, branch).snapshot_id):
            if snapshot.written_at <= time:
                return snapshot.snapshot_id
        raise SnapshotNotFound(
            f"the branch {branch} has no snapshot as old as {time}: call ancestry() for its snapshots"
        )

    def _session(self, snapshot_id: bytes, branch: str | None, kind: type[SessionT]) -> SessionT:
        check_spec_version(self._store)
        containers = VirtualChunks(dict(self._config.virtual_chunk_containers or {}), self._authorized)
        return kind(
            self._assets,
            self._config,
            containers,
            snapshot_id,
            branch,
            clock=self._clock,
            default_metadata=self._default_metadata,
            txn_retention=self._txn_retention,
        )

    @contextmanager
    def transaction(
        self,
        branch: str,
        *,
        message: str,
        metadata: Mapping[str, Any] | None = None,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1_000,
    ) -> Iterator[Any]:
        """Open a store on a branch for the block, and commit the writes of the block.

        Nothing is committed if the block fails.
        """
        session = self.writable_session(branch)
        yield session.store
        session.commit(message, metadata, rebase_with=rebase_with, rebase_tries=rebase_tries)

    # History

    def _resolve(self, *, branch: str | None, tag: str | None, snapshot_id: str | None) -> bytes:
        if sum(name is not None for name in (branch, tag, snapshot_id)) != 1:
            raise ValueError("pass exactly one of branch, tag and snapshot_id")
        if branch is not None:
            return refs.lookup(self._store, RefKind.BRANCH, branch).snapshot_id
        if tag is not None:
            return refs.lookup(self._store, RefKind.TAG, tag).snapshot_id
        assert snapshot_id is not None
        return self._existing(snapshot_id)

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> Iterator[SnapshotInfo]:
        """Yield the history of a branch, a tag or a snapshot, newest first.

        Raises:
            RefNotFound, SnapshotNotFound: There is no such branch, tag or snapshot.
            DamagedObject: A snapshot is gone, cannot be read, or is its own ancestor.
        """
        return (
            snapshot_info(snapshot)
            for snapshot in ancestry(self._assets, self._resolve(branch=branch, tag=tag, snapshot_id=snapshot_id))
        )

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return the entry of one snapshot in the history.

        Raises:
            SnapshotNotFound: The repository has no such snapshot. `ancestry` lists those of a branch.
        """
        return snapshot_info(self._assets.read_snapshot(self._existing(snapshot_id)))

    def inspect_snapshot(self, snapshot_id: str, *, pretty: bool = True) -> str:
        """Return the contents of a snapshot as JSON: its nodes, and the manifests of each array.

        Raises:
            SnapshotNotFound: The repository has no such snapshot. `ancestry` lists those of a branch.
        """
        document = snapshot_document(self._assets.read_snapshot(self._existing(snapshot_id)))
        return json.dumps(document, indent=2 if pretty else None)

    async def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> AsyncIterator[SnapshotInfo]:
        """Yield the history as `ancestry` does, reading each snapshot in a thread."""
        snapshots = self.ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id)
        while (snapshot := await asyncio.to_thread(next, snapshots, None)) is not None:
            yield snapshot

    def diff(
        self,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
    ) -> Diff:
        """Return the changes from one snapshot to a later one in the same history.

        Raises:
            NotInAncestry: The first snapshot is not in the history of the second. Swap them, or compare others.
            RefNotFound: There is no such branch or tag.
            SnapshotNotFound: The repository has no such snapshot. `ancestry` lists those of a branch.
            DamagedObject: A snapshot or a log of its changes cannot be read.
            ValueError: A side is not exactly one of a branch, a tag and a snapshot.
        """
        first = self._resolve(branch=from_branch, tag=from_tag, snapshot_id=from_snapshot_id)
        last = self._resolve(branch=to_branch, tag=to_tag, snapshot_id=to_snapshot_id)
        return diff(self._assets, first, last)

    reopen_async = asynchronous(reopen)
    save_config_async = asynchronous(save_config)
    writable_session_async = asynchronous(writable_session)
    readonly_session_async = asynchronous(readonly_session)
    lookup_snapshot_async = asynchronous(lookup_snapshot)
    inspect_snapshot_async = asynchronous(inspect_snapshot)
    diff_async = asynchronous(diff)
