"""Rows in another order are the rows that `take` returns, however many bytes they have."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable, ordered_rows
from lake_core.delta.ordered_rows import in_order
from tests.examples import examples

SCHEMA = pa.schema(
    [("text", pa.string()), ("blob", pa.binary()), ("nested", pa.struct([("items", pa.list_(pa.string()))]))]
)
TEXT = st.one_of(st.none(), st.text(max_size=40))


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    def batch(count: int) -> pa.RecordBatch:
        rows = [
            {
                "text": draw(TEXT),
                "blob": draw(st.one_of(st.none(), st.binary(max_size=40))),
                "nested": draw(st.one_of(st.none(), st.fixed_dictionaries({"items": st.lists(TEXT, max_size=3)}))),
            }
            for _ in range(count)
        ]
        return pa.RecordBatch.from_pylist(rows, SCHEMA)

    counts = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    table = pa.Table.from_batches([batch(count) for count in counts], SCHEMA)
    start = draw(st.integers(0, table.num_rows))
    return table.slice(start)


@settings(max_examples=examples(25), deadline=None)
@given(_tables(), st.data(), st.integers(0, 60), st.integers(1, 200))
def test_rows_come_in_the_order_asked_for(table: pa.Table, data: st.DataObject, most: int, piece: int) -> None:
    numbers = st.integers(0, table.num_rows - 1) if table.num_rows else st.nothing()
    order = np.array(data.draw(st.lists(numbers, max_size=30)) if table.num_rows else [], dtype=np.int64)
    with patch.multiple(ordered_rows, _MOST_BYTES=most, _PIECE_BYTES=piece):
        parts = list(in_order(table, order))
    expected = table.take(pa.array(order, pa.int64()))
    assert pa.concat_tables([SCHEMA.empty_table(), *parts]).equals(expected)


def test_the_longest_rows_are_divided() -> None:
    lengths = [1] * 90 + [100] * 10
    texts = ["x" * length for length in lengths]
    table = pa.table({"text": pa.chunked_array([texts[:50], texts[50:]])})
    with patch.multiple(ordered_rows, _MOST_BYTES=300, _PIECE_BYTES=1100):
        parts = list(in_order(table, np.arange(99, -1, -1)))
    assert max(part.nbytes for part in parts) <= 300 + 8
    assert [len(text) for part in parts for text in part["text"].to_pylist()] == lengths[::-1]


@pytest.mark.stress
@pytest.mark.timeout(600)
def test_columns_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    chunks = [pa.array([bytes([number, index]) + rng.bytes(20 << 20) for index in range(4)]) for number in range(28)]
    rows = pa.table({"p": pa.array([0] * 112), "id": pa.array(np.arange(112)[::-1]), "blob": pa.chunked_array(chunks)})
    assert rows["blob"].nbytes > 2**31
    table = DeltaTable.create(tmp_path / "t", rows.schema, partition_by=["p"])
    table.append(rows)
    table.optimize(zorder_by=["id"])
    read = table.to_arrow()
    starts = pc.binary_slice(read["blob"], 0, 2).to_pylist()
    assert sorted(zip(read["id"].to_pylist(), starts, strict=True)) == sorted(
        (111 - number, bytes([number // 4, number % 4])) for number in range(112)
    )
