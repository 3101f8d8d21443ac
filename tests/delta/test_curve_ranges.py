"""The ranges of the curve that a large partition is divided into."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta.curve import Curve
from lake_core.delta.operations.curve_ranges import Sample, _ranges


@given(
    values=st.lists(st.one_of(st.none(), st.integers(0, 20)), min_size=1, max_size=300),
    count=st.integers(1, 12),
    files=st.integers(1, 4),
)
def test_ranges_are_in_order_and_complete(values: list[int | None], count: int, files: int) -> None:
    """Of two rows, the one that comes first on the curve is in no later range, unless ranges begin at both."""
    table = pa.table({"v": pa.array(values, pa.int64())})
    parts = [table.slice(start, 300 // files) for start in range(0, len(values), 300 // files)]
    samples = [Sample(len(part), part.rename_columns(["0"])) for part in parts]
    ranges = _ranges(samples, Curve((("v",),)), count, 31)
    own = ranges.ranges_of(table, 0)
    assert ranges.count == count
    assert own.min() >= 0
    assert own.max() < count
    by_value: dict[float, list[int]] = {}
    for value, number in zip(values, own, strict=True):
        by_value.setdefault(float("inf") if value is None else value, []).append(int(number))
    ordered = [by_value[value] for value in sorted(by_value)]
    assert all(max(left) <= min(right) for left, right in pairwise(ordered))
