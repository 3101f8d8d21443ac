"""The page on backups, step by step, by a tool that copies object by object, while others write between any two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count

import pytest

from lake_core import Lake
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import create_tables, ids, opened, rows

REFS = "_lake/refs/"


def in_pages(store: MemoryStore, size: int, wanted: Callable[[str], bool]) -> Iterator[str]:
    """Yield keys in their order. The next ones are listed when these are copied."""
    last = ""
    while page := [meta.key for meta in store.list("") if meta.key > last and wanted(meta.key)][:size]:
        yield from page
        last = page[-1]


def synchronize(
    source: MemoryStore, copy: MemoryStore, size: int, wanted: Callable[[str], bool], meanwhile: Callable[[], None]
) -> None:
    """Copy the wanted objects, and delete others of them from the copy."""
    seen = set()
    for key in in_pages(source, size, wanted):
        meanwhile()
        seen.add(key)
        copy.put(key, bytes(source.get(key)))
    copy.delete([meta.key for meta in copy.list("") if wanted(meta.key) and meta.key not in seen])


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_copy_of_a_lake_that_is_written_is_whole(size: int, every: int) -> None:
    time = ManualClock()
    source, copy = MemoryStore(clock=time), MemoryStore(clock=time)
    lake = Lake.create(source, clock=time)
    create_tables(lake, "t/orders")
    lake.create_branch("dev")
    shared = lake.open_session(id="run", expires_in=timedelta(hours=5))
    number = count(100)
    states: list[list[int]] = []

    def publish(branch: str) -> None:
        with lake.session(branch) as session:
            session.delta("t/orders").append(rows([next(number)]))
            session.put("notes.txt", str(next(number)).encode())
        if branch == "dev":
            states.append(ids(lake.delta("t/orders", ref="dev")))

    def run_on() -> None:
        publish("dev")
        with shared.join(task=f"t{next(number)}") as writer:
            writer.delta("t/orders").append(rows([next(number)]))

    def run_and_publish() -> None:
        run_on()
        publish("main")

    def sometimes(work: Callable[[], None]) -> Callable[[], None]:
        """Return what works at each `every`-th object, but not so often that a copy never comes to an end."""
        steps = count()
        return lambda: work() if (step := next(steps)) % every == 0 and step < 12 * every else None

    publish("dev")
    synchronize(source, copy, size, lambda key: True, sometimes(run_and_publish))
    lake.settings.protect("main")
    published = ids(lake.delta("t/orders"))
    synchronize(source, copy, size, lambda key: key.startswith(REFS), sometimes(run_on))
    synchronize(source, copy, size, lambda key: not key.startswith(REFS), sometimes(run_on))

    restored = opened(copy, time)
    restored.settings.unprotect("main")
    restored.maintenance.checkout()
    assert restored.maintenance.verify(full=True) == []
    assert ids(restored.delta("t/orders")) == published
    assert ids(restored.delta("t/orders", ref="dev")) in states
    with restored.session() as session:
        session.delta("t/orders").append(rows([1_000_000]))
    assert ids(restored.delta("t/orders")) == sorted([*published, 1_000_000])
