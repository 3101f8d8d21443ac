"""Footers without the bounds of floating-point columns are otherwise the same."""

from __future__ import annotations

import io
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.parquet_footer import read_tail, without_float_bounds
from lake_core.store import MemoryStore

_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=20),
    pa.bool_(): st.booleans(),
    pa.list_(pa.float64()): st.lists(st.floats(), max_size=3),
    pa.struct([("f", pa.float64()), ("s", pa.string())]): st.fixed_dictionaries({"f": st.floats(), "s": st.text()}),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=5))
    rows = draw(st.integers(0, 8))
    return pa.table(
        {
            f"c{number}": pa.array(
                draw(st.lists(st.none() | _VALUES[kind], min_size=rows, max_size=rows)), kind
            )
            for number, kind in enumerate(kinds)
        }
    )  # fmt: skip


def file_of(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def tail_of(data: bytes) -> bytes:
    return data[-int.from_bytes(data[-8:-4], "little") - 8 :]


def footer_of(data: bytes) -> Any:
    """Return what a footer says, with None for the bounds of floats, which are checked on the way."""
    footer = pq.read_metadata(io.BytesIO(data)).to_dict()
    for group in footer["row_groups"]:
        for column in group["columns"]:
            if column["physical_type"] in ("FLOAT", "DOUBLE") and column["statistics"] is not None:
                column["statistics"] |= {"min": None, "max": None}
    return footer


@settings(deadline=None, max_examples=150)
@given(tables(), st.integers(1, 4))
def test_nothing_else_in_the_footer_changes(rows: pa.Table, group_rows: int) -> None:
    data = file_of(rows, row_group_size=group_rows)
    tail = tail_of(data)
    changed = data[: -len(tail)] + without_float_bounds(tail)
    assert footer_of(changed) == footer_of(data)


@settings(deadline=None, max_examples=50)
@given(tables())
def test_no_float_has_a_bound(rows: pa.Table) -> None:
    data = file_of(rows)
    tail = tail_of(data)
    footer = pq.read_metadata(io.BytesIO(data[: -len(tail)] + without_float_bounds(tail)))
    bounds = [
        bound
        for group in range(footer.num_row_groups)
        for column in (footer.row_group(group).column(number) for number in range(footer.num_columns))
        if column.physical_type in ("FLOAT", "DOUBLE") and column.statistics and column.statistics.has_min_max
        for bound in (column.statistics.min, column.statistics.max)
    ]
    assert all(math.isnan(bound) for bound in bounds)


def test_a_footer_cut_anywhere_is_damaged() -> None:
    tail = tail_of(file_of(pa.table({"id": [1, 2], "x": [1.0, 2.0]})))
    for cut in range(1, len(tail) - 8):
        with pytest.raises(OSError, match="damaged"):
            without_float_bounds(tail[:cut] + b"PAR1")


def test_what_is_no_parquet_file_is_left_as_it_is() -> None:
    assert without_float_bounds(b"an encrypted footer, PARE") == b"an encrypted footer, PARE"


@pytest.mark.parametrize("columns", [1, 2_000], ids=["in the first read", "longer than the first read"])
def test_the_tail_begins_with_the_footer(columns: int) -> None:
    data = file_of(pa.table({f"c{number}": [1.0] for number in range(columns)}))
    store = MemoryStore()
    store.put("a.parquet", data)
    assert read_tail(store, "a.parquet", len(data)) == tail_of(data)


def test_the_tail_of_a_short_object_is_all_of_it() -> None:
    store = MemoryStore()
    store.put("a.parquet", b"short")
    assert read_tail(store, "a.parquet", 5) == b"short"
