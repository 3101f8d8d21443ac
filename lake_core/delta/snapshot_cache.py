"""Snapshots of the tables of a lake that later ones are built on. A log that goes on is only read from there."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.delta.commit_range import log_etag
from lake_core.delta.snapshot import Snapshot, load_snapshot

if TYPE_CHECKING:
    from lake_core.store import ObjectStore

_OF_A_TABLE = 16
"""The most snapshots of one table: those of its branches and sessions."""
_MOST = 12_288
"""The most snapshots together with the runs of commits that they hold, of some 20 kB each. They share most of them."""


class SnapshotCache:
    """The latest snapshots of tables, by the URL of the table, its version, and the ETag of that version's commit.

    Two logs whose commits of one version have the same ETag are equal up to that version. Those that were used longest
    ago make room for others. Safe for several threads.
    """

    def __init__(self) -> None:
        self._snapshots: OrderedDict[tuple[str, int, str], Snapshot] = OrderedDict()
        self._tables: dict[str, dict[tuple[int, str], None]] = {}
        """The versions of each table, oldest first."""
        self._runs: Counter[int] = Counter()
        """In how many snapshots each run is, by its identity."""
        self._lock = threading.Lock()

    def load(self, store: ObjectStore) -> Snapshot:
        """Return the snapshot of a state, built on the latest one that its log continues.

        Raises what `load_snapshot` raises.
        """
        url = store.url()
        with self._lock:
            kept = set(self._tables.get(url, ()))
        for version in sorted({version for version, _ in kept}, reverse=True):
            tag = log_etag(store, version)
            if tag is None or (version, tag) not in kept:
                continue
            with self._lock:
                continued = self._snapshots.get((url, version, tag))
                if continued is not None:
                    self._snapshots.move_to_end((url, version, tag))
            if continued is not None:
                snapshot = replace(continued, store=store).refreshed()
                return snapshot if snapshot.version == version else self.keep(snapshot)
        return self.keep(load_snapshot(store))

    def keep(self, snapshot: Snapshot) -> Snapshot:
        """Keep a snapshot of a state for later ones, and return it."""
        tag = log_etag(snapshot.store, snapshot.version)
        if tag is None:
            return snapshot
        url = snapshot.store.url()
        with self._lock:
            self._drop(url, snapshot.version, tag)
            # Not with the store of its state: that of a session holds all that the session has written.
            self._snapshots[url, snapshot.version, tag] = replace(snapshot, store=snapshot.data_root)
            self._runs.update(map(id, snapshot.runs))
            versions = self._tables.setdefault(url, {})
            versions[snapshot.version, tag] = None
            if len(versions) > _OF_A_TABLE:
                self._drop(url, *next(iter(versions)))
            while len(self._snapshots) + len(self._runs) > _MOST and len(self._snapshots) > 1:
                self._drop(*next(iter(self._snapshots)))
        return snapshot

    def _drop(self, url: str, version: int, tag: str) -> None:
        dropped = self._snapshots.pop((url, version, tag), None)
        if dropped is None:
            return
        for run in map(id, dropped.runs):
            self._runs[run] -= 1
            if not self._runs[run]:
                del self._runs[run]
        versions = self._tables[url]
        del versions[version, tag]
        if not versions:
            del self._tables[url]
