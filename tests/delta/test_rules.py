"""What a table demands of its rows: constraints, invariants, generated columns, append-only; when a rule applies."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    AppendOnlyTable,
    ConcurrentAppend,
    ConstraintNotFound,
    ConstraintViolation,
    InvalidProperty,
    SchemaMismatch,
    UnsupportedExpression,
)
from lake_core.delta.log_segment import commit_key
from lake_core.delta.schema import ARROW_METADATA_KEY
from lake_core.errors import LakeError
from lake_core.expression import EvaluationFailed, InvalidExpression
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows


def with_rule(name: str, kind: pa.DataType, key: str, value: Any, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {ARROW_METADATA_KEY: json.dumps({key: value}).encode()})


def generated(name: str, sql: str, kind: pa.DataType, nullable: bool = True) -> pa.Field:
    return with_rule(name, kind, "delta.generationExpression", sql, nullable)


def invariant(name: str, sql: str, kind: pa.DataType) -> pa.Field:
    return with_rule(name, kind, "delta.invariants", json.dumps({"expression": {"expression": sql}}))


@pytest.fixture
def table(store: MemoryStore) -> DeltaTable:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    table.append(rows(0, 6))
    return table


def bad_writes(table: DeltaTable) -> dict[str, Any]:
    """Return one of each operation that would write a row with v = 100."""
    bad = pa.table({"id": [7, 1], "p": ["p0", "p1"], "v": [1.0, 100.0]}, schema=SCHEMA)
    merge = table.merge(bad, "t.id = s.id")
    return {
        "append": lambda: table.append(bad),
        "overwrite": lambda: table.overwrite(bad),
        "where": lambda: table.overwrite(bad, where="id IN (1, 7)"),
        "dynamic": lambda: table.overwrite(bad, dynamic=True),
        "update": lambda: table.update({"v": "v + 99.5"}, "id = 1"),
        "merge update": lambda: merge.when_matched_update("*").execute(),
        "merge insert": lambda: table.merge(bad, "t.id = s.id + 100").when_not_matched_insert("*").execute(),
        "merge by source": lambda: (
            table.merge(bad, "t.id = s.id").when_not_matched_by_source_update({"v": "100"}, "t.id = 2").execute()
        ),
    }


@pytest.mark.parametrize(
    "kind", ["append", "overwrite", "where", "dynamic", "update", "merge update", "merge insert", "merge by source"]
)
@pytest.mark.parametrize("rule", ["constraint", "invariant", "generated"])
def test_each_operation_keeps_each_rule(store: MemoryStore, kind: str, rule: str) -> None:
    fields = {
        "constraint": pa.field("v", pa.float64()),
        "invariant": invariant("v", "v < 50", pa.float64()),
        "generated": generated("v", "CASE WHEN id < 100 THEN id / 2D END", pa.float64()),
    }
    table = DeltaTable.create(store, pa.schema([*list(SCHEMA)[:2], fields[rule]]), partition_by=["p"])
    table.append(rows(0, 6))
    if rule == "constraint":
        table.add_constraint("Small", "v < 50")
    version, before = table.version, table.to_arrow().to_pylist()
    with pytest.raises(
        ConstraintViolation,
        match={"constraint": "Small|small", "invariant": "'v'", "generated": "generated column 'v'"}[rule],
    ):
        bad_writes(table)[kind]()
    assert table.refresh().version == version
    assert table.to_arrow().to_pylist() == before


def test_constraints_are_added_listed_and_dropped(store: MemoryStore, table: DeltaTable) -> None:
    with pytest.raises(ConstraintViolation, match="3 rows"):
        table.add_constraint("low", "v < 1.5")
    assert table.refresh().version == 1
    assert table.protocol.min_writer_version == 2
    table.add_constraint("Low", "v < 3")
    assert table.constraints == DeltaTable.open(store).constraints == {"low": "v < 3"}
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 3)
    for name in ("low", "LOW"):
        with pytest.raises(InvalidProperty, match="no other one"):
            table.add_constraint(name, "v > 0")
    with pytest.raises(InvalidProperty, match="add_constraint"):
        table.set_properties({"delta.constraints.x": "v > 0"})
    with pytest.raises(InvalidProperty, match="drop_constraint"):
        table.unset_properties(["delta.constraints.low"])
    with pytest.raises(ConstraintNotFound, match="the table has low"):
        table.drop_constraint("high")
    table.drop_constraint("LOW")
    assert table.constraints == {}
    table.append(rows(100, 101))
    assert table.protocol.min_writer_version == 3  # a protocol is never lowered by itself


def test_null_does_not_keep_a_constraint(table: DeltaTable) -> None:
    table.add_constraint("low", "v < 3")
    with pytest.raises(ConstraintViolation):
        table.append(pa.table({"id": [1]}))
    table.drop_constraint("low")
    table.append(pa.table({"id": [9]}))
    with pytest.raises(ConstraintViolation, match="1 row of the table breaks"):
        table.add_constraint("low", "v < 3")
    table.add_constraint("low", "v IS NULL OR v < 3")


def test_rows_that_came_in_while_a_constraint_was_added_are_not_missed(store: MemoryStore, table: DeltaTable) -> None:
    other = DeltaTable.open(store)
    table.append(rows(100, 101))
    with pytest.raises(ConcurrentAppend):
        other.add_constraint("low", "v < 3")


def test_constraints_given_at_creation(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties={"delta.constraints.low": "coalesce(v, 0) < 3"})
    assert table.protocol.min_writer_version == 3
    table.append(rows(0, 6))
    with pytest.raises(ConstraintViolation, match="'low'"):
        table.append(rows(6, 7))


def test_what_the_table_holds_already_is_not_checked_again(store: MemoryStore, table: DeltaTable) -> None:
    """Copied rows are kept, even where a rule that another writer set without a check would refuse them."""
    _alter(
        store,
        table,
        configuration={"delta.constraints.low": "v < 1"},
        protocol={"minReaderVersion": 1, "minWriterVersion": 3},
    )
    table.refresh().delete("id = 0")
    table.optimize()
    assert ids(table.to_arrow()) == [1, 2, 3, 4, 5]
    with pytest.raises(ConstraintViolation):
        table.update({"p": "'q'"}, "id = 5")


def _alter(store: MemoryStore, table: DeltaTable, protocol: dict[str, Any] | None = None, **fields: Any) -> None:
    """Change the metadata as another writer would, without a check."""
    lines: list[dict[str, Any]] = [{"metaData": {**table.refresh().metadata.to_json(), **fields}}]
    if protocol is not None:
        lines.append({"protocol": protocol})
    store.put(commit_key(table.version + 1), "\n".join(map(json.dumps, lines)).encode(), if_absent=True)


@pytest.mark.parametrize(
    ("protocol", "kept"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 1}, set()),
        ({"minReaderVersion": 1, "minWriterVersion": 2}, {"invariant", "appendOnly"}),
        ({"minReaderVersion": 1, "minWriterVersion": 3}, {"invariant", "appendOnly", "check"}),
        ({"minReaderVersion": 1, "minWriterVersion": 4}, {"invariant", "appendOnly", "check", "generated", "changes"}),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": []}, set()),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["checkConstraints"]}, {"check"}),
        (
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["invariants", "appendOnly"]},
            {"invariant", "appendOnly"},
        ),
        (
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["generatedColumns", "changeDataFeed"]},
            {"generated", "changes"},
        ),
    ],
)
def test_a_rule_is_in_force_where_the_protocol_says_so(
    store: MemoryStore, protocol: dict[str, Any], kept: set[str]
) -> None:
    """Rules are the same under legacy versions and feature lists. Features that are not listed have no effect."""
    schema = pa.schema(
        [pa.field("id", pa.int64()), invariant("i", "i > 0", pa.int64()), generated("g", "id + 1", pa.int64())]
    )
    table = DeltaTable.create(store, schema)
    flags = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true", "delta.constraints.c": "id < 50"}
    first = {"protocol": protocol}
    lines = [first, {"metaData": {**table.metadata.to_json(), "configuration": flags}}]
    store.delete([commit_key(0)])
    store.put(commit_key(0), "\n".join(map(json.dumps, lines)).encode())
    table = DeltaTable.open(store)
    row = {"id": [1], "i": [1], "g": [2]}

    def refused(change: dict[str, list[int]]) -> bool:
        try:
            table.append(pa.table(row | change))
        except ConstraintViolation:
            return True
        return False

    in_force = {
        name
        for name, change in {"invariant": {"i": [0]}, "check": {"id": [60], "g": [61]}, "generated": {"g": [5]}}.items()
        if refused(change)
    }
    table.append(pa.table({"id": [1], "i": [1]}))
    if table.to_arrow(where="g = 2").num_rows == 0:
        assert "generated" not in in_force
    try:
        result = table.delete("i = 1 AND id = 1")
        if result.metrics["numAddedChangeFiles"]:
            in_force.add("changes")
    except AppendOnlyTable:
        in_force.add("appendOnly")
    # An append-only table shows no change files: nothing can be deleted.
    assert in_force == (kept - {"changes"} if "appendOnly" in kept else kept)


def test_a_rule_that_is_not_in_force_is_not_even_read(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA)
    body = json.loads(table.metadata.schema_string)
    body["fields"][0]["metadata"] = {"delta.generationExpression": "never_heard_of(v)", "delta.invariants": "nonsense"}
    lists = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
    _alter(store, table, lists, schemaString=json.dumps(body), configuration={"delta.constraints.c": "nor_of(id)"})
    assert table.refresh().append(rows(0, 1)).rows == 1


@pytest.mark.parametrize(
    "sql",
    [
        "never_heard_of(id) > 0",
        "reflect('java.lang.Runtime', 'getRuntime') IS NULL",
        "java_method('java.lang.System', 'exit', 0) IS NULL",
        "read_files('/etc/passwd') IS NULL",
        "id IN (SELECT 1)",
        "EXISTS (SELECT 1)",
        "id > 0; DROP TABLE t",
        "(" * 5000 + "id > 0" + ")" * 5000,
        "NOT " * 50_000 + "TRUE",
        "id > 0 AND " * 110_000 + "id > 0",
        "id = " + "1 + " * 50_000 + "1",
        "id > '" + "x" * (1 << 20) + "'",
        "zz > 0",
        "id",
        "id +",
        "id > 0 -- ' \n OR \x00",
        "count(*) > 0",
        "row_number() OVER (ORDER BY id) > 0",
        "transform(array(id), x -> x) IS NULL",
        "",
        "   ",
    ],
    ids=lambda sql: sql[:40],
)
def test_hostile_sql_is_refused_quickly_and_never_skipped(store: MemoryStore, sql: str) -> None:
    """As a caller's constraint, and as one that stands in the metadata of a table that somebody else wrote."""
    table = DeltaTable.create(store, SCHEMA)
    with pytest.raises(InvalidExpression):
        table.add_constraint("c", sql)
    _alter(store, table, {"minReaderVersion": 1, "minWriterVersion": 3}, configuration={"delta.constraints.c": sql})
    for operation in (
        lambda: table.refresh().append(rows(0, 1)),
        lambda: table.overwrite(rows(0, 1)),
        lambda: table.update({"v": "1"}),
        lambda: table.merge(rows(0, 1), "t.id = s.id").when_not_matched_insert("*").execute(),
    ):
        with pytest.raises(UnsupportedExpression, match="cannot be evaluated"):
            operation()
    assert table.refresh().version == 1
    assert table.to_arrow().num_rows == 0
    table.drop_constraint("c")
    assert table.append(rows(0, 1)).rows == 1


def test_long_but_flat_sql_is_evaluated(table: DeltaTable) -> None:
    table.add_constraint("c", "id IN (" + ", ".join(map(str, range(5_000))) + ")")
    with pytest.raises(ConstraintViolation):
        table.append(rows(5_000, 5_001))


def test_generated_columns_are_computed_or_checked(store: MemoryStore) -> None:
    schema = pa.schema(
        [
            pa.field("at", pa.timestamp("us", tz="UTC")),
            generated("day", "CAST(at AS DATE)", pa.date32()),
            generated("twice", "n * 2", pa.int64()),
            pa.field("n", pa.int32()),
        ]
    )
    table = DeltaTable.create(store, schema, partition_by=["day"])
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 4)
    at = pa.array([-1, 0, None], pa.timestamp("us", tz="UTC"))
    table.append(pa.table({"at": at, "n": pa.array([1, 2, None], pa.int32())}))
    read = sorted(table.to_arrow(["day", "twice"]).to_pylist(), key=str)
    assert [(str(row["day"]), row["twice"]) for row in read] == [("None", None), ("1969-12-31", 2), ("1970-01-01", 4)]
    table.append(pa.table({"AT": at, "N": pa.array([1, 2, None], pa.int32()), "Twice": [2, 4, None]}))
    for twice in ([2, 4, 0], [2, None, None]):
        with pytest.raises(ConstraintViolation, match=r"twice <=> \(n \* 2\)"):
            table.append(pa.table({"at": at, "n": pa.array([1, 2, None], pa.int32()), "twice": twice}))
    table.update({"n": "n + 10"}, "n = 1")
    assert sorted(row["twice"] for row in table.to_arrow().to_pylist() if row["n"] == 11) == [22, 22]
    with pytest.raises(ConstraintViolation):
        table.update({"twice": "5"}, "n = 2")
    source = pa.table(
        {"n": pa.array([2, 50], pa.int32()), "at": pa.array([86_400_000_000, 0], pa.timestamp("us", tz="UTC"))}
    )
    table.merge(source, "t.n = s.n").when_matched_update("*").when_not_matched_insert("*").execute()
    moved = {(row["n"], str(row["day"]), row["twice"]) for row in table.to_arrow(where="n >= 2").to_pylist()}
    assert moved == {(2, "1970-01-02", 4), (50, "1970-01-01", 100), (11, "1969-12-31", 22)}


def test_generated_partitions_of_the_empty_string_are_null(store: MemoryStore) -> None:
    schema = pa.schema([pa.field("s", pa.string()), generated("p", "substring(s, 1, 1)", pa.string())])
    table = DeltaTable.create(store, schema, partition_by=["p"])
    table.append(pa.table({"s": ["", "ab", None]}))
    table.append(table.to_arrow())
    table.update({"s": "concat(s, '')"})
    values = {(row["s"], row["p"]) for row in table.to_arrow().to_pylist()}
    assert values == {("", None), ("ab", "a"), (None, None)}
    assert table.to_arrow().num_rows == 6


def test_generated_not_null_columns_and_nan(store: MemoryStore) -> None:
    schema = pa.schema([pa.field("v", pa.float64()), generated("g", "v * 1", pa.float64(), nullable=False)])
    table = DeltaTable.create(store, schema)
    table.append(pa.table({"v": [float("nan"), -0.0]}))
    table.append(pa.table({"v": [float("nan"), -0.0], "g": [float("nan"), 0.0]}))
    with pytest.raises(ConstraintViolation, match="NOT NULL"):
        table.append(pa.table({"v": pa.array([None], pa.float64())}))


def test_a_generation_expression_that_does_not_fit_is_refused_at_creation(store: MemoryStore) -> None:
    for sql, kind in (("id", pa.bool_()), ("zz", pa.int64()), ("rand()", pa.float64()), ("uuid()", pa.string())):
        with pytest.raises(LakeError):
            DeltaTable.create(store, pa.schema([pa.field("id", pa.int64()), generated("g", sql, kind)]))
    assert not DeltaTable.exists(store)


def test_an_expression_that_fails_in_a_row_stops_the_write(store: MemoryStore) -> None:
    table = DeltaTable.create(store, pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int8())]))
    table.append(pa.table({"id": [1, 0, 300], "v": pa.array([1, 1, 1], pa.int8())}))
    for operation in (
        lambda: table.delete("10 DIV id > 0"),
        lambda: table.update({"v": "id"}),
        lambda: table.update({"v": "10 DIV id"}),
        lambda: table.overwrite(pa.table({"id": [1]}), where="10 DIV id > 0"),
        lambda: table.merge(pa.table({"id": [0, 1]}), "t.id = s.id").when_matched_delete("10 DIV s.id > 0").execute(),
        lambda: table.merge(pa.table({"id": [0, 1]}), "10 DIV t.id = s.id").when_matched_delete().execute(),
        lambda: table.add_constraint("c", "10 DIV id >= 0"),
    ):
        with pytest.raises(EvaluationFailed):
            operation()
    assert table.refresh().version == 1


def test_append_only(store: MemoryStore, table: DeltaTable) -> None:
    table.set_properties({"delta.appendOnly": "true"})
    for operation in (
        lambda: table.delete("id = 1"),
        lambda: table.delete(),
        lambda: table.update({"v": "1"}),
        lambda: table.overwrite(rows(0, 1)),
        lambda: table.overwrite(rows(0, 1), dynamic=True),
        lambda: table.restore(0),
        lambda: table.merge(rows(0, 1), "t.id = s.id").when_matched_update("*").execute(),
        lambda: table.merge(rows(0, 1), "t.id = s.id").when_not_matched_by_source_delete().execute(),
    ):
        with pytest.raises(AppendOnlyTable):
            operation()
    assert table.append(rows(6, 7)).rows == 1
    assert (
        table.merge(rows(6, 9), "t.id = s.id").when_not_matched_insert("*").execute().metrics["numTargetRowsInserted"]
        == 2
    )
    assert table.optimize().metrics["numRemovedFiles"] > 0
    table.set_properties({"delta.appendOnly": "false"})
    table.delete("id > 0")
    assert ids(table.to_arrow()) == [0]


def test_columns_that_a_rule_names_stay(store: MemoryStore) -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64()),
            pa.field("b", pa.int64()),
            generated("g", "a + 1", pa.int64()),
            pa.field("c", pa.int64()),
        ]
    )
    table = DeltaTable.create(store, schema, properties={"delta.columnMapping.mode": "name"})
    table.add_constraint("pos", "b > 0")
    for column in ("a", "b", "g"):
        with pytest.raises(SchemaMismatch, match="uses it"):
            table.drop_columns([column])
        with pytest.raises(SchemaMismatch, match="uses it"):
            table.rename_column(column, "z")
    table.drop_columns(["c"])
    with pytest.raises(UnsupportedExpression):
        table.overwrite(pa.table({"a": [1]}), schema_mode="overwrite")


def test_generated_columns_of_a_table_that_is_too_old_for_them(cases: Path, tmp_path: Path) -> None:
    shutil.copytree(cases / "delta" / "spark-dbr_8_0_non_generated_columns", tmp_path / "t")
    table = DeltaTable.open(tmp_path / "t")
    row = table.to_arrow().schema.empty_table().to_pydict() | {name: [None] for name in table.schema.names}
    table.append(pa.table(row, schema=table.schema))
    assert table.to_arrow().to_pylist()[-1] == dict.fromkeys(table.schema.names)
    assert table.protocol.min_writer_version == 2


def test_rules_of_real_tables(store: MemoryStore) -> None:
    """Regular expressions, checksums and formatted dates, as tables of Spark have them."""
    schema = pa.schema(
        [
            ("mail", pa.string()),
            ("seconds", pa.int64()),
            generated("day", "to_date(from_unixtime(seconds, 'yyyyMMdd'), 'yyyyMMdd')", pa.date32()),
            generated("key", "md5(mail)", pa.string()),
        ]
    )
    table = DeltaTable.create(store, schema)
    table.add_constraint("mail", r"mail IS NULL OR mail RLIKE r'^[\w.]+@[\w.]+\.[a-z]{2,}$'")
    table.append(pa.table({"mail": ["a.b@c.de", None], "seconds": [1_700_000_000, None]}))
    assert table.to_arrow(where="regexp_like(key, '^[0-9a-f]{32}$')").to_pylist() == [
        {
            "mail": "a.b@c.de",
            "seconds": 1_700_000_000,
            "day": dt.date(2023, 11, 14),
            "key": hashlib.md5(b"a.b@c.de").hexdigest(),
        }
    ]
    with pytest.raises(ConstraintViolation, match="mail"):
        table.append(pa.table({"mail": ["no address"], "seconds": [1]}))
    with pytest.raises(InvalidExpression, match=r"'\\b', which is not supported"):
        table.add_constraint("word", r"mail RLIKE r'\bx'")
