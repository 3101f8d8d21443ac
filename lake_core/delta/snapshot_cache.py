"""Snapshots of the tables of a lake that later ones are built on. A log that goes on is only read from there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.delta.commit_range import log_etag
from lake_core.delta.snapshot import Snapshot, load_snapshot

if TYPE_CHECKING:
    from lake_core.store import ObjectStore

_OF_A_TABLE = 16
"""The most snapshots of one table: those of its branches and sessions."""
_MOST_RUNS = 4096
"""The most runs of commits that the snapshots hold in memory, where each is counted in each snapshot."""


class SnapshotCache:
    """The latest snapshots of tables, by the URL of the table, its version, and the ETag of that version's commit.

    Two logs whose commits of one version have the same ETag are equal up to that version. Safe for several threads.
    """

    def __init__(self) -> None:
        self._tables: OrderedDict[str, OrderedDict[tuple[int, str], Snapshot]] = OrderedDict()
        self._runs = 0
        self._lock = threading.Lock()

    def load(self, store: ObjectStore) -> Snapshot:
        """Return the snapshot of a state, built on the latest one that its log continues.

        Raises what `load_snapshot` raises.
        """
        with self._lock:
            kept: dict[tuple[int, str], Snapshot] = {**self._tables.get(store.url(), {})}
        for version in sorted({version for version, _ in kept}, reverse=True):
            tag = log_etag(store, version)
            continued = None if tag is None else kept.get((version, tag))
            if continued is not None:
                snapshot = replace(continued, store=store).refreshed()
                return snapshot if snapshot.version == version else self.keep(snapshot)
        return self.keep(load_snapshot(store))

    def keep(self, snapshot: Snapshot) -> Snapshot:
        """Keep a snapshot of a state for later ones, and return it."""
        tag = log_etag(snapshot.store, snapshot.version)
        if tag is None:
            return snapshot
        url, key = snapshot.store.url(), (snapshot.version, tag)
        # Not with the store of its state: that of a session holds all that the session has written.
        kept = replace(snapshot, store=snapshot.data_root)
        with self._lock:
            table = self._tables.setdefault(url, OrderedDict())
            self._tables.move_to_end(url)
            earlier = table.pop(key, None)
            table[key] = kept
            self._runs += _runs(snapshot) - (_runs(earlier) if earlier is not None else 0)
            while len(table) > _OF_A_TABLE:
                self._drop_oldest(table)
            while self._runs > _MOST_RUNS and (len(self._tables) > 1 or len(table) > 1):
                url = next(iter(self._tables))
                self._drop_oldest(self._tables[url])
                if not self._tables[url]:
                    del self._tables[url]
        return snapshot

    def _drop_oldest(self, table: OrderedDict[tuple[int, str], Snapshot]) -> None:
        _, dropped = table.popitem(last=False)
        self._runs -= _runs(dropped)


def _runs(snapshot: Snapshot) -> int:
    return 1 + snapshot.replayed
