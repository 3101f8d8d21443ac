"""Repositories: branches, tags and history of a Zarr hierarchy in an object store."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from copy import copy
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lake_core.clock import Clock, aware
from lake_core.icechunk.ancestry import ancestry, parent_of
from lake_core.icechunk.asset_manager import AssetManager
from lake_core.icechunk.asynchronous import asynchronous
from lake_core.icechunk.config import RepositoryConfig
from lake_core.icechunk.creation import create_objects, exists_to_open
from lake_core.icechunk.diff import Diff, diff
from lake_core.icechunk.errors import SnapshotNotFound
from lake_core.icechunk.feature_flags import MOVE_NODE, check_enabled
from lake_core.icechunk.layouts import checked_config, layout_of, spec_version_at
from lake_core.icechunk.maintenance import RepositoryMaintenance
from lake_core.icechunk.refs import RefKind
from lake_core.icechunk.repository_refs import RepositoryRefs
from lake_core.icechunk.repository_state import RepositoryState, snapshot_info
from lake_core.icechunk.session import Session
from lake_core.icechunk.snapshot import (
    ManifestFileInfo,
    SnapshotInfo,
    check_zone,
    microseconds,
    snapshot_document,
)
from lake_core.icechunk.virtual import Access, VirtualChunks
from lake_core.store import ObjectStore, store_at

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterator, Mapping

    from lake_core.icechunk.conflict_solver import ConflictSolver


class SpecVersion(IntEnum):
    """A version of the specification."""

    v1 = 1
    v2 = 2

    @staticmethod
    def current() -> SpecVersion:
        """Return the newest version."""
        return SpecVersion.v2


SessionT = TypeVar("SessionT", bound=Session)


class Repository(RepositoryRefs, RepositoryState, RepositoryMaintenance):
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
        self._assets = AssetManager(store, compression_level=config.compression_level, clock=self._clock)
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
        spec_version: SpecVersion | int | None = None,
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
            spec_version: The version of the specification that it follows: 1, the default, or 2, which icechunk before
                2.0 cannot read.

        Raises:
            RepositoryAlreadyExists: The folder holds a repository, or other objects.
            UnsupportedSpecVersion: There is no such version.
        """
        store = store_at(location, storage_options)
        config = config or RepositoryConfig()
        config.check()
        if exists_to_open(store, exist_ok=exist_ok):
            return cls.open(
                store,
                config=config,
                authorize_virtual_chunk_access=authorize_virtual_chunk_access,
                clock=clock,
                txn_retention=txn_retention,
            )
        now = microseconds(aware(clock)())
        etag = create_objects(store, config, spec_version or SpecVersion.v1, now, exist_ok=exist_ok)
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
            UnsupportedSpecVersion: The repository follows a version of the specification after 2.
            DamagedObject: The branch main, or the configuration, cannot be read.
        """
        store = store_at(location, storage_options)
        saved, etag = checked_config(store)
        stored = RepositoryConfig() if saved is None else saved
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
        """Open a repository, or create it if there is none. Takes the arguments of `create`.

        `create_version` is another name of `spec_version`, as icechunk has it.
        """
        version = options.pop("create_version", None)
        return cls.create(location, **{"spec_version": version, **options, "exist_ok": True})

    @staticmethod
    def exists(
        location: str | os.PathLike[str] | ObjectStore, *, storage_options: Mapping[str, object] | None = None
    ) -> bool:
        """Return whether the location holds a repository."""
        return spec_version_at(store_at(location, storage_options)) is not None

    @staticmethod
    def fetch_spec_version(
        location: str | os.PathLike[str] | ObjectStore, *, storage_options: Mapping[str, object] | None = None
    ) -> SpecVersion | None:
        """Return the version of the specification that a repository follows, or None if there is no repository."""
        version = spec_version_at(store_at(location, storage_options))
        return None if version is None else SpecVersion(version)

    @property
    def spec_version(self) -> SpecVersion:
        """Return the version of the specification that the repository follows: 1 or 2."""
        return SpecVersion(self._assets.layout.spec_version)

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
                level = other._config.compression_level
                other._assets = AssetManager(self._store, compression_level=level, clock=self._clock)
        if authorize_virtual_chunk_access is not None:
            other._authorized = dict(authorize_virtual_chunk_access)
        return other

    def upgraded(self, before: str | None, after: str | None) -> Self:
        """Return a handle on the repository after its upgrade, which gave the saved configuration another tag."""
        other = self.reopen()
        if other._config_etag == before:  # else another process saved one that this handle has not read
            other._config_etag = after
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
        return layout_of(store_at(location, storage_options)).read_config()[0]

    @property
    def storage(self) -> ObjectStore:
        """Return the store that holds the repository."""
        return self._store

    @property
    def assets(self) -> AssetManager:
        """Return the files of the repository."""
        return self._assets

    def now(self) -> datetime:
        """Return the time, by the clock of this handle."""
        return self._clock()

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
        self._config_etag = self._assets.layout.save_config(self._config, self._config_etag)

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
            RepositoryReadOnly: The status of the repository is read-only.
        """
        return self._session(self._writable_tip(branch), branch, Session)

    def rearrange_session(self, branch: str) -> Session:
        """Open a session on the tip of a branch that moves nodes: `session.move(from_path, to_path)`.

        Raises:
            UnsupportedSpecVersion: The repository is of version 1.
            FeatureDisabled: The repository does not allow moves.
            RefNotFound, RepositoryReadOnly: As `writable_session` raises them.
        """
        check_enabled(self._assets.layout.info(), MOVE_NODE)
        session = self.writable_session(branch)
        session._rearranges = True
        return session

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
        for snapshot in ancestry(self._assets, self._assets.layout.lookup(RefKind.BRANCH, branch).snapshot_id):
            if snapshot.written_at <= time:
                return snapshot.snapshot_id
        raise SnapshotNotFound(
            f"the branch {branch} has no snapshot as old as {time}: call ancestry() for its snapshots"
        )

    def _session(self, snapshot_id: bytes, branch: str | None, kind: type[SessionT]) -> SessionT:
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
            return self._assets.layout.lookup(RefKind.BRANCH, branch).snapshot_id
        if tag is not None:
            return self._assets.layout.lookup(RefKind.TAG, tag).snapshot_id
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
        return snapshot_info(next(ancestry(self._assets, self._existing(snapshot_id))))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """Return the manifests of a snapshot. Raises SnapshotNotFound."""
        return list(self._assets.snapshot(self._existing(snapshot_id)).manifest_files.values())

    def inspect_snapshot(self, snapshot_id: str, *, pretty: bool = True) -> str:
        """Return the contents of a snapshot as JSON: its nodes, and the manifests of each array.

        Raises:
            SnapshotNotFound: The repository has no such snapshot. `ancestry` lists those of a branch.
        """
        identifier = self._existing(snapshot_id)
        document = snapshot_document(self._assets.read_snapshot(identifier), parent_of(self._assets, identifier))
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
    rearrange_session_async = asynchronous(rearrange_session)
    readonly_session_async = asynchronous(readonly_session)
    lookup_snapshot_async = asynchronous(lookup_snapshot)
    inspect_snapshot_async = asynchronous(inspect_snapshot)
    diff_async = asynchronous(diff)
    list_manifest_files_async = asynchronous(list_manifest_files)
