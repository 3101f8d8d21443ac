"""Garbage collection: objects that no branch or tag reaches are deleted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.ancestry import reachable
from lake_core.icechunk.collection_mark import CollectionMark, read_mark, write_mark
from lake_core.icechunk.errors import UnsupportedSpecVersion
from lake_core.icechunk.folders import CHUNKS, MANIFESTS, SNAPSHOTS, TRANSACTIONS
from lake_core.icechunk.identifier import OBJECT_ID_LENGTH, encode_ids
from lake_core.icechunk.listed_garbage import kept_tips, pruned_logs, release, trimmed_backups
from lake_core.icechunk.object_ids import ObjectIds, decode_names, id_keys
from lake_core.icechunk.read_limits import ReadLimits, batches
from lake_core.icechunk.repo_info import REPO_KEY
from lake_core.icechunk.snapshot import microseconds
from lake_core.runtime import monotonic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.repository_layout import RepositoryLayout
    from lake_core.store import ObjectStore

_LISTED = 10_000
"""How many listed objects are checked at once."""
_DELETED = 1_000
"""How many objects are deleted at once."""


@dataclass(frozen=True, slots=True)
class GCSummary:
    """The counts of objects and bytes that a collection deleted, or would delete."""

    bytes_deleted: int = 0
    chunks_deleted: int = 0
    manifests_deleted: int = 0
    snapshots_deleted: int = 0
    attributes_deleted: int = 0
    """Always 0: no writer has files of attributes."""
    transaction_logs_deleted: int = 0
    backups_deleted: int = 0
    """Copies of the state of a repository of version 2 that its operations log does not need."""


def collect(assets: AssetManager, before: datetime, *, dry_run: bool, limits: ReadLimits) -> GCSummary:
    """Delete the objects written before a time that no branch or tag reaches.

    Candidates are listed first and references are read afterwards, so that a commit in between is not missed.
    References are only read until all candidates are known to be reached, so that a collection without garbage is
    quick.

    Raises:
        DamagedObject: A ref, snapshot or manifest cannot be read. Nothing was deleted.
    """
    store, layout = assets.store, assets.layout
    if not dry_run:
        layout.check_writable()
    begin = monotonic()
    candidates = {
        folder: _Candidates.listed(store, folder, before) for folder in (SNAPSHOTS, TRANSACTIONS, MANIFESTS, CHUNKS)
    }
    mark = read_mark(store)
    snapshots: set[bytes] = set()
    manifests: dict[bytes, int] = {}
    logs: set[bytes] = set()
    tips: list[bytes] | None = None
    since: int | None = None
    # A ref that is created or moved in the meantime reaches other snapshots.
    while (latest := _tips(store, layout, before, logs)) != tips or not (
        dry_run or layout.spec_version == 1 or release(layout, snapshots, microseconds(before))
    ):
        tips = latest
        for snapshot in reachable(assets, tips, read_ahead=limits.snapshots):
            snapshots.add(snapshot.snapshot_id)
            manifests.update((manifest_id, info.size_bytes) for manifest_id, info in snapshot.manifest_files.items())
        since = mark.before if mark is not None and mark.snapshots <= snapshots else None
        if since is not None:
            # All older objects were reached by snapshots, all of which are still reached.
            for listed in candidates.values():
                listed.keep_older_than(since)
        candidates[SNAPSHOTS].keep(_id_array(snapshots))
        candidates[TRANSACTIONS].keep(_id_array(snapshots | logs))
        candidates[MANIFESTS].keep(_id_array(manifests))
        _keep_chunks(assets, candidates[CHUNKS], manifests, limits)
    backups = [] if layout.spec_version == 1 else trimmed_backups(store, layout.info(), before)
    if not dry_run:
        for listed in candidates.values():
            listed.delete(store)
        if backups:
            store.delete(backups)
        write_mark(
            store, CollectionMark(max(microseconds(before), since or 0), frozenset(snapshots)), monotonic() - begin
        )
    return GCSummary(
        bytes_deleted=sum(listed.garbage_bytes for listed in candidates.values()),
        chunks_deleted=candidates[CHUNKS].garbage_count,
        manifests_deleted=candidates[MANIFESTS].garbage_count,
        snapshots_deleted=candidates[SNAPSHOTS].garbage_count,
        transaction_logs_deleted=candidates[TRANSACTIONS].garbage_count,
        backups_deleted=len(backups),
    )


def _tips(store: ObjectStore, layout: RepositoryLayout, before: datetime, logs: set[bytes]) -> list[bytes]:
    """Return the snapshots whose histories are kept. Add the logs of expired snapshots that they name to `logs`.

    Raises UnsupportedSpecVersion if the repository was upgraded meanwhile, which deletes the refs of version 1.
    """
    if layout.spec_version == 1:
        tips = [tip.snapshot_id for tip in layout.list_refs()]
        if store.exists(REPO_KEY):
            raise UnsupportedSpecVersion(
                f"the repository at {store.url()} was upgraded to version 2 meanwhile: open it again. Nothing was "
                "deleted"
            )
        return tips
    info = layout.info()
    tips = kept_tips(info, microseconds(before))
    logs |= pruned_logs(info, tips)
    return tips


def _id_array(ids: Collection[bytes]) -> ObjectIds:
    return np.frombuffer(b"".join(ids), np.uint8).reshape(len(ids), OBJECT_ID_LENGTH)


def _keep_chunks(assets: AssetManager, chunks: _Candidates, manifests: Mapping[bytes, int], limits: ReadLimits) -> None:
    """Keep the chunks that manifests refer to. `manifests`: the size of each, those of the newest snapshots first."""
    for batch in batches(manifests, limits):
        if not chunks.garbage_count:
            return
        for manifest in assets.read_manifests(batch):
            for native in (array.native_chunks() for array in manifest.arrays()):
                chunks.keep(native.chunk_id)


class _Candidates:
    """The objects of one folder that are old enough to be deleted, and which of them are known to be reached."""

    def __init__(self, folder: str, ids: ObjectIds, sizes: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> None:
        keys = id_keys(ids)
        order = np.argsort(keys)
        self._folder = folder
        self._keys = keys[order]
        self._distinct = len(keys) < 2 or bool((self._keys[1:] != self._keys[:-1]).all())
        self._ids = ids[order]
        self._sizes = sizes[order]
        self._times = times[order]
        self._kept = np.zeros(len(ids), bool)

    @classmethod
    def listed(cls, store: ObjectStore, folder: str, before: datetime) -> _Candidates:
        """List a folder. Objects whose names are not ids are left out."""
        ids = [np.empty((0, OBJECT_ID_LENGTH), np.uint8)]
        sizes, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        listing = (meta for meta in store.list(folder) if meta.last_modified < before)
        while batch := list(islice(listing, _LISTED)):
            valid, batch_ids = decode_names([meta.key[len(folder) :] for meta in batch])
            ids.append(batch_ids)
            sizes.append(np.array([meta.size for meta in batch], np.int64)[valid])
            times.append(np.array([microseconds(meta.last_modified) for meta in batch], np.int64)[valid])
        return cls(folder, np.concatenate(ids), np.concatenate(sizes), np.concatenate(times))

    def keep(self, ids: ObjectIds) -> None:
        """Keep these objects.

        Only eight bytes of ids are compared, so an object that shares them with a reached one is kept, too.
        """
        if not len(self._keys) or not len(ids):
            return
        keys = np.unique(id_keys(ids))
        # Each candidate is looked up in the keys, or the other way round, whichever is less work.
        if len(keys) < len(self._keys) and self._distinct:
            positions = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            self._kept[positions[self._keys[positions] == keys]] = True
        else:
            positions = np.minimum(np.searchsorted(keys, self._keys), len(keys) - 1)
            self._kept |= keys[positions] == self._keys

    def keep_older_than(self, time: int) -> None:
        """Keep the objects that are older than a time: microseconds since the epoch."""
        self._kept |= self._times < time

    @property
    def garbage_count(self) -> int:
        """Return how many objects are not known to be reached."""
        return len(self._kept) - int(self._kept.sum())

    @property
    def garbage_bytes(self) -> int:
        """Return the bytes of these objects."""
        return int(self._sizes[~self._kept].sum())

    def delete(self, store: ObjectStore) -> None:
        """Delete the objects that are not known to be reached."""
        garbage = self._ids[~self._kept]
        for start in range(0, len(garbage), _DELETED):
            store.delete([self._folder + name for name in encode_ids(garbage[start : start + _DELETED])])
