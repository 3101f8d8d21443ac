"""Replaces the records of ranges of keys."""

from __future__ import annotations

import pytest

from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import OutsideRange
from lake_core.pool.key_range import KeyRange
from lake_core.store import MemoryStore

EVERYTHING = [KeyRange()]


@pytest.fixture
def pool() -> Pool:
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="k", order="asc")
    pool.load([{"k": number, "v": "old"} for number in (0, 1, 2, 3)])
    pool.load([{"k": 7, "v": "old"}])
    pool.load([{"k": "text"}, {"v": "no key"}])
    return pool


def contents(pool: Pool) -> list[str]:
    return pool.scan().to_zson().splitlines()


def test_exactly_the_range_is_replaced_in_one_commit(pool: Pool) -> None:
    before = {each.id for each in pool.objects()}
    ranges = [KeyRange.of(1, 3), KeyRange.of(5, 7)]
    commit = pool.replace(
        pool.write_objects([{"k": 2, "v": "new"}, {"k": 6, "v": "new"}], ranges), ranges, message="days", txn=("a", 1)
    )
    assert contents(pool) == [
        *('{k:0,v:"old"}', '{k:2,v:"new"}', '{k:3,v:"old"}', '{k:6,v:"new"}', '{k:7,v:"old"}'),
        *('{k:"text"}', '{v:"no key"}'),
    ]
    assert commit is not None
    assert len(list(pool.log())) == 4
    assert len(before & {each.id for each in pool.objects()}) == 2, "objects outside of the range stay"
    assert pool.replace([], ranges, txn=("a", 1)) is None
    assert len(contents(pool)) == 7


def test_a_range_without_bounds_holds_records_without_a_key_too(pool: Pool) -> None:
    assert pool.replace([], EVERYTHING) is not None
    assert contents(pool) == []
    assert pool.replace([], EVERYTHING) is None, "there is nothing left to replace"


def test_keys_outside_of_the_range_are_refused_before_anything_is_visible(pool: Pool) -> None:
    before = contents(pool)
    ranges = [KeyRange.of(1, 3)]
    with pytest.raises(
        OutsideRange,
        match="has a record with the key 3 at 'k', but only keys from 1 up to, but not including, 3 can be written",
    ):
        pool.write_objects([{"k": 1}, {"k": 3}], ranges)
    with pytest.raises(OutsideRange, match="no key"):
        pool.write_objects([{"v": 1}], ranges)
    with pytest.raises(OutsideRange, match="the key 4"):
        pool.replace(pool.write_objects([{"k": 1}, {"k": 4}]), ranges)
    assert contents(pool) == before
