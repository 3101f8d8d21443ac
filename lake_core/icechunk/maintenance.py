"""The maintenance of a repository: expiration, garbage collection, rewritten manifests, and storage statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from lake_core.icechunk.amending import amended_log
from lake_core.icechunk.asynchronous import asynchronous
from lake_core.icechunk.chunk_storage import ChunkStorageStats, chunk_storage_stats, native_chunk_bytes
from lake_core.icechunk.commit import Commit
from lake_core.icechunk.errors import ConflictError
from lake_core.icechunk.expiration import expire
from lake_core.icechunk.expiration_v2 import Expiration
from lake_core.icechunk.garbage_collection import GCSummary, collect
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.manifest_rewrite import METADATA_KEY, count_mergeable, splitting_document
from lake_core.icechunk.read_limits import ReadLimits
from lake_core.icechunk.refs import RefKind
from lake_core.icechunk.snapshot import check_zone, microseconds
from lake_core.icechunk.update import ExpirationRan, UpdateType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lake_core.clock import AwareClock
    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.config import RepositoryConfig
    from lake_core.icechunk.repo_info import RepoInfo
    from lake_core.store import ObjectStore


class RepositoryMaintenance:
    """The methods of a repository for its maintenance."""

    _store: ObjectStore
    _assets: AssetManager
    _config: RepositoryConfig
    _clock: AwareClock
    _default_metadata: dict[str, Any]
    _txn_retention: int | None

    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        dry_run: bool = False,
    ) -> set[str]:
        """Remove old snapshots from the history of every branch and tag.

        Their objects stay until `garbage_collect` deletes them.

        The oldest snapshot that is kept in a history gets the first snapshot of the repository as its parent. Its id
        stays. A branch or tag keeps its tip at any age, unless it is deleted. In version 2, all histories are cut by
        one update, and `diff` still tells all changes since the first snapshot.

        An open session on a snapshot that expires cannot be rebased any longer. A commit to a branch that is being
        deleted may be lost with it: do not delete expired branches that are still written to.

        In a state of a lake, nothing is rewritten: this only ends the lake's retention of older states.

        Args:
            older_than: Snapshots written before this time expire.
            delete_expired_branches: Whether to delete branches whose tip has expired. The branch main is never deleted.
            delete_expired_tags: Whether to delete tags that name an expired snapshot.
            dry_run: Whether only to return what would expire.

        Returns:
            The ids of the expired snapshots. Some may still be reached by another branch or tag.

        Raises:
            DamagedObject: A branch, tag or snapshot cannot be read. Nothing has expired.
            ConflictError: A branch that was to be deleted has moved. Histories that were cut before that stay
                cut.
        """
        time = check_zone("older_than", older_than)
        if self._store.versioned:
            if not dry_run:
                self._store.end_retention(time)
            return set()
        if self._assets.layout.spec_version > 1:
            expiration = Expiration(microseconds(time), delete_expired_branches, delete_expired_tags)
            return self._expire_listed(expiration, dry_run=dry_run)
        released = expire(
            self._assets,
            microseconds(time),
            delete_expired_branches=delete_expired_branches,
            delete_expired_tags=delete_expired_tags,
            dry_run=dry_run,
        )
        return {encode_id(snapshot_id) for snapshot_id in released}

    def _expire_listed(self, expiration: Expiration, *, dry_run: bool) -> set[str]:
        """Expire the snapshots of a repository of version 2. Return their ids."""
        layout = self._assets.layout
        if dry_run:
            return {encode_id(snapshot_id) for snapshot_id in expiration.released(layout.info())}
        released: set[bytes] = set()

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType]:
            released.clear()
            released.update(expiration.released(info))
            return expiration.apply(info), ExpirationRan()

        layout.update(change)
        return {encode_id(snapshot_id) for snapshot_id in released}

    def garbage_collect(
        self,
        delete_object_older_than: datetime,
        *,
        dry_run: bool = False,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * 2**20,
        max_concurrent_manifest_fetches: int = 500,
    ) -> GCSummary:
        """Delete the snapshots, transaction logs, manifests and chunks that no branch or tag reaches.

        A session has written chunks that nothing reaches until it is committed. **Choose a time before the start of
        every session that is still open**, or their chunks are lost: the repository does not record that they are in
        use.

        Objects whose names are not ids are ignored. The times are those of the objects, by the clock of the store. A
        mark of this collection (`last_collection.json`) makes the next one quick; it may be deleted at any time.

        In a state of a lake, nothing is deleted. This only ends the lake's retention of older states, and the lake
        collects garbage.

        Args:
            delete_object_older_than: Objects written at this time or later are kept.
            dry_run: Whether only to count what would be deleted.
            max_snapshots_in_memory: How many snapshots are read concurrently.
            max_compressed_manifest_mem_bytes: How many bytes of manifests, as they are stored, are read concurrently.
            max_concurrent_manifest_fetches: How many manifests are read concurrently.

        Raises:
            DamagedObject: A branch, tag, snapshot or manifest cannot be read, so it is unknown which objects are
                reached. Nothing was deleted.
            RepositoryReadOnly: The status of the repository is read-only.
        """
        time = check_zone("delete_object_older_than", delete_object_older_than)
        limits = ReadLimits(max_snapshots_in_memory, max_compressed_manifest_mem_bytes, max_concurrent_manifest_fetches)
        if self._store.versioned:
            if not dry_run:
                self._store.end_retention(time)
            return GCSummary()
        return collect(self._assets, time, dry_run=dry_run, limits=limits)

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: Mapping[str, Any] | None = None,
        commit_method: Literal["new_commit", "amend"] = "new_commit",
    ) -> str:
        """Rewrite the manifests of all arrays by the current splitting rules, and commit them.

        Arrays that grew by many small commits have many small manifests, which become one for each split. Chunks do not
        change.

        Args:
            message: Says what the commit is for.
            branch: The branch to commit to.
            metadata: Values that JSON can hold. The rules of splitting are added as `splitting_config`.
            commit_method: Whether the new snapshot follows the newest one, or, in version 2, takes its place.

        Returns:
            The id of the new snapshot.

        Raises:
            RefNotFound: There is no such branch.
            ConflictError: Another commit came first. The branch is as that commit left it; call this again.
            InvalidAmend, UnsupportedSpecVersion: The newest snapshot cannot be replaced.
        """
        notes = {**self._default_metadata, **(metadata or {}), METADATA_KEY: splitting_document(self._config.splitting)}
        tip = self._assets.layout.lookup(RefKind.BRANCH, branch)
        commit = Commit(self._assets, self._config, self._clock, message, notes, None, self._txn_retention)
        amends = commit_method == "amend"
        log = amended_log(self._assets, tip.snapshot_id) if amends else None
        snapshot = commit.rewrite(self._assets.snapshot(tip.snapshot_id), log)
        if not self._assets.layout.publish(tip, snapshot, amends=amends):
            actual = encode_id(self._assets.layout.lookup(RefKind.BRANCH, branch).snapshot_id)
            raise ConflictError(
                f"the branch {branch} moved while its manifests were rewritten, so nothing was changed: "
                "rewrite them again",
                expected_parent=encode_id(tip.snapshot_id),
                actual_parent=actual,
            )
        return encode_id(snapshot.snapshot_id)

    def mergeable_manifests(self, branch: str) -> int:
        """Return the number of manifests of a branch that `rewrite_manifests` would save.

        Only its newest snapshot is read.

        Raises:
            RefNotFound: There is no such branch.
            DamagedObject: The snapshot cannot be read.
        """
        snapshot = self._assets.snapshot(self._assets.layout.lookup(RefKind.BRANCH, branch).snapshot_id)
        return count_mergeable(snapshot, self._config.splitting)

    def total_chunks_storage(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * 2**20,
        max_concurrent_manifest_fetches: int = 500,
    ) -> int:
        """Return the bytes of all native chunks that branches and tags reach, each once.

        Inline and virtual chunks do not count.

        The arguments are those of `garbage_collect`. Raises DamagedObject where something cannot be read.
        """
        limits = ReadLimits(max_snapshots_in_memory, max_compressed_manifest_mem_bytes, max_concurrent_manifest_fetches)
        return native_chunk_bytes(self._assets, limits)

    def chunk_storage_stats(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 * 2**20,
        max_concurrent_manifest_fetches: int = 500,
    ) -> ChunkStorageStats:
        """Return the bytes of all chunks that branches and tags reach, by kind of storage.

        The arguments are those of `garbage_collect`. Raises DamagedObject where something cannot be read.
        """
        limits = ReadLimits(max_snapshots_in_memory, max_compressed_manifest_mem_bytes, max_concurrent_manifest_fetches)
        return chunk_storage_stats(self._assets, limits)

    expire_snapshots_async = asynchronous(expire_snapshots)
    garbage_collect_async = asynchronous(garbage_collect)
    rewrite_manifests_async = asynchronous(rewrite_manifests)
    total_chunks_storage_async = asynchronous(total_chunks_storage)
    chunk_storage_stats_async = asynchronous(chunk_storage_stats)
