"""Markers are equal for attempts at the same output, and for nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lake_orch.dagster.runs.marker import app_id

NAMES = st.sampled_from(["a", "b", "a,b", '"', "a[1]", "a\\", "", "|"])
PARTS = st.tuples(NAMES, NAMES, NAMES, st.none() | NAMES, st.lists(NAMES, max_size=3))


def marker(parts: tuple[Any, ...]) -> str:
    lineage, step, output, mapping_key, keys = parts
    return app_id(lineage, step, output, mapping_key=mapping_key, partition_keys=keys)


@given(PARTS, PARTS)
def test_different_outputs_have_different_markers(first: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    same = (*first[:4], sorted(first[4])) == (*other[:4], sorted(other[4]))
    assert (marker(first) == marker(other)) == same


def test_the_order_of_partitions_does_not_matter() -> None:
    keys = [f"2024-01-{day:02}" for day in range(1, 31)]
    assert marker(("r", "s", "o", None, keys)) == marker(("r", "s", "o", None, keys[::-1]))


def test_many_partitions_are_hashed() -> None:
    keys = [f"key {n}" for n in range(10_000)]
    whole, shorter = (marker(("r", "s", "o", None, part)) for part in (keys, keys[1:]))
    assert whole != shorter
    assert len(whole) < 200
