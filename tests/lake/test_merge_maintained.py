"""Merges of branches on which a table was changed and optimized, each in a publish of its own."""

from __future__ import annotations

import itertools

import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict
from lake_core.store import MemoryStore
from tests.lake.lakes import SCHEMA, ids, plain, rows
from tests.lake.test_delta_merge import OPERATIONS, PATH

TARGETS = [None, "append", "delete p0", "delete id 1", "update p1", "optimize"]


def _create(lake: Lake, **properties: str) -> None:
    with lake.session() as s:
        s.create_delta(PATH, SCHEMA, partition_by=["p"], properties=properties).append(rows(range(6)))
    with lake.session() as s:
        s.delta(PATH).append(rows(range(6, 10)))
        s.put("other", b"1")
    lake.create_branch("dev")


def _publish(lake: Lake, branch: str, operation: str) -> None:
    with lake.session(branch) as s:
        OPERATIONS[operation](s.delta(PATH))
        s.put(f"done/{branch}/{operation}", b"1")


def _values(lake: Lake, ref: str) -> list[tuple[int, int]]:
    data = lake.delta(PATH, ref=ref).to_arrow()
    return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))


@pytest.mark.parametrize(("source", "target"), [("main", "dev"), ("dev", "main")])
@pytest.mark.parametrize(
    ("first", "second", "there"),
    [
        pytest.param(*each, marks=[] if index % 4 == 0 else pytest.mark.extended)
        for index, each in enumerate(
            itertools.product(["append", "delete id 1", "update p1"], ["optimize", "append in p0"], TARGETS)
        )
    ],
)
def test_they_end_with_the_rows_of_both_sides_or_conflict(
    empty: Lake, store: MemoryStore, source: str, target: str, first: str, second: str, there: str | None
) -> None:
    """Merged is what the same operations make one after the other, on one branch."""
    _create(empty)
    empty.create_branch("serial")
    if there is not None:
        _publish(empty, target, there)
        _publish(empty, "serial", there)
    for operation in (first, "optimize", second):
        _publish(empty, source, operation)
        _publish(empty, "serial", operation)
    before = _values(empty, target)
    try:
        empty.merge(source, into=target)
    except Conflict:
        assert there is not None, "nothing that it could conflict with"
        assert _values(empty, target) == before
    else:
        assert _values(empty, target) == _values(empty, "serial")
    assert ids(plain(store, PATH)) == ids(empty.delta(PATH))


def test_a_table_that_changed_on_one_side_alone_is_merged_beside_others(empty: Lake) -> None:
    _create(empty)
    for operation in ("append", "optimize"):
        _publish(empty, "main", operation)
    with empty.session("dev") as s:
        s.put("other", b"2")
    empty.merge("main", into="dev")
    assert _values(empty, "dev") == _values(empty, "main")


def test_the_change_data_feed_has_each_change_once(empty: Lake, store: MemoryStore) -> None:
    _create(empty, **{"delta.enableChangeDataFeed": "true"})
    _publish(empty, "main", "update p1")
    before = plain(store, PATH).version
    for operation in ("append", "delete id 1", "optimize"):
        _publish(empty, "dev", operation)
    with pytest.raises(Conflict):
        empty.merge("dev")
    empty.create_branch("other", at="main")
    for operation in ("append", "optimize", "delete id 1"):
        _publish(empty, "other", operation)
    with empty.session() as s:
        s.put("other", b"3")
    empty.merge("other")
    feed = plain(store, PATH).changes(before + 1).read_all()
    changes = sorted(zip(feed["_change_type"].to_pylist(), feed["id"].to_pylist(), strict=True))
    assert changes == [("delete", 1), ("insert", 100)]


def test_an_append_only_table_is_merged_up_to_each_commit(empty: Lake) -> None:
    _create(empty, **{"delta.appendOnly": "true"})
    for operation in ("append", "optimize"):
        _publish(empty, "dev", operation)
    with empty.session() as s:
        s.put("other", b"3")
    with pytest.raises(Conflict, match="merge up to each commit in turn"):
        empty.merge("dev")
    empty.merge("dev~1")
    empty.merge("dev")
    assert ids(empty.delta(PATH)) == [*range(10), 100]
