"""Statistics in checkpoints, as text and as columns: which columns have any, and that readers skip the same files."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.log_segment import checkpoint_key, commit_key
from lake_core.delta.scan import plan_scan
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, rows

AS_JSON, AS_STRUCT = "delta.checkpoint.writeStatsAsJson", "delta.checkpoint.writeStatsAsStruct"
WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("i8", pa.int8()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("n", pa.decimal128(20, 4)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("st", pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string())]))])),
        ("l", pa.list_(pa.int64())),
        ("p", pa.date32()),
        ("q", pa.string()),
    ]
)
BASE = dt.datetime(1969, 12, 30, 12, 0, 0, 123456, tzinfo=dt.UTC)


def row(number: int) -> dict[str, Any]:
    at = BASE + dt.timedelta(hours=7 * number)
    return {
        "id": number,
        "i8": number - 5,
        "f": number / 4,
        "d": float("nan") if number == 3 else -number / 8,
        "n": Decimal(number - 4) / 16,
        "s": f'{number:02d} "é\n' + "x" * 40,
        "b": bytes([number]),
        "flag": number % 2 == 0,
        "day": at.date(),
        "at": at,
        "st": None if number == 4 else {"x": number, "deep": {"y": f"y{number}"}},
        "l": [number],
        "p": at.date() if number % 3 else None,
        "q": ["a b", "", "ü/%"][number % 3],
    }


FILTERS = [
    "id = 7",
    "i8 < -2",
    "f < 0.3",
    "d < -0.8",
    "n BETWEEN 0 AND 0.2",
    "s LIKE '05%'",
    "s > '08'",
    "day = DATE '1970-01-01'",
    "at >= TIMESTAMP '1970-01-01 09:00:00.123456Z' AND id < 100",
    "st.x = 6",
    "st.deep.y = 'y2'",
    "st IS NULL OR st.x IS NULL",
    "p IS NULL AND id > 2",
    "q = 'ü/%' AND id > 4",
    "id IS NULL",
]


def create(folder: Path, properties: dict[str, str], partitioned: bool) -> DeltaTable:
    table = DeltaTable.create(folder, WIDE, partition_by=["p", "q"] if partitioned else [], properties=properties)
    for number in range(10):
        table.append(pa.Table.from_pylist([row(number)], schema=WIDE))
    return table


def opened(table: DeltaTable) -> list[int]:
    return [len(plan_scan(table.snapshot, None, where).files) for where in FILTERS]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(
    ("as_json", "as_struct"),
    [
        (True, True),
        *(
            pytest.param(*forms, marks=pytest.mark.exhaustive)
            for forms in [(True, False), (False, True), (False, False)]
        ),
    ],
)
def test_forms(tmp_path: Path, as_json: bool, as_struct: bool, partitioned: bool, mapped: bool) -> None:
    properties = {AS_JSON: str(as_json).lower(), AS_STRUCT: str(as_struct).lower(), "delta.checkpointInterval": "100"}
    table = create(tmp_path, {**properties, **({"delta.columnMapping.mode": "name"} if mapped else {})}, partitioned)
    by_log = opened(table)
    assert max(by_log[:9]) <= 6
    assert by_log[0] == 1
    table.checkpoint()
    fields = pq.read_schema(tmp_path / checkpoint_key(table.version)).field("add").type
    names = {child.name for child in fields}
    assert ("stats" in names, "stats_parsed" in names, "partitionValues_parsed" in names) == (
        as_json,
        as_struct,
        as_struct and partitioned,
    )
    if as_struct:
        assert {child.name for child in fields.field("stats_parsed").type} >= {
            "numRecords",
            "minValues",
            "maxValues",
            "nullCount",
        }
        low = fields.field("stats_parsed").type.field("minValues").type
        kinds = [
            low.field(table.metadata.column_mapping.physical_path((name,))[0]).type for name in ("day", "at", "n", "f")
        ]
        assert kinds == [pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(20, 4), pa.float32()]
    if as_struct and partitioned:
        actual = pq.read_table(tmp_path / checkpoint_key(table.version))["add"].combine_chunks().drop_null()
        keys = table.metadata.partition_keys
        typed = [
            tuple(values[keys[name]] for name in ("p", "q"))
            for values in actual.field("partitionValues_parsed").to_pylist()
        ]
        assert Counter(typed) == Counter((values["p"], values["q"] or None) for values in map(row, range(10)))
    for version in range(table.version + 1):
        (tmp_path / commit_key(version)).unlink()
    again = DeltaTable.open(tmp_path)
    whole = held(again)
    model = [row(number) for number in range(10)]
    if partitioned:
        model = [{**values, "q": values["q"] or None} for values in model]
    assert whole == Counter(map(str, pa.Table.from_pylist(model, schema=WIDE).to_pylist()))
    assert again.files()["num_records"].to_pylist() == [1] * 10 if as_json or as_struct else [None] * 10
    if as_json or as_struct:
        assert opened(again) == by_log
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    assert Counter(map(str, pa.table(builder.execute("select * from t").read_all()).to_pylist())) == whole
    for where in ("id = 7", "f < 0.3", "st.x = 6", "day = '1970-01-01'", "n > 0.2", "s > '08'"):
        sql = where.replace("st.x", "st['x']")
        actual = pa.table(builder.execute(f"select * from t where {sql}").read_all())
        assert Counter(map(str, actual.to_pylist())) == held(again, where.replace("'1970", "DATE '1970")), where
    again.delete("id = 7")  # and the state that is written next is as good
    again.checkpoint()
    third = DeltaTable.open(tmp_path)
    assert held(third) == held(again)
    assert third.to_arrow().num_rows == 9


def test_the_forms_may_change(tmp_path: Path) -> None:
    """A checkpoint with columns only is followed by one with text only, and the reverse."""
    table = create(tmp_path, {AS_JSON: "false", AS_STRUCT: "true", "delta.checkpointInterval": "100"}, True)
    before, whole = opened(table), held(table)
    for as_json in ("true", "false", "true"):
        table.checkpoint()
        for version in range(table.version + 1):
            (tmp_path / commit_key(version)).unlink(missing_ok=True)
        table = DeltaTable.open(tmp_path)
        assert (opened(table), held(table)) == (before, whole)
        table.set_properties({AS_JSON: as_json, AS_STRUCT: "false" if as_json == "true" else "true"})


def test_text_of_others_that_is_no_column_stays_text() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties={AS_JSON: "false", AS_STRUCT: "true"})
    table.append(rows(0, 3))
    path = table.files()["path"][0].as_py()
    odd = [
        '{"numRecords":3,"minValues":{"id":"zero"},"maxValues":{},"nullCount":{}}',
        "",
        "nonsense",
        '{"numRecords":3,"minValues":[1]}',
        None,
    ]
    for number, stats in enumerate(odd):
        body = bytes(store.get(path))
        store.put(f"copy-{number}.parquet", body)
        add = {
            "path": f"copy-{number}.parquet",
            "partitionValues": {},
            "size": len(body),
            "modificationTime": 0,
            "dataChange": True,
            "stats": stats,
        }
        store.put(commit_key(2 + number), json.dumps({"add": add}).encode())
    table.refresh().checkpoint()
    store.delete([commit_key(version) for version in range(table.version + 1)])
    again = DeltaTable.open(store)
    assert again.to_arrow(where="id = 1").num_rows == 6
    assert again.files().num_rows == 6


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ({}, {"id", "i8", "f", "d", "n", "s", "b", "flag", "day", "at", "st.x", "st.deep.y", "l"}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, set()),
        ({"delta.dataSkippingNumIndexedCols": "2"}, {"id", "i8"}),
        (
            {"delta.dataSkippingNumIndexedCols": "11"},
            {"id", "i8", "f", "d", "n", "s", "b", "flag", "day", "at", "st.x"},
        ),
        ({"delta.dataSkippingStatsColumns": "ST, `f`"}, {"f", "st.x", "st.deep.y"}),
        (
            {"delta.dataSkippingStatsColumns": "st.deep,id", "delta.dataSkippingNumIndexedCols": "1"},
            {"id", "st.deep.y"},
        ),
        ({"delta.dataSkippingStatsColumns": ""}, set()),
    ],
)
@pytest.mark.parametrize("mapped", [False, True])
def test_which_columns_get_statistics(
    tmp_path: Path, properties: dict[str, str], wanted: set[str], mapped: bool
) -> None:
    both = {AS_JSON: "false", AS_STRUCT: "true", **properties}
    table = create(tmp_path, {**both, **({"delta.columnMapping.mode": "name"} if mapped else {})}, True)
    logical = {
        child: name for name in WIDE.names for child in [table.metadata.column_mapping.physical_path((name,))[0]]
    }
    for stats in (table.files()["stats"].to_pylist(), DeltaTable.open(tmp_path).files()["stats"].to_pylist()):
        for text in stats:
            counts = json.loads(text).get("nullCount") or {}
            assert {logical[name] for name in counts} == {name.split(".")[0] for name in wanted}
            if not mapped:
                assert set(_leaves(counts)) == wanted
    assert table.version == 10
    assert (tmp_path / checkpoint_key(10)).exists()
    assert table.to_arrow(where="id = 7")["id"].to_pylist() == [7]
    assert (len(plan_scan(table.snapshot, None, "id = 7").files) == 1) == ("id" in wanted)
    table.optimize(zorder_by=["id"])
    table.update({"i8": "0"}, "id = 7")
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    assert pa.table(builder.execute("select count(*) n from t where id = 7 and i8 = 0").read_all())[
        "n"
    ].to_pylist() == [1]


def _leaves(body: dict[str, Any], path: str = "") -> list[str]:
    paths: list[str] = []
    for name, value in body.items():
        paths += _leaves(value, f"{path}{name}.") if isinstance(value, dict) else [f"{path}{name}"]
    return paths


def test_names_with_dots_and_backticks() -> None:
    schema = pa.schema(
        [("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())])), ("c`d", pa.int64()), ("e,f", pa.int64())]
    )
    for text, expected in (("`a.b`,`c``d`", {"a.b", "c`d"}), ("a.b", {"a"}), ("`e,f`", {"e,f"}), (" a . `b` ", {"a"})):
        table = DeltaTable.create(MemoryStore(), schema, properties={"delta.dataSkippingStatsColumns": text})
        table.append(pa.table({"a.b": [1], "a": [{"b": 1}], "c`d": [1], "e,f": [1]}))
        assert set(json.loads(table.files()["stats"][0].as_py())["nullCount"]) == expected


@pytest.mark.parametrize(
    "name",
    [
        "krs-v1-single-part-struct-stats-only",
        "krs-v1-multi-part-struct-stats-only",
        "golden-data-skipping-basic-stats-all-types-checkpoint",
    ],
)
def test_checkpoints_of_others_with_columns_alone(cases: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(cases / "delta" / name, tmp_path / "t")
    table = DeltaTable.open(tmp_path / "t")
    before, stats = held(table), sorted(table.files()["stats"].to_pylist())
    table.checkpoint()
    again = DeltaTable.open(tmp_path / "t")
    assert held(again) == before
    assert sorted(again.files()["stats"].to_pylist()) == stats
    table.set_properties({AS_JSON: "false", AS_STRUCT: "true"})
    table.checkpoint()
    again = DeltaTable.open(tmp_path / "t")
    assert held(again) == before
    assert sorted(again.files()["num_records"].to_pylist()) == sorted(table.files()["num_records"].to_pylist())
