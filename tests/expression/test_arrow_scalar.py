"""Scalars that are made without pandas are those that Arrow makes."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.arrow_scalar import scalar


def _integers(kind: pa.DataType) -> st.SearchStrategy[int]:
    bits = kind.bit_width
    signed = pa.types.is_signed_integer(kind)
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


_VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, _integers(kind)) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text()),
    (pa.binary(), st.binary()),
    (pa.large_string(), st.text()),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    (pa.timestamp("ms"), st.integers(-(2**40), 2**40)),
    (pa.decimal128(10, 3), st.decimals(-(10**6), 10**6, places=3)),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    (pa.list_(pa.int64()), st.lists(st.integers(0, 9))),
]


@given(st.sampled_from(_VALUES).flatmap(lambda each: st.tuples(st.just(each[0]), st.none() | each[1])))
def test_a_scalar_is_the_one_of_arrow(case: tuple[pa.DataType, Any]) -> None:
    kind, value = case
    found, expected = scalar(value, kind), pa.scalar(value, kind)
    assert (found.type, found.is_valid, found.as_py()) == (expected.type, expected.is_valid, expected.as_py())


@pytest.mark.parametrize("value", ["a", b"a", True, 1.5, None])
def test_a_value_has_its_own_type(value: Any) -> None:
    assert scalar(value).type == pa.scalar(value).type


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (200, pa.int8()),
        (-1, pa.uint8()),
        (2**63, pa.int64()),
        (Decimal("1.234"), pa.decimal128(5, 2)),
        (Decimal("1234.5"), pa.decimal128(4, 1)),
    ],
)
def test_a_number_that_a_type_cannot_hold_is_refused(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(OverflowError):
        scalar(value, kind)


_OPERATIONS = {
    "read": "table.to_arrow()",
    "filter": "table.to_arrow(where=\"id = 5 AND x > 1.5 OR s = 'a' OR s LIKE 'b%'\")",
    "append": "table.append(rows)",
    "overwrite": "table.overwrite(rows.slice(5, 1), where='id = 5')",
    "update": "table.update({'x': 'x + 1'}, where='id = 7')",
    "delete": "table.delete('id = 8')",
    "optimize": "table.append(rows); table.optimize()",
}
_PROGRAM = """
import sys, pyarrow as pa
from lake_core.delta import DeltaTable
from lake_core.delta.numpy_arrays import integers
import numpy as np
ids = integers(np.arange(100))
rows = pa.table({{"id": ids, "x": ids.cast(pa.float64()), "s": ids.cast(pa.string())}})
table = DeltaTable.create({folder!r}, rows.schema)
table.append(rows)
{operation}
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("name", _OPERATIONS)
def test_pandas_is_not_imported(tmp_path: Any, name: str) -> None:
    """Pandas takes longer to import than most operations take."""
    program = _PROGRAM.format(folder=str(tmp_path / "t"), operation=_OPERATIONS[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
