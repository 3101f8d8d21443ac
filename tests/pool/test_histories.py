"""Random histories of a pool's branches, against sorted lists of keys."""

from __future__ import annotations

import datetime as dt

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import DeleteConflict
from lake_core.store import MemoryStore
from tests.examples import examples

BRANCHES = st.sampled_from(["main", "dev"])
STEPS = st.one_of(
    st.tuples(st.just("load"), BRANCHES, st.lists(st.integers(0, 9), min_size=1, max_size=4)),
    st.tuples(st.just("delete"), BRANCHES, st.integers(0, 9)),
    st.tuples(st.just("compact"), BRANCHES, st.none()),
    st.tuples(st.just("merge"), BRANCHES, st.none()),
    st.tuples(st.just("revert"), BRANCHES, st.integers(0, 5)),
    st.tuples(st.just("vacuum"), st.just("main"), st.none()),
)


def keys(pool: Pool, branch: str) -> list[tuple[int, int]]:
    """Return the key and the number of each record, which tells it from all others."""
    return sorted((record["k"], record["n"]) for record in pool.scan(branch).records())


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_a_pool_holds_what_its_history_says(steps: list[tuple[str, str, object]]) -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="k", order="asc")
    pool.create_branch("dev")
    expected: dict[str, list[tuple[int, int]]] = {"main": [], "dev": []}
    number = 0
    for verb, branch, argument in steps:
        other = "dev" if branch == "main" else "main"
        if verb == "load":
            rows = [(key, number + index) for index, key in enumerate(argument)]
            number += len(rows)
            pool.load([{"k": key, "n": each} for key, each in rows], branch)
            expected[branch] += rows
        elif verb == "delete":
            if expected[branch]:
                pool.delete(f"k >= {argument} AND k < {argument} + 3", branch)
            expected[branch] = [row for row in expected[branch] if not argument <= row[0] < argument + 3]
        elif verb == "compact":
            pool.compact(branch=branch)
        elif verb == "merge":
            before = expected[branch]
            try:
                pool.merge(other, into=branch)
            except DeleteConflict:
                assert keys(pool, branch) == sorted(before), "a conflict changes nothing"
            # What a merge brings is what either side has, each record at most once.
            expected[branch] = keys(pool, branch)
            assert len(set(expected[branch])) == len(expected[branch])
            assert set(expected[branch]) <= set(before) | set(expected[other])
            assert set(before) & set(expected[other]) <= set(expected[branch])
            assert pool.merge(other, into=branch) is None if _merges(pool, other, branch) else True
        elif verb == "revert":
            log = list(pool.log(branch))
            if len(log) > int(argument):
                chosen = log[int(argument)]
                earlier = keys_at(pool, chosen.parent)
                later = keys_at(pool, chosen.id)
                try:
                    commit = pool.revert(chosen.id, branch)
                except DeleteConflict:
                    commit = None
                if commit is not None and chosen == log[0]:
                    assert keys(pool, branch) == earlier
                elif commit is not None:
                    removed = set(later) - set(earlier)
                    assert not removed & set(keys(pool, branch))
                expected[branch] = keys(pool, branch)
                assert len(set(expected[branch])) == len(expected[branch])
        else:
            pool.vacuum(dt.timedelta(days=1))
        assert keys(pool, branch) == sorted(expected[branch]), (verb, branch)
        assert keys(pool, other) == sorted(expected[other]), "another branch stays as it is"


def keys_at(pool: Pool, commit: str) -> list[tuple[int, int]]:
    if commit == "0" * 27:
        return []
    return sorted((record["k"], record["n"]) for record in pool.scan(commit=commit).records())


def _merges(pool: Pool, child: str, parent: str) -> bool:
    try:
        pool.merge(child, into=parent)
    except DeleteConflict:
        return False
    return True
