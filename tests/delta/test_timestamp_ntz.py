"""Timestamps without a time zone: taken where a table asks for them, refused where their zone would be a guess."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import SchemaMismatch, UnsupportedType
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, ids, oracle, rows

CLOCK = pa.timestamp("us")
ZONED = pa.timestamp("us", tz="UTC")
WANTED = pa.schema([("id", pa.int64()), ("at", CLOCK), ("seen", ZONED), ("s", pa.struct([("at", CLOCK)]))])
SUPPORTED = {"delta.feature.timestampNtz": "supported"}


def at(day: int) -> dt.datetime:
    return dt.datetime(2024, 3, day, 2, 30, 0, 123456)


def days(*numbers: int, kind: pa.DataType = CLOCK) -> pa.Table:
    moments = [at(number) for number in numbers]
    zoned = [moment.replace(tzinfo=dt.UTC) for moment in moments]
    structs = pa.array([{"at": moment} for moment in moments], pa.struct([("at", CLOCK)]))
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "at": pa.array(moments, kind),
            "seen": pa.array(zoned, ZONED),
            "s": structs,
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    table = DeltaTable.create(tmp_path, WANTED, properties=SUPPORTED)
    table.append(days(1, 2, 3))
    return table


def test_a_table_that_asks_for_them_has_the_feature(table: DeltaTable, tmp_path: Path) -> None:
    assert table.schema.equals(WANTED)
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (3, 7)
    assert table.protocol.reader_features == {"timestampNtz"}
    assert table.to_arrow()["at"].to_pylist() == [at(1), at(2), at(3)]
    assert oracle(tmp_path) == held(table)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_that_is_exact(table: DeltaTable, unit: str) -> None:
    moment = dt.datetime(1960, 2, 29, 23, 59, 59)
    table.append(pa.table({"id": [9], "at": pa.array([moment], pa.timestamp(unit))}))
    assert table.to_arrow(where="id = 9")["at"].to_pylist() == [moment]


def test_every_operation(table: DeltaTable, tmp_path: Path) -> None:
    table.update({"at": "TIMESTAMP_NTZ '2020-01-01 00:00:00'"}, "at > TIMESTAMP_NTZ '2024-03-03 00:00:00'")
    assert table.to_arrow(where="id = 3")["at"].to_pylist() == [dt.datetime(2020, 1, 1)]
    table.merge(days(2, 5), "t.at = s.at").when_matched_delete().when_not_matched_insert("*").execute()
    assert ids(table.to_arrow()) == [1, 3, 5]
    wider = days(5).append_column("more", pa.array([at(9)], CLOCK))
    table.merge(wider, "t.id = s.id").with_schema_evolution().when_matched_update("*").execute()
    assert table.to_arrow(where="more IS NOT NULL")["more"].to_pylist() == [at(9)]
    table.append(wider.append_column("wall", pa.array([at(8)], CLOCK)), schema_mode="merge")
    table.delete("wall = TIMESTAMP_NTZ '2024-03-08 02:30:00.123456'")
    table.optimize()
    assert ids(table.to_arrow(where="at < TIMESTAMP_NTZ '2024-03-05 02:30:00.123457'")) == [1, 3, 5]
    assert oracle(tmp_path) == held(table)


def test_statistics_lose_no_row_for_others(table: DeltaTable, tmp_path: Path) -> None:
    table.append(days(20, 21))
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    for query, expected in (("at >= '2024-03-21 02:30:00.123456'", [21]), ("at <= '2024-03-01 02:30:00.123456'", [1])):
        assert pa.table(builder.execute(f"select id from t where {query}").read_all())["id"].to_pylist() == expected
        assert table.to_arrow(where=query.replace("'", "TIMESTAMP_NTZ '", 1))["id"].to_pylist() == expected


def test_partitions(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, WANTED, partition_by=["at"], properties=SUPPORTED)
    table.append(days(1, 2))
    table.overwrite(days(2, 2), dynamic=True)
    assert ids(table.to_arrow(where="at = TIMESTAMP_NTZ '2024-03-02 02:30:00.123456'")) == [2, 2]
    assert oracle(tmp_path) == held(table)


@pytest.mark.parametrize("kind", [CLOCK, pa.struct([("x", CLOCK)]), pa.list_(CLOCK), pa.map_(pa.string(), CLOCK)])
def test_a_table_that_did_not_ask_gets_none(kind: pa.DataType) -> None:
    store = MemoryStore()
    with pytest.raises(UnsupportedType, match="'moment' has timestamps without a time zone"):
        DeltaTable.create(store, pa.schema([("id", pa.int64()), ("moment", kind)]))
    assert not list(store.list())
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 3))
    wider = rows(2, 5).append_column("moment", pa.nulls(3, kind))
    for change in (
        lambda: table.append(wider, schema_mode="merge"),
        lambda: table.overwrite(wider, schema_mode="overwrite"),
        lambda: table.add_columns(pa.schema([("moment", kind)])),
        lambda: table.merge(wider, "t.id = s.id").with_schema_evolution().when_matched_update("*").execute(),
    ):
        keys = {meta.key for meta in store.list()}
        with pytest.raises(UnsupportedType, match=r"delta\.feature\.timestampNtz"):
            change()
        assert {meta.key for meta in store.list()} == keys
    table.set_properties(SUPPORTED)
    table.add_columns(pa.schema([("moment", kind)]))
    table.append(wider)
    assert table.to_arrow().schema.field("moment").type == kind


def test_nothing_is_taken_for_an_instant_or_for_a_clock_time(table: DeltaTable) -> None:
    naive = pa.table({"id": [7], "seen": pa.array([at(7)], CLOCK)})
    version = table.version
    with pytest.raises(UnsupportedType, match="'seen'"):
        table.append(naive)
    with pytest.raises(UnsupportedType, match="'seen'"):
        table.merge(naive, "t.id = s.id").when_not_matched_insert({"id": "s.id", "seen": "s.seen"}).execute()
    with pytest.raises(UnsupportedType, match="'seen'"):
        table.update({"seen": "at"})
    with pytest.raises(SchemaMismatch):
        table.append(days(7, kind=ZONED))
    assert table.refresh().version == version
    table.update({"seen": "CAST(at AS TIMESTAMP)", "s.at": "seen"})
    assert table.to_arrow()["seen"].to_pylist() == [at(day).replace(tzinfo=dt.UTC) for day in (1, 2, 3)]
