"""Compactions of pools: which data objects are put together, and that no value changes."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lake_core.pool import Commit, Pool, PoolLake
from lake_core.pool.action import Action
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.errors import DeleteConflict, InvalidValue, NoSuchObject
from lake_core.pool.key_range import KeyRange
from lake_core.pool.merge import partitions
from lake_core.store import MemoryStore
from lake_core.testing import ManualClock
from tests.examples import examples


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["asc", "desc"])
def pool(request: pytest.FixtureRequest, clock: ManualClock) -> Pool:
    lake = PoolLake.create(MemoryStore(), clock=clock)
    return lake.create_pool("events", key="k", order=request.param, seek_stride=100, threshold=2000)


def contents(pool: Pool) -> str:
    return pool.scan().to_zson()


def load_shuffled(pool: Pool, loads: int = 6) -> None:
    random_numbers = random.Random(7)
    for number in range(loads):
        pool.load(
            [
                {"k": random_numbers.randrange(3000), "s": random_numbers.randbytes(6).hex(), "load": number}
                for _ in range(60)
            ]
        )
    pool.load([{"k": "text"}, {"s": "no key"}, {"k": None}])


def test_overlapping_objects_become_disjoint_ones_with_the_same_values(pool: Pool) -> None:
    load_shuffled(pool)
    before = contents(pool)
    commit = pool.compact()
    assert commit is not None
    # The small one without keys is a neighbor of those that overlap.
    assert commit.message.startswith("compacted 7 data objects\n")
    assert contents(pool) == before
    groups = partitions(pool.objects(), pool.config)
    assert len(groups) == len(pool.objects()) > 1
    assert max(each.size for each in pool.objects()) < 3 * pool.config.threshold


@given(
    loads=st.lists(
        st.tuples(st.integers(0, 900), st.integers(1, 120), st.sampled_from(["", "words ", "half", "random"])),
        min_size=1,
        max_size=8,
    ),
    threshold=st.sampled_from([300, 2_000, 20_000]),
    order=st.sampled_from(["asc", "desc"]),
    seek_stride=st.sampled_from([50, 64 << 10]),
)
@example(
    loads=[(200 * number, 200, "words ") for number in range(6)], threshold=20_000, order="asc", seek_stride=64 << 10
)
@example(loads=[(0, 60, "random"), (0, 60, "random"), (500, 2, "")], threshold=2_000, order="desc", seek_stride=50)
@settings(deadline=None, max_examples=examples(60))
def test_after_a_compaction_there_is_nothing_to_compact(
    loads: list[tuple[int, int, str]], threshold: int, order: Literal["asc", "desc"], seek_stride: int
) -> None:
    lake = PoolLake.create(MemoryStore())
    pool = lake.create_pool("events", key="k", order=order, seek_stride=seek_stride, threshold=threshold)
    random_numbers = random.Random(7)
    for first, count, kind in loads:
        texts = {"": "", "words ": "words " * 30, "half": "x" * 80 + random_numbers.randbytes(40).hex()}
        pool.load(
            [
                {"k": first + number, "s": texts.get(kind) or random_numbers.randbytes(60).hex()}
                for number in range(count)
            ]
        )
    before = contents(pool)
    pool.compact()
    assert pool.compact() is None
    assert contents(pool) == before


def test_compacted_objects_have_the_size_of_the_threshold_however_well_they_compress() -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("logs", key="k", threshold=20_000)
    for first in range(0, 2400, 200):
        text = "the same words in each of the records " * 3
        pool.load([{"k": first + number, "s": f"{text}{hash((first, number)):x}"} for number in range(200)])
    assert sum(each.size for each in pool.objects()) * 4 < 12 * 200 * len(text), "the values compress well"
    pool.compact()
    *full, _last = sorted(pool.objects(), key=lambda each: -each.size)
    assert full
    assert all(threshold_reached(each.size) for each in full)


def threshold_reached(size: int) -> bool:
    return 20_000 <= size < 25_000


def test_equal_keys_stay_in_one_object(pool: Pool) -> None:
    for _ in range(3):
        pool.load([{"k": 1, "s": f"{number:050}"} for number in range(100)])
    pool.compact()
    assert [each.count for each in pool.objects()] == [300]


def test_the_objects_that_are_named_are_put_together(pool: Pool) -> None:
    for number in range(4):
        pool.load([{"k": number}])
    first, second, *others = pool.objects()
    pool.compact([first.id, second.id, first.id])
    kept = {each.id for each in pool.objects()}
    assert kept >= {each.id for each in others}
    assert len(kept) == 3


def test_objects_that_cannot_be_compacted_are_refused(pool: Pool) -> None:
    pool.load([{"k": 1}])
    (only,) = pool.objects()
    with pytest.raises(InvalidValue, match="at least two"):
        pool.compact([only.id, only.id])
    with pytest.raises(NoSuchObject, match="0ujtsYcgvSTl8PAuAdqWYSMnLOv"):
        pool.compact([only.id, "0ujtsYcgvSTl8PAuAdqWYSMnLOv"])


def test_young_objects_are_left_alone(pool: Pool, clock: ManualClock) -> None:
    pool.load([{"k": 1}])
    pool.load([{"k": 2}])
    clock.pass_days(1)
    pool.load([{"k": 3}])
    (young,) = {each.id for each in pool.objects()} - {each.id for each in pool.objects(commit=list(pool.log())[1].id)}
    pool.compact(cold_age=dt.timedelta(hours=1))
    assert len(pool.objects()) == 2
    assert young in {each.id for each in pool.objects()}


def test_large_objects_that_do_not_overlap_are_left_alone(pool: Pool) -> None:
    for start in (0, 1000, 2000):
        pool.load([{"k": start + number, "s": random.Random(number).randbytes(8).hex()} for number in range(50)])
    assert pool.compact() is None


def test_a_compaction_gives_way_to_other_writers(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    load_shuffled(pool, 2)
    pool.load([{"k": 10_000}])
    pool.load([{"k": 10_000}])
    write = CommitStore.write

    def delete_first(commits: CommitStore, commit: Commit, actions: Sequence[Action]) -> None:
        monkeypatch.setattr(CommitStore, "write", write)
        pool.replace([], [KeyRange.of(10_000, 10_001)])
        write(commits, commit, actions)

    monkeypatch.setattr(CommitStore, "write", delete_first)
    last_two = [each.id for each in pool.objects() if each.max.decode() == 10_000]
    with pytest.raises(DeleteConflict) as caught:
        pool.compact(last_two)
    assert set(caught.value.ids) == set(last_two)
    assert "10000" not in contents(pool)
