"""Operations at the same time on one file with deletion vectors: both are committed if they touch different rows.

The rows after two commits are always those of the two operations in turn.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConcurrentModification
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, ids, rows
from tests.examples import exhaustive, some_of

VECTORS = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


def created(*, files: int = 1) -> DeltaTable:
    table = DeltaTable.create(MemoryStore(), SCHEMA, properties=VECTORS)
    for start in range(0, 12, 12 // files):
        table.append(rows(start, start + 12 // files))
    return table


def _merge(table: DeltaTable, *values: int) -> None:
    source = pa.table({"id": values, "p": ["m"] * len(values), "v": [-1.0] * len(values)}, schema=SCHEMA)
    table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()


def _sync(table: DeltaTable) -> None:
    merge = table.merge(pa.table({"id": list(range(10))}), "t.id = s.id")
    merge.when_not_matched_by_source_delete("t.v > 5").execute()


OPERATIONS: dict[str, Callable[[DeltaTable], object]] = {
    "delete 1": lambda t: t.delete("id = 1"),
    "delete 7": lambda t: t.delete("id = 7"),
    "delete odd": lambda t: t.delete("id % 2 = 1"),
    "delete by value": lambda t: t.delete("v < 2"),
    "delete moved": lambda t: t.delete("p = 'moved'"),
    "update 1": lambda t: t.update({"v": "v + 10"}, "id = 1"),
    "update 2 and 9": lambda t: t.update({"v": "v + 100", "p": "'moved'"}, "id IN (2, 9)"),
    "update even": lambda t: t.update({"v": "v * 2"}, "id % 2 = 0"),
    "update all": lambda t: t.update({"v": "v + 1"}),
    "delete all but one": lambda t: t.delete("id <> 7"),
    "merge 3 and 20": lambda t: _merge(t, 3, 20),
    "merge 7": lambda t: _merge(t, 7),
    "merge 5 to 8": lambda t: _merge(t, 5, 8),
    "sync": _sync,
    "append": lambda t: t.append(rows(12, 14)),
    "overwrite 4": lambda t: t.overwrite(rows(4, 5), where="id = 4"),
    "rewrite 6": lambda t: t.delete("id = 6", deletion_vectors=False),
    "optimize": lambda t: t.optimize(),
    "empty": lambda t: t.delete(),
}
APART = [
    {"delete 1", "delete 7"},
    {"delete 7", "delete by value"},
    {"delete 1", "update 2 and 9"},
    {"delete odd", "update even"},
    {"update 1", "delete 7"},
    {"update 1", "update 2 and 9"},
    {"update 1", "update even"},
    {"merge 7", "delete 1"},
    {"merge 7", "update 1"},
    {"merge 7", "update 2 and 9"},
    {"overwrite 4", "delete 7"},
    {"overwrite 4", "update 1"},
    {"delete 1", "append"},
]
"""Pairs of operations on different rows, which both must be committed."""


@functools.cache
def in_turn(files: int, *names: str) -> Counter[str]:
    """The rows after operations one after another."""
    table = created(files=files)
    for name in names:
        OPERATIONS[name](table)
    return held(table)


@pytest.mark.parametrize("files", [1, *exhaustive([3])])
@pytest.mark.parametrize("first", OPERATIONS)
@pytest.mark.sampled(8)
def test_two_at_once_are_two_in_turn(first: str, files: int) -> None:
    for second in OPERATIONS:
        table = created(files=files)
        late = DeltaTable.open(table.store)
        OPERATIONS[first](table)
        try:
            OPERATIONS[second](late)
        except ConcurrentModification:
            assert {first, second} not in APART, (first, second)
            assert held(DeltaTable.open(table.store)) == in_turn(files, first)
        else:
            now = DeltaTable.open(table.store)
            # An operation that found nothing to do came before the other one.
            done = [first, second] if now.version > table.version else [first]
            assert held(now) == in_turn(files, *done), (first, second)


MARKING = ["delete 1", "delete 7", "update 2 and 9", "update even", "merge 5 to 8", "overwrite 4", "delete all but one"]


def _is_in_order(names: tuple[str, ...]) -> bool:
    places = [MARKING.index(name) for name in names]
    return places in (sorted(places), sorted(places, reverse=True))


@pytest.mark.parametrize(("first", "second", "third"), some_of(itertools.permutations(MARKING, 3), _is_in_order))
@pytest.mark.sampled(8)
def test_three_at_once_are_three_in_turn(first: str, second: str, third: str) -> None:
    names = (first, second, third)
    table = created()
    handles = [DeltaTable.open(table.store) for _ in names]
    committed = []
    for name, handle in zip(names, handles, strict=True):
        try:
            OPERATIONS[name](handle)
        except ConcurrentModification:
            continue
        committed.append(name)
    assert held(DeltaTable.open(table.store)) == in_turn(1, *committed)


def test_the_last_one_names_the_vector_of_the_first_and_keeps_its_rows() -> None:
    table = created()
    late = DeltaTable.open(table.store)
    table.delete("id IN (1, 2)")
    late.delete("id IN (3, 4)")
    assert late.version == table.version + 1
    (vector,) = late.snapshot.files(["path", "deletionVector"])["deletionVector"].to_pylist()
    assert vector["cardinality"] == 4
    feed = late.changes(late.version).read_all()
    assert (ids(feed), set(feed["_change_type"].to_pylist())) == ([3, 4], {"delete"})


def test_a_file_whose_last_rows_two_operations_delete_is_removed() -> None:
    table = created()
    late = DeltaTable.open(table.store)
    table.delete("id < 6")
    late.delete("id >= 6")
    assert not len(late.files(["path"]))
    assert late.to_arrow().num_rows == 0


def test_many_writers_delete_each_its_own_rows() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA, properties=VECTORS)
    table.append(rows(0, 1000))
    writers = 8

    def run(number: int) -> None:
        handle = DeltaTable.open(table.store)
        for id in range(number, 200, writers):
            handle.delete(f"id = {id}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.refresh()
    assert ids(table.to_arrow()) == list(range(200, 1000))
    assert table.version == 1 + 200


REWRITES: dict[str, Callable[[DeltaTable], object]] = {
    "optimize": lambda t: t.optimize(),
    "delete": lambda t: t.delete("id = 2", deletion_vectors=False),
    "update": lambda t: t.update({"v": "-1"}, "id = 2", deletion_vectors=False),
    "delete everything": lambda t: t.delete(),
}


@pytest.mark.parametrize("name", REWRITES)
def test_a_file_whose_vector_was_written_again_with_the_same_rows(name: str) -> None:
    """The rows are the same, but a file is removed by the name of its vector."""
    table = DeltaTable.create(MemoryStore(), SCHEMA, properties=VECTORS)
    table.append(rows(0, 4000))
    table.append(rows(4000, 4010))
    table.delete("id % 2 = 1 AND id < 4000")
    late = DeltaTable.open(table.store)
    table.restore(2)
    table.delete("id % 2 = 1 AND id < 4000")
    with pytest.raises(ConcurrentModification):
        REWRITES[name](late)
    expected = [id for id in range(4010) if id % 2 == 0 or id >= 4000]
    assert ids(DeltaTable.open(table.store).to_arrow()) == expected
    marking = DeltaTable.open(table.store, version=3)
    marking.delete("id = 2")
    assert ids(marking.to_arrow()) == [id for id in expected if id != 2]
