"""Deletions from pools: of records by a predicate, and of data objects by their ids."""

from __future__ import annotations

import pytest

from lake_core.expression import InvalidExpression
from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import InvalidValue, NoSuchObject
from lake_core.store import MemoryStore


@pytest.fixture(params=["asc", "desc"])
def pool(request: pytest.FixtureRequest) -> Pool:
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="k", order=request.param)
    pool.load([{"k": number, "level": "debug" if number % 3 else "info"} for number in range(10)])
    pool.load([{"k": 20, "n": 5}, {"k": 21, "level": "debug", "n": 7}])
    return pool


def keys(pool: Pool) -> list[int]:
    return sorted(record["k"] for record in pool.scan().records())


def test_records_are_deleted_for_which_the_predicate_is_true(pool: Pool) -> None:
    commit = pool.delete("level = 'debug'", author="ada")
    assert commit is not None
    assert commit.author == "ada"
    assert commit.message.startswith("deleted 2 data objects\n")
    assert keys(pool) == [0, 3, 6, 9, 20]


def test_a_field_that_a_record_does_not_have_is_null(pool: Pool) -> None:
    pool.delete("n IS NULL AND k > 4")
    assert keys(pool) == [0, 1, 2, 3, 4, 20, 21]


def test_objects_without_a_record_to_delete_stay(pool: Pool) -> None:
    before = {each.id for each in pool.objects()}
    pool.delete("n = 7")
    assert len(before & {each.id for each in pool.objects()}) == 1


def test_objects_of_which_all_records_go_are_not_written_anew(pool: Pool) -> None:
    pool.delete("k < 15")
    assert (len(pool.objects()), keys(pool)) == (1, [20, 21])


def test_what_the_predicate_says_of_the_key_leaves_out_objects(pool: Pool) -> None:
    first = next(each for each in pool.objects() if each.count == 10)
    pool.store.delete([f"{pool.config.id}/data/{first.id}.zng"])
    pool.delete("k = 21 AND level = 'debug'")
    assert [each.count for each in pool.objects() if each.id != first.id] == [1]


def test_where_nothing_matches_there_is_no_commit(pool: Pool) -> None:
    tip = pool.tip()
    assert pool.delete("level = 'error'") is None
    assert pool.delete("k > 100") is None
    assert pool.delete(ids=[]) is None
    assert pool.tip() == tip


def test_a_predicate_over_unknown_fields_is_refused(pool: Pool) -> None:
    tip = pool.tip()
    with pytest.raises(InvalidExpression, match="lvl"):
        pool.delete("lvl = 'debug'")
    assert pool.tip() == tip


def test_objects_are_deleted_by_their_ids(pool: Pool) -> None:
    chosen = [each.id for each in pool.objects() if each.count == 10]
    pool.delete(ids=chosen * 2)
    assert keys(pool) == [20, 21]
    with pytest.raises(NoSuchObject, match=chosen[0]):
        pool.delete(ids=chosen)


@pytest.mark.parametrize("arguments", [{}, {"where": "true", "ids": []}])
def test_either_a_predicate_or_ids_are_given(pool: Pool, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="but not both or neither"):
        pool.delete(**arguments)


def test_true_deletes_everything(pool: Pool) -> None:
    pool.delete("true")
    assert pool.objects() == []


def test_a_field_that_differs_from_the_key_by_case_is_not_the_key() -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")
    pool.load([{"k": 1, "K": 11}, {"k": 2, "K": 1}])
    pool.delete("K = 11")
    assert keys(pool) == [2]
