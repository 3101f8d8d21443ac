"""`deltalake` as the oracle: each reads what the other writes, and a table written in turn is right for both."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConstraintViolation
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


def _sorted(records: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return sorted(
        ({**row, "map": row["map"] and list(row["map"])} if "map" in row else row for row in records),
        key=lambda row: row[key],
    )


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
    assert sorted(other.file_uris()) == sorted(
        table.store.url(path).removeprefix("file://") for path in table.files()["path"].to_pylist()
    )
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
        result = pa.table(builder.execute(f"select i8 from t where {where}").read_all())
        assert result["i8"].to_pylist() == [7], where


@pytest.mark.parametrize("partition_by", [[], ["p", "day", "at"]])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_we_read_what_it_writes(tmp_path: Path, partition_by: list[str], checkpoint: bool) -> None:
    data = [_wide(number) for number in range(12)]
    for part in (data[:4], data[4:8], data[8:]):
        deltalake.write_deltalake(
            str(tmp_path), pa.Table.from_pylist(part, schema=WIDE), partition_by=partition_by or None, mode="append"
        )
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


KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "constrained": {"delta.constraints.c": "i64 <= 0", "delta.appendOnly": "false"},
    "logged": {"delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "mapped by id": {"delta.columnMapping.mode": "id", "delta.enableChangeDataFeed": "true"},
    "columns in checkpoints": {
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
    },
}


def _everything(table: DeltaTable, mapped: bool) -> Iterator[str]:
    """Run operations in turn on a table of WIDE with rows 0 to 11. Yield the name of each after it."""
    columns = [name for name in WIDE.names if name not in ("list", "map", "flag")]
    source = pa.Table.from_pylist([_wide(number) for number in (3, 5, 20, 21)], schema=WIDE)
    table.update({"s": "concat(s, '!')", "p": "'a/b=c'", "f": "f * 2"}, "i8 % 4 = 1")
    yield "update"
    table.delete("i8 IN (2, 7) OR p = '50% é' AND i8 > 8")
    yield "delete"
    merge = table.merge(source, "t.i8 = s.i8").when_matched_update(
        {name: f"s.`{name}`" for name in columns}, "s.i8 < 5"
    )
    merge.when_matched_delete().when_not_matched_insert("*").when_not_matched_by_source_update(
        {"d": "NULL"}, "t.i8 = 0"
    ).execute()
    yield "merge"
    table.overwrite(
        pa.Table.from_pylist([_wide(number) for number in (4, 40)], schema=WIDE), where="i8 = 4 OR i8 BETWEEN 30 AND 50"
    )
    yield "overwrite where"
    table.optimize()
    yield "optimize"
    table.optimize(zorder_by=["t", "n", "s"])
    yield "zorder"
    table.add_columns(pa.schema([("added", pa.int32()), ("deep", pa.struct([("x", pa.int64())]))]))
    yield "add columns"
    table.update({"added": "i8", "deep.x": "i64"}, "i8 < 10")
    yield "update of new columns"
    table.append(pa.table({"i8": pa.array([60], pa.int8()), "i64": [-60], "extra": ["e"]}), schema_mode="merge")
    yield "append that evolves"
    if mapped:
        table.rename_column("s", "a `text`, renamed")
        table.rename_column("deep.x", "y.z")
        table.drop_columns(["n", "b"])
        yield "rename and drop"
        table.add_columns(pa.schema([("n", pa.string())]))
        table.update({"n": "`a ``text``, renamed`"}, "i8 < 5")
        yield "a name that comes back"
        if "p" in table.metadata.partition_columns:
            table.rename_column("p", "part")
            table.append(pa.table({"i8": pa.array([61], pa.int8()), "part": ["x y"]}))
            yield "renamed partition column"
    version = table.version
    table.delete()
    yield "delete all"
    table.restore(version)
    yield "restore"
    table.checkpoint()
    yield "checkpoint"
    table.drop_not_null("i8")
    table.reorder_columns(["i64", "t"])
    yield "reorder"
    table.overwrite(table.to_arrow(), schema_mode="overwrite", partition_by=["day"])
    yield "another partitioning"


@pytest.mark.parametrize(
    ("kind", "partition_by"),
    [
        ("mapped", ["p", "day"]),
        ("constrained", []),
        ("logged", []),
        *(
            pytest.param(*each, marks=pytest.mark.exhaustive)
            for each in (
                ("plain", ["p", "day"]),
                ("mapped by id", ["p", "day"]),
                ("columns in checkpoints", ["p", "day"]),
                ("mapped", []),
            )
        ),
    ],
)
def test_it_reads_the_result_of_every_operation(tmp_path: Path, kind: str, partition_by: list[str]) -> None:
    schema = pa.schema([WIDE.field("i8").with_nullable(False), *list(WIDE)[1:]])
    table = DeltaTable.create(tmp_path, schema, partition_by=partition_by, properties=KINDS[kind])
    for start in (0, 4, 8):
        table.append(pa.Table.from_pylist([_wide(number) for number in range(start, start + 4)], schema=WIDE))
    for name in _everything(table, "mapped" in kind):
        ours = table.to_arrow().to_pylist()
        assert Counter(map(str, _oracle(tmp_path))) == Counter(map(str, ours)), name
        assert Counter(map(str, DeltaTable.open(tmp_path).to_arrow().to_pylist())) == Counter(map(str, ours)), name
    assert len(ours) > 8


def test_it_reads_generated_columns_and_keeps_our_constraints(tmp_path: Path) -> None:
    generated = pa.field(
        "day", pa.date32(), metadata={b"SPARK::metadata::json": b'{"delta.generationExpression":"CAST(at AS DATE)"}'}
    )
    schema = pa.schema([pa.field("at", pa.timestamp("us", tz="UTC")), generated, pa.field("n", pa.int64())])
    table = DeltaTable.create(tmp_path, schema, partition_by=["day"], properties={"delta.constraints.small": "n < 100"})
    at = pa.array([-1, 0, 10**15], pa.timestamp("us", tz="UTC"))
    table.append(pa.table({"at": at, "n": [1, 2, 3]}))
    table.merge(pa.table({"at": at, "n": [2, 3, 4]}), "t.n = s.n").when_matched_update("*").when_not_matched_insert(
        "*"
    ).execute()
    records = sorted(_oracle(tmp_path), key=lambda row: row["n"])
    assert records == sorted(table.to_arrow().to_pylist(), key=lambda row: row["n"])
    assert [str(row["day"]) for row in records] == ["1969-12-31", "1969-12-31", "1970-01-01", "2001-09-09"]
    other = deltalake.DeltaTable(str(tmp_path))
    with pytest.raises(Exception, match="failed validation check"):
        deltalake.write_deltalake(
            other, pa.table({"at": at[:1], "day": [dt.date(1969, 12, 31)], "n": [500]}), mode="append"
        )
    assert table.refresh().version == 2


def test_they_keep_one_anothers_constraints(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(0, 5))
    deltalake.DeltaTable(str(tmp_path)).alter.add_constraint({"low": "id < 10"})
    table = DeltaTable.open(tmp_path)
    assert table.constraints == {"low": "id < 10"}
    with pytest.raises(ConstraintViolation, match="low"):
        table.append(rows(10, 11))
    table.drop_constraint("low")
    table.add_constraint("mine", "v IS NOT NULL AND p LIKE 'p_'")
    with pytest.raises(Exception, match="failed validation check"):
        deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1], "p": ["other"], "v": [1.0]}), mode="append")
    deltalake.write_deltalake(str(tmp_path), rows(20, 21), mode="append")
    assert ids(table.refresh().to_arrow()) == [0, 1, 2, 3, 4, 20]


def test_operations_in_turn_with_its_own(tmp_path: Path) -> None:
    """Each implementation merges, updates and optimizes what the other wrote."""
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"})
    table.append(rows(0, 20))
    for turn in range(3):
        other = deltalake.DeltaTable(str(tmp_path))
        other.update({"v": "v + 1"}, predicate=f"id % 5 = {turn}")
        source = rows(15 + turn, 25 + turn)
        merge = deltalake.DeltaTable(str(tmp_path)).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update({"v": "s.v"}).when_not_matched_insert_all().execute()
        table.refresh().update({"v": "v * 2"}, f"id % 3 = {turn}")
        merge_builder = table.merge(source, "t.id = s.id").when_matched_delete("t.id % 2 = 0")
        merge_builder.when_not_matched_by_source_update({"v": "0"}, "id = 1").execute()
        deltalake.DeltaTable(str(tmp_path)).optimize.compact()
        table.refresh().optimize(zorder_by=["id"])
        assert Counter(map(str, _oracle(tmp_path))) == Counter(map(str, table.to_arrow().to_pylist()))
    feed = table.changes(1).read_all()
    theirs = pa.table(deltalake.DeltaTable(str(tmp_path)).load_cdf(starting_version=1).read_all())
    names = ["id", "p", "v", "_change_type", "_commit_version"]
    assert Counter(map(str, feed.select(names).to_pylist())) == Counter(map(str, theirs.select(names).to_pylist()))


def test_a_table_with_deletion_vectors_as_it_makes_it(tmp_path: Path) -> None:
    """It lists the feature of variants, which no column is."""
    properties = {"delta.enableDeletionVectors": "true"}
    theirs = deltalake.DeltaTable.create(
        str(tmp_path), deltalake.Schema.from_arrow(pa.schema([("id", pa.int64())])), configuration=properties
    )
    assert "variantType" in (theirs.protocol().reader_features or ())
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1, 2]}), mode="append")
    table = DeltaTable.open(str(tmp_path))
    assert ids(table.to_arrow()) == [1, 2]
    table.append(pa.table({"id": [3]}))
    table.delete("id = 1")
    table.checkpoint()
    assert ids(DeltaTable.open(str(tmp_path)).to_arrow()) == [2, 3]
    assert "variantType" in (deltalake.DeltaTable(str(tmp_path)).protocol().reader_features or ())
