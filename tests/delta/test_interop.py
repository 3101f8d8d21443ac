"""`deltalake` as the oracle: what we write it reads, what it writes we read, and a table written in turn is right for both."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from tests.delta.tables import SCHEMA, ids, rows

WIDE = pa.schema(
    [
        ("i8", pa.int8()),
        ("i64", pa.int64()),
        ("f", pa.float32()),
        ("n", pa.decimal128(20, 4)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("flag", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("list", pa.list_(pa.struct([("x", pa.int32())]))),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("p", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def _wide(number: int) -> dict[str, Any]:
    at = dt.datetime(2020, 1, 1, 1, 2, 3, 456789, tzinfo=dt.UTC) + dt.timedelta(days=number)
    return {
        "i8": number,
        "i64": -number,
        "f": number / 2,
        "n": Decimal(number) / 8,
        "s": f"text {number}" * 10,
        "b": bytes([number]),
        "flag": number % 2 == 0,
        "d": at.date(),
        "t": at,
        "list": [{"x": number}, None],
        "map": [("k", number)],
        "p": ["plain", "a/b=c", "50% é", None][number % 4],
        "day": at.date(),
        "at": at if number % 3 else None,
    }


def _oracle(folder: Path, columns: str = "*") -> list[dict[str, Any]]:
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder)))
    return pa.table(builder.execute(f"select {columns} from t").read_all()).to_pylist()


def _sorted(found: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return sorted(({**row, "map": row["map"] and list(row["map"])} if "map" in row else row for row in found), key=lambda row: row[key])


@pytest.mark.parametrize("partition_by", [[], ["p"], ["p", "day", "at"]])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_it_reads_what_we_write(tmp_path: Path, partition_by: list[str], checkpoint: bool) -> None:
    data = [_wide(number) for number in range(12)]
    table = DeltaTable.create(tmp_path, WIDE, partition_by=partition_by)
    table.append(pa.Table.from_pylist(data[:8], schema=WIDE))
    table.append(pa.Table.from_pylist(data[8:], schema=WIDE), txn=("app", 3))
    if checkpoint:
        table.checkpoint()
    assert _sorted(_oracle(tmp_path), "i8") == data == _sorted(table.to_arrow().to_pylist(), "i8")
    other = deltalake.DeltaTable(str(tmp_path))
    assert other.version() == 2
    assert sorted(other.file_uris()) == sorted(table.store.url(path).removeprefix("file://") for path in table.files()["path"].to_pylist())
    assert other.transaction_version("app") == 3
    assert other.metadata().partition_columns == partition_by


def test_it_skips_by_our_statistics_without_losing_rows(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, WIDE)
    for number in range(12):
        table.append(pa.Table.from_pylist([_wide(number)], schema=WIDE))
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    for where in (
        "i8 = 7",
        "s = 'text 7" + "text 7" * 9 + "'",
        "t >= '2020-01-08T01:02:03.456789Z' and i8 < 8",
        "n = 0.875",
        "d = '2020-01-08'",
    ):
        found = pa.table(builder.execute(f"select i8 from t where {where}").read_all())
        assert found["i8"].to_pylist() == [7], where


@pytest.mark.parametrize("partition_by", [[], ["p", "day", "at"]])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_we_read_what_it_writes(tmp_path: Path, partition_by: list[str], checkpoint: bool) -> None:
    data = [_wide(number) for number in range(12)]
    for part in (data[:4], data[4:8], data[8:]):
        deltalake.write_deltalake(str(tmp_path), pa.Table.from_pylist(part, schema=WIDE), partition_by=partition_by or None, mode="append")
    if checkpoint:
        deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    table = DeltaTable.open(tmp_path)
    assert _sorted(table.to_arrow().to_pylist(), "i8") == data
    assert table.to_arrow(columns=["i8"], where="at = TIMESTAMP '2020-01-03 01:02:03.456789'")["i8"].to_pylist() == [2]
    assert table.to_arrow(columns=["i8"], where="s LIKE 'text 7%'")["i8"].to_pylist() == [7]


def test_a_table_written_in_turn(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"])
    present: set[int] = set()
    for turn in range(30):
        new = set(range(turn * 10, turn * 10 + 3))
        data = rows(turn * 10, turn * 10 + 3)
        other = deltalake.DeltaTable(str(tmp_path))
        match turn % 5:
            case 0 | 2:
                table.refresh().append(data, txn=("ours", turn))
                present |= new
            case 1:
                properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("theirs", turn)])
                deltalake.write_deltalake(other, data, mode="append", commit_properties=properties)
                present |= new
            case 3:
                table.refresh().overwrite(data.slice(0, 0), where=f"p = 'p{turn % 3}'")
                present = {i for i in present if i % 3 != turn % 3}
            case _:
                other.delete(f"id % 7 = {turn % 7}")
                present = {i for i in present if i % 7 != turn % 7}
        if turn in (7, 19):
            other.create_checkpoint()
        if turn == 13:
            table.refresh().checkpoint()
        assert ids(table.refresh().to_arrow()) == sorted(present)
    assert ids(DeltaTable.open(tmp_path).to_arrow()) == sorted(present)
    assert sorted(row["id"] for row in _oracle(tmp_path, "id")) == sorted(present)
    assert table.txn_version("theirs") == 26
    assert deltalake.DeltaTable(str(tmp_path)).transaction_version("ours") == 27
