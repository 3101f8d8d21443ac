"""What was read of a branch before the session began that relies on it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ReadRecord:
    """Keys, and prefixes ending in "*", that were read of commits. Safe to use from many threads.

    record = ReadRecord()
    rates = lake.at("main", on_read=record.add).delta("tables/rates").to_arrow()
    with lake.session(isolation="serializable") as s:
        for commit, reads in record.by_commit().items():
            s.rely_on(commit, *reads)
    """

    def __init__(self, reads: Mapping[str, Iterable[str]] | None = None) -> None:
        self._reads = {commit: set(read) for commit, read in (reads or {}).items()}
        self._lock = threading.Lock()

    def add(self, commit: str, what: str) -> None:
        """Record a read of a commit."""
        with self._lock:
            self._reads.setdefault(commit, set()).add(what)

    def by_commit(self) -> Mapping[str, frozenset[str]]:
        """Return what was read so far, by commit."""
        with self._lock:
            return {commit: frozenset(reads) for commit, reads in self._reads.items()}

    def move(self, reads: Mapping[str, frozenset[str]], commit: str) -> None:
        """Take these reads for reads of a commit.

        This is for the commit that a session which relied on them became: only that session has changed them.
        """
        with self._lock:
            for earlier, read in reads.items():
                self._reads[earlier] -= read
            self._reads = {earlier: read for earlier, read in self._reads.items() if read}
            self._reads.setdefault(commit, set()).update(*reads.values())
