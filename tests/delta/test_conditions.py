"""Tables read and overwritten by conditions that no statistics decide."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.expression import EvaluationFailed

SCHEMA = pa.schema([("p", pa.int32()), ("x", pa.int64()), ("s", pa.string())])
ROWS = pa.table({"p": [0, 0, 1, 2, None], "x": [1, 0, 5, -7, 2], "s": ["a", "B", None, "ab", "b"]}, SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    table = DeltaTable.create(tmp_path / "t", SCHEMA, partition_by=["p"])
    table.append(ROWS)
    return table


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("x + 1 > 1", [1, 2, 5]),
        ("p + 1 = 2", [5]),
        ("p % 2 = 0 AND x > 0", [1]),
        ("p % 2 = 0 AND abs(x) > 0", [-7, 1]),
        ("upper(s) = 'B' OR p = 1", [0, 2, 5]),
        ("NOT (p + 1 = 2 OR s LIKE 'a%')", [0]),
        ("p <> 0 AND 4 DIV p = 2", [-7]),
        ("x > 0 AND p <> 0 AND 10 DIV p > 5", [5]),
        ("p = 1 OR x / nullif(x, 0) IS NULL", [0, 5]),
        ("coalesce(p, 7) = 7 AND TRUE", [2]),
        ("1 = 1", [-7, 0, 1, 2, 5]),
        ("1 = 2 OR NULL", []),
    ],
)
def test_reading(table: DeltaTable, where: str, found: list[int]) -> None:
    assert sorted(table.to_arrow(columns=["x"], where=where)["x"].to_pylist()) == found


@pytest.mark.parametrize("where", ["4 DIV p = 2", "4 DIV p = 2 AND x <> 1", "x > 0 AND 10 DIV p > 5", "10 DIV x > 1"])
def test_a_row_that_fails_fails_the_read(table: DeltaTable, where: str) -> None:
    with pytest.raises(EvaluationFailed, match="division by zero"):
        table.to_arrow(where=where)


def test_partitions_are_overwritten_exactly(table: DeltaTable) -> None:
    table.overwrite(ROWS.slice(2, 1), where="p * 2 = 2")
    assert sorted(table.to_arrow()["x"].to_pylist()) == [-7, 0, 1, 2, 5]
    table.overwrite(SCHEMA.empty_table(), where="p <> 0 AND 4 DIV p = 2")
    assert sorted(table.to_arrow()["x"].to_pylist()) == [0, 1, 2, 5]
    before = table.version
    with pytest.raises(EvaluationFailed):
        table.overwrite(SCHEMA.empty_table(), where="4 DIV p = 4")
    assert table.version == before
