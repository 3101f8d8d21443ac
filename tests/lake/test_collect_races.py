"""Garbage collection beside what happens at one exact moment of it: between its marks, its lists and its deletions."""

from __future__ import annotations

import threading
from typing import Any

from lake_core.journal import Add, Delete, Journal
from lake_core.lake.refs.pending_deletions import PREFIX, DeletionLists, encode_list
from lake_core.lake.refs.refs_state import RefsState
from lake_core.store import MemoryStore
from lake_core.testing import FaultStore


def test_threads_with_refs_of_different_times_find_all_lists() -> None:
    store = MemoryStore()
    journal = Journal(store, "refs")
    names = ["old", "new", "newest"]
    for name in names:
        store.put(f"list {name}", encode_list([name]))
    old, new, newest = (Add(f"{PREFIX}{name}", {"list": f"list {name}"}) for name in names)
    journal.append(lambda _: [old])
    earlier = RefsState(journal.state())
    journal.append(lambda _: [Delete(old.key), new, newest])
    later = RefsState(journal.state())
    reads, is_reading, go_on = 0, threading.Event(), threading.Event()

    class Slow(FaultStore):
        def _get(self, key: str, start: int | None, end: int | None) -> Any:
            nonlocal reads
            reads += 1
            if reads == 2:
                is_reading.set()
                assert go_on.wait(10)
            return super()._get(key, start, end)

    lists = DeletionLists(Slow(store, 0))
    found: list[frozenset[str]] = []
    thread = threading.Thread(target=lambda: found.append(lists.pending(later).keys))
    thread.start()
    assert is_reading.wait(10)
    assert lists.pending(earlier).keys == {"old"}
    go_on.set()
    thread.join()
    assert found == [{"new", "newest"}]
