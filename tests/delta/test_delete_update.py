"""DELETE and UPDATE: the right rows, only the files that hold one, their metrics, and their markers."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.errors import InvalidTransaction, SchemaMismatch
from lake_core.expression import InvalidExpression
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, ids, oracle, paths, rows
from tests.examples import examples


def test_only_the_files_that_hold_a_row_are_written_anew(table: DeltaTable) -> None:
    before = paths(table)
    result = table.delete("id = 7")
    metrics = {key: value for key, value in result.metrics.items() if "Bytes" not in key and "Time" not in key}
    assert metrics == {
        "numRemovedFiles": 1,
        "numAddedFiles": 1,
        "numAddedChangeFiles": 0,
        "numDeletedRows": 1,
        "numCopiedRows": 1,
    }
    assert len(before & paths(table)) == 8
    assert len(paths(table)) == 9
    entry = table.history(1)[0]
    assert (entry["operation"], entry["operationParameters"]) == ("DELETE", {"predicate": '["id = 7"]'})
    assert {key: str(value) for key, value in result.metrics.items()} == entry["operationMetrics"]
    assert entry["isBlindAppend"] is False
    assert entry["readVersion"] == 3
    before = paths(table)
    result = table.update({"v": "-v"}, "id IN (0, 1, 16)")
    assert (result.metrics["numUpdatedRows"], result.metrics["numCopiedRows"], result.metrics["numRemovedFiles"]) == (
        3,
        3,
        3,
    )
    assert len(before & paths(table)) == 6
    assert {row["id"]: row["v"] for row in table.to_arrow(where="v <= 0").to_pylist()} == {0: 0.0, 1: -0.5, 16: -8.0}


def test_whole_partitions_go_by_the_log_alone(table: DeltaTable) -> None:
    for meta in list(table.store.list()):
        if meta.key.endswith(".parquet") and "p=p1" in meta.key:
            table.store.delete([meta.key])  # no file has to be opened
    result = table.delete("p = 'p1' OR p = 'none'")
    assert (result.metrics["numDeletedRows"], result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (
        6,
        3,
        0,
    )
    result = table.delete()
    assert (result.metrics["numDeletedRows"], result.metrics["numRemovedFiles"]) == (12, 6)
    assert table.to_arrow().num_rows == 0
    assert table.delete().version == table.version == 5


def test_a_file_of_which_all_rows_go_leaves_none_behind(table: DeltaTable) -> None:
    result = table.delete("v < 3 AND id < 6")
    assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"], result.metrics["numCopiedRows"]) == (
        3,
        0,
        0,
    )
    assert ids(table.to_arrow()) == list(range(6, 18))
    assert table.update({"v": "0"}).metrics["numUpdatedRows"] == 12


def test_nothing_to_do_commits_nothing(store: MemoryStore, table: DeltaTable) -> None:
    before = [meta.key for meta in store.list()]
    operations: tuple[Callable[[], Any], ...] = (
        lambda: table.delete("id = 100"),
        lambda: table.delete("p = 'none'"),
        lambda: table.delete("FALSE"),
        lambda: table.delete("NULL"),
        lambda: table.delete("v IS NULL AND id > 3"),
        lambda: table.update({"v": "1"}, "id % 2 = 5"),
        lambda: table.update({"v": "1 / 0"}, "id = 100"),
    )
    for operation in operations:
        assert (operation().version, dict(operation().metrics)) == (3, {})
    assert [meta.key for meta in store.list()] == before


def test_empty_tables_and_files_without_rows(store: MemoryStore) -> None:
    import json

    from lake_core.delta.log_segment import commit_key

    table = DeltaTable.create(store, SCHEMA)
    assert (table.delete("id = 1").version, table.delete().version, table.update({"v": "1"}).version) == (0, 0, 0)
    sink = pa.BufferOutputStream()
    import pyarrow.parquet as pq

    pq.write_table(SCHEMA.empty_table(), sink)
    body = sink.getvalue().to_pybytes()
    store.put("empty.parquet", body)
    for number, stats in enumerate((None, '{"numRecords":0}')):
        add = {
            "path": "empty.parquet",
            "partitionValues": {},
            "size": len(body),
            "modificationTime": 0,
            "dataChange": True,
            "stats": stats,
        }
        store.put(commit_key(number + 1), json.dumps({"add": add}).encode())
    table.refresh().append(rows(0, 2))
    assert table.update({"v": "9"}, "id >= 0").metrics["numUpdatedRows"] == 2
    assert (
        table.merge(rows(0, 1), "t.id = s.id")
        .when_not_matched_by_source_delete()
        .execute()
        .metrics["numTargetRowsDeleted"]
        == 1
    )
    assert table.delete("id + v > 0").metrics["numDeletedRows"] == 1
    table.append(rows(0, 2))
    assert table.optimize().metrics["numRemovedFiles"] == 2
    assert table.to_arrow().num_rows == 2


def test_update_of_fields_partitions_and_by_old_values(store: MemoryStore) -> None:
    kind = pa.struct([pa.field("A.b", pa.int64()), pa.field("c", pa.struct([("d", pa.string())]))])
    table = DeltaTable.create(
        store, pa.schema([("id", pa.int64()), ("x", pa.int64()), ("s", kind), ("p", pa.string())]), partition_by=["p"]
    )
    first = {"id": [1, 2], "x": [10, 20], "s": [None, {"A.b": 1, "c": None}], "p": ["a", "b"]}
    table.append(pa.table(first, schema=table.schema))
    table.update({"S.C.D": "p", "ID": "X", "x": "id", "P": "CASE WHEN id = 1 THEN '' ELSE concat(p, '/c=d%20') END"})
    actual = sorted(table.to_arrow().to_pylist(), key=lambda row: row["x"])
    assert actual == [
        {"id": 10, "x": 1, "s": {"A.b": None, "c": {"d": "a"}}, "p": None},
        {"id": 20, "x": 2, "s": {"A.b": 1, "c": {"d": "b"}}, "p": "b/c=d%20"},
    ]
    assert ids(table.to_arrow(where="p = 'b/c=d%20'")) == [20]
    assert ids(table.to_arrow(where="p IS NULL")) == [10]
    assert ids(table.to_arrow(where="s.c.d = 'b'")) == [20]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, SchemaMismatch),
        ({"zz": "1"}, SchemaMismatch),
        ({"v": "1", "V": "2"}, SchemaMismatch),
        ({"v.x": "1"}, SchemaMismatch),
        ({"v": "zz"}, InvalidExpression),
        ({"v": "'text'"}, InvalidExpression),
        ({"p": "array(1)"}, InvalidExpression),
        ({"v": ""}, InvalidExpression),
        ({"v": "sum(v)"}, InvalidExpression),
        ({"v": 1}, InvalidExpression),
        ({1: "v"}, SchemaMismatch),
        ("v = 1", SchemaMismatch),
    ],
)
def test_bad_changes_are_refused(store: MemoryStore, table: DeltaTable, changes: Any, error: type[Exception]) -> None:
    before = [meta.key for meta in store.list()]
    with pytest.raises(error):
        table.update(changes)
    with pytest.raises(InvalidExpression):
        table.update({"v": "1"}, "zz = 1")
    with pytest.raises(InvalidExpression):
        table.delete("")
    assert [meta.key for meta in store.list()] == before


def operations(data: pa.Table) -> dict[str, Callable[[DeltaTable, Any], Any]]:
    """Return every operation that takes a marker, for a table of SCHEMA with a few rows."""
    return {
        "append": lambda table, txn: table.append(data, txn=txn),
        "overwrite": lambda table, txn: table.overwrite(data, txn=txn),
        "overwrite where": lambda table, txn: table.overwrite(data.slice(0, 1), where="id = 0", txn=txn),
        "overwrite dynamic": lambda table, txn: table.overwrite(data, dynamic=True, txn=txn),
        "delete": lambda table, txn: table.delete("id = 1", txn=txn),
        "delete all": lambda table, txn: table.delete(txn=txn),
        "update": lambda table, txn: table.update({"v": "v + 1"}, txn=txn),
        "merge": lambda table, txn: (
            table.merge(data, "t.id = s.id + 2").when_matched_delete().when_not_matched_insert("*").execute(txn=txn)
        ),
        "optimize": lambda table, txn: table.optimize(txn=txn),
        "zorder": lambda table, txn: table.optimize(zorder_by=["v"], txn=txn),
        "restore": lambda table, txn: table.restore(1, txn=txn),
        "set properties": lambda table, txn: table.set_properties({"a": "b"}, txn=txn),
        "unset properties": lambda table, txn: table.unset_properties(["own"], txn=txn),
        "add constraint": lambda table, txn: table.add_constraint("c", "id >= 0", txn=txn),
        "drop constraint": lambda table, txn: table.drop_constraint("old", txn=txn),
        "add columns": lambda table, txn: table.add_columns(pa.schema([("n", pa.int64())]), txn=txn),
        "rename column": lambda table, txn: table.rename_column("v", "w", txn=txn),
        "drop columns": lambda table, txn: table.drop_columns(["v"], txn=txn),
        "drop not null": lambda table, txn: table.drop_not_null("id", txn=txn),
        "reorder columns": lambda table, txn: table.reorder_columns(["v"], txn=txn),
    }


def marked(store: MemoryStore) -> DeltaTable:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *list(SCHEMA)[1:]])
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.constraints.old": "id < 1000",
        "own": "x",
        "delta.enableChangeDataFeed": "true",
    }
    table = DeltaTable.create(store, schema, partition_by=["p"], properties=properties)
    table.append(rows(0, 4))
    table.append(rows(4, 8))
    return table


@pytest.mark.parametrize("kind", operations(SCHEMA.empty_table()))
def test_a_marker_makes_each_operation_happen_once(store: MemoryStore, kind: str) -> None:
    table = marked(store)
    stale = DeltaTable.open(store)
    operation = operations(rows(0, 3))[kind]
    first = operation(table, ("job", 5))
    assert (first.version, first.skipped, table.txn_version("job")) == (3, False, 5)
    before, keys = held(table), [meta.key for meta in store.list()]
    for handle in (table, DeltaTable.open(store), stale):
        again = operation(handle, ("job", 5))
        assert (again.version, again.skipped, handle.version) == (3, True, 3)
        if hasattr(first, "metrics"):
            assert again.metrics == first.metrics != {}
        else:
            assert (again.rows, again.files, again.bytes) == (first.rows, first.files, first.bytes)
        assert operation(handle, ("job", 4)).skipped
    assert held(table) == before
    assert [meta.key for meta in store.list()] == keys
    with pytest.raises(InvalidTransaction):
        operation(table, ("", 1))


@pytest.mark.parametrize("kind", ["delete", "update", "merge", "optimize", "restore", "set", "unset", "add", "reorder"])
def test_a_marker_is_set_though_there_is_nothing_to_do(store: MemoryStore, kind: str) -> None:
    table = marked(store)
    table.optimize()
    operation: Callable[[Any], Any] = {
        "delete": lambda txn: table.delete("id = 100", txn=txn),
        "update": lambda txn: table.update({"v": "1"}, "id = 100", txn=txn),
        "merge": lambda txn: table.merge(rows(100, 101), "t.id = s.id").when_matched_delete().execute(txn=txn),
        "optimize": lambda txn: table.optimize(txn=txn),
        "restore": lambda txn: table.restore(3, txn=txn),
        "set": lambda txn: table.set_properties({"own": "x"}, txn=txn),
        "unset": lambda txn: table.unset_properties(["none"], txn=txn),
        "add": lambda txn: table.add_columns(pa.schema([("v", pa.float64())]), txn=txn),
        "reorder": lambda txn: table.reorder_columns(["id"], txn=txn),
    }[kind]
    assert operation(None).version == 3
    first = operation(("job", 1))
    assert (first.version, first.skipped, table.txn_version("job")) == (4, False, 1)
    again = operation(("job", 1))
    assert (again.version, again.skipped) == (4, True)
    assert table.files().num_rows == 3


CASES = [
    "kerneljava-basic-dv-no-checkpoint",
    "krs-table-with-dv-small",
    "golden-dv-with-columnmapping",
    "krs-cdf-table-with-dv",
    "rs-table_with_deletion_logs",
    "golden-table-with-columnmapping-mode-name",
    "rs-table_with_partitioning_mapping",
    "kerneljava-data-reader-partition-values-column-mapping-name",
    "golden-data-reader-escaped-chars",
    "rs-delta-2.2.0-partitioned-types",
    "krs-cdf-table-backtick-column-names",
    "golden-data-reader-timestamp_ntz-id-mode",
    "krs-mixed-nulls",
]


@pytest.mark.parametrize("name", CASES)
def test_tables_of_others(cases: Path, tmp_path: Path, name: str) -> None:
    """Delete every other row of a table with deletion vectors, mapped or odd columns, then update one column.

    The update sets the column to its own values.
    """
    shutil.copytree(cases / "delta" / name, tmp_path / "t")
    table = DeltaTable.open(tmp_path / "t")
    before = table.to_arrow()
    column = next(
        child.name
        for child in table.schema
        if not pa.types.is_nested(child.type) and before[child.name].null_count < len(before)
    )
    quoted = "`" + column.replace("`", "``") + "`"
    values = [value for value in before[column].to_pylist() if value is not None]
    pivot = sorted(values)[len(values) // 2]
    where = f"{quoted} >= {_literal(pivot)}"
    gone = [row for row in before.to_pylist() if row[column] is not None and row[column] >= pivot]
    table.update({column: quoted})
    assert held(table) == Counter(map(str, before.to_pylist()))
    result = table.delete(where)
    assert result.metrics.get("numDeletedRows", len(gone)) == len(gone) > 0
    assert held(table) == Counter(map(str, before.to_pylist())) - Counter(map(str, gone))
    assert oracle(tmp_path / "t") == held(table)


def _literal(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP{'' if value.tzinfo else '_NTZ'} '{value.replace(tzinfo=None)}'"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    return repr(value) if isinstance(value, (str, int, float, bool)) else str(value)


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["", None, "a b", "ü/=%", "__HIVE_DEFAULT_PARTITION__"]),
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-128, 0, None]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float": (pa.float32(), [0.1, float("inf"), None]),
    "double": (pa.float64(), [float("nan"), -0.0, 1e-300, None]),
    "decimal": (pa.decimal128(12, 10), [Decimal("1e-10"), Decimal("-3.5"), None]),
    "binary": (pa.binary(), [b"a", b"\xc3\xbc", None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC), None],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_partitions_of_every_type(tmp_path: Path, name: str) -> None:
    kind, values = VALUES[name]
    data = pa.table({"id": list(range(len(values))), "k": pa.array(values, kind)})
    table = DeltaTable.create(tmp_path, data.schema, partition_by=["k"])
    table.append(data)
    table.overwrite(data, dynamic=True)
    table.merge(data, "t.k <=> s.k").when_matched_update({"id": "s.id + 10"}).when_not_matched_insert("*").execute()
    table.update({"id": "id + 1"}, "k IS NOT NULL")
    table.delete("k IS NULL")
    exact = table.schema.empty_table().schema.field("k").type
    kept = [(number + 11, value) for number, value in enumerate(data["k"].to_pylist()) if value not in (None, "")]
    model = pa.table({"id": [number for number, _ in kept], "k": pa.array([value for _, value in kept], exact)})
    expected = sorted(map(str, model.to_pylist()))
    # '' became null when it was written, so the source's '' matched no row and was inserted as another null.
    assert sorted(map(str, table.to_arrow().to_pylist())) == expected
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    assert sorted(map(str, pa.table(builder.execute("select * from t").read_all()).to_pylist())) == expected


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool | None]] = {
    "id > 5": lambda row: None if row["id"] is None else row["id"] > 5,
    "p = 'p1'": lambda row: None if row["p"] is None else row["p"] == "p1",
    "v IS NULL": lambda row: row["v"] is None,
    "v <=> id": lambda row: row["v"] == row["id"],
    "id % 3 = 1": lambda row: None if row["id"] is None else row["id"] % 3 == 1,
    "coalesce(v, 0) < 4": lambda row: (row["v"] or 0) < 4,
    "p IS NULL": lambda row: row["p"] is None,
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.one_of(st.none(), st.integers(0, 9)),
            "p": st.sampled_from(["p0", "p1", None]),
            "v": st.one_of(st.none(), st.integers(0, 9).map(float)),
        }
    ),
    max_size=6,
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    files=st.lists(ROWS, min_size=1, max_size=3),
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(CONDITIONS)), st.booleans(), st.sampled_from(["or", "and", "not"])),
        min_size=1,
        max_size=3,
    ),
)
def test_against_rows_in_a_list(files: list[list[dict[str, Any]]], steps: list[tuple[str, bool, str]]) -> None:
    table = DeltaTable.create(
        MemoryStore(), SCHEMA, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"}
    )
    model = [row for file in files for row in file]
    for file in files:
        table.append(pa.Table.from_pylist(file, schema=SCHEMA))
    for text, deletes, how in steps:
        where = {"or": f"({text}) OR id = 0", "and": f"({text}) AND id > 2", "not": f"NOT ({text})"}[how]

        def hit(row: dict[str, Any], text: str = text, how: str = how) -> bool:
            first, number = CONDITIONS[text](row), row["id"]
            match how:
                case "or":
                    return bool(first) or number == 0
                case "and":
                    return bool(first) and number is not None and number > 2
                case _:
                    return first is False

        count = sum(map(hit, model))
        if deletes:
            result = table.delete(where)
            model = [row for row in model if not hit(row)]
        else:
            result = table.update(
                {"v": "id + 1", "p": "CASE WHEN p = 'p0' THEN 'p1' WHEN p = 'p1' THEN NULL ELSE 'p0' END"}, where
            )
            turned = {"p0": "p1", "p1": None, None: "p0"}
            model = [
                {"id": row["id"], "p": turned[row["p"]], "v": None if row["id"] is None else row["id"] + 1.0}
                if hit(row)
                else row
                for row in model
            ]
        if count:
            assert result.metrics.get("numDeletedRows" if deletes else "numUpdatedRows") == count
        assert held(table) == Counter(map(str, pa.Table.from_pylist(model, schema=SCHEMA).to_pylist()))


def test_the_time_is_that_of_the_table() -> None:
    """The time is that of the table's clock and does not change during an operation."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("s", pa.struct([("a", pa.int64())])),
        ]
    )
    now = dt.datetime(2024, 3, 31, 12, tzinfo=dt.UTC)
    table = DeltaTable.create(MemoryStore(), schema, partition_by=["day"], clock=lambda: now)
    moments = [now - dt.timedelta(days=31 * number) for number in range(4)]
    table.append(pa.table({"id": range(4), "day": [moment.date() for moment in moments], "at": moments}))
    result = table.delete("day < current_date() - INTERVAL 2 MONTHS")
    assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (2, 0)
    assert table.delete("at > CURRENT_TIMESTAMP").version == table.version
    changes = {"at": "current_timestamp()", "s": "named_struct('a', id * 2)"}
    assert table.update(changes, "at < current_timestamp() - INTERVAL 1 DAY").metrics["numUpdatedRows"] == 1
    assert table.to_arrow().sort_by("id").select(["id", "at", "s"]).to_pylist() == [
        {"id": 0, "at": now, "s": None},
        {"id": 1, "at": now, "s": {"a": 2}},
    ]
    source = pa.table({"id": [1, 5]})
    merge = table.merge(source, "t.id = s.id").when_matched_delete("t.at >= current_timestamp()")
    merge.when_not_matched_insert({"id": "s.id", "day": "current_date()", "at": "now()"}).execute()
    assert table.to_arrow(where="id = 5")["at"].to_pylist() == [now]
    table.overwrite(table.to_arrow(where="id = 5"), where="at >= current_timestamp() - INTERVAL 1 HOUR")
    assert ids(table.to_arrow(where="at < current_timestamp()")) == [5]
    for rule in ("at < current_timestamp()", "day <= current_date"):
        with pytest.raises(InvalidExpression, match="a different value each time"):
            table.add_constraint("past", rule)
