"""Skipping never loses a row, and skips: checked against a scan of everything, and counted at the store."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.checkpoint_writer import write_checkpoint
from lake_core.delta.log_segment import commit_key
from lake_core.delta.scan import plan_scan
from lake_core.delta.schema import schema_from_arrow, schema_to_json
from lake_core.delta.skipping import _lookup
from lake_core.delta.statistics import StatisticsCollector, leaf_columns
from lake_core.expression import matching, parse_predicate, to_arrow
from lake_core.store import MemoryStore
from lake_core.testing import FaultStore
from tests.delta.tables import inline_vector
from tests.examples import examples

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("r", pa.float32()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("n", pa.decimal128(12, 3)),
        ("b", pa.bool_()),
        ("st", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("p", pa.int32()),
    ]
)

LONG = "x" * 31
TEXTS = st.sampled_from(
    [
        "",
        "a",
        "b",
        "ab",
        LONG + "a",
        LONG + "ab",
        LONG + "b",
        LONG + "\U0010ffff" + "z",
        LONG + "\ufffdq",
        "é",
        "%",
        "a%",
    ]
)
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -1.5, 0.1, 1e300, float("nan"), float("inf"), float("-inf")])
DAYS = st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 5))
INSTANTS = st.sampled_from(
    [dt.datetime(2020, 1, 1, 0, 0, 0, us, tzinfo=dt.UTC) for us in (0, 1, 999, 1000, 1001, 456789)]
)
EARLY = dt.datetime(1850, 1, 1, 0, 7, 33, tzinfo=dt.UTC)
INSTANT = dt.datetime(2020, 1, 1, 0, 0, 0, 456789, tzinfo=dt.UTC)
NUMBERS = st.sampled_from(
    [Decimal("0.001"), Decimal("-999999999.999"), Decimal("1.000"), Decimal("123456789.123"), Decimal("999999999.999")]
)

ROW = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3) | st.sampled_from([2**62, 2**53 + 1]),
        "f": st.none() | FLOATS,
        "r": st.none() | st.sampled_from([0.1, 0.25, float("nan"), 1e30]),
        "s": st.none() | TEXTS,
        "d": st.none() | DAYS,
        "t": st.none() | INSTANTS,
        "n": st.none() | NUMBERS,
        "b": st.none() | st.booleans(),
        "st": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(-2, 2), "y": st.none() | TEXTS}),
        "p": st.none() | st.integers(0, 2),
    }
)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _comparison(column: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"])
    return st.one_of(
        st.builds(lambda op, value: f"{column} {op} {value}", operators, values),
        st.builds(
            lambda listed: f"{column} IN ({', '.join(listed)})",
            st.lists(values | st.just("NULL"), min_size=1, max_size=3),
        ),
        st.builds(lambda low, high: f"{column} BETWEEN {low} AND {high}", values, values),
        st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL"]),
    )


LEAF = st.one_of(
    _comparison("i", st.integers(-4, 4).map(str) | st.sampled_from(["0.5", str(2**53), str(2**62)])),
    _comparison("f", st.sampled_from(["0", "1.5", "-1.5", "0.1", "1e300"])),
    _comparison("r", st.sampled_from(["0.1", "0.25", "1e30", "0.10000000149011612"])),
    _comparison("s", TEXTS.map(_quoted)),
    _comparison("d", DAYS.map(lambda day: f"DATE '{day}'")),
    _comparison("t", INSTANTS.map(lambda at: f"TIMESTAMP '{at.isoformat()}'")),
    _comparison("n", NUMBERS.map(str) | st.sampled_from(["0", "1", "123456789.1234"])),
    _comparison("st.x", st.integers(-3, 3).map(str)),
    _comparison("st.y", TEXTS.map(_quoted)),
    _comparison("p", st.integers(-1, 3).map(str)),
    st.sampled_from(["b", "NOT b", "b IS TRUE", "TRUE", "FALSE", "p = i", "d < d"]),
    st.sampled_from(["a%", "%", LONG + "%", "a\\\\%", "_b", ""]).map(lambda pattern: f"s LIKE '{pattern}'"),
    st.sampled_from(
        [
            "f = CAST('NaN' AS DOUBLE)",
            "f <= CAST('NaN' AS DOUBLE)",
            "f < CAST('Infinity' AS DOUBLE)",
            "f >= DOUBLE('-0.0')",
            "f IN (CAST('NaN' AS DOUBLE), 1.5)",
            "r = CAST('NaN' AS FLOAT)",
            "f <=> CAST(NULL AS DOUBLE)",
            "i = BIGINT('1')",
            "isnull(i)",
            "isnotnull(f)",
            "s LIKE 'a/%' ESCAPE '/'",
            "i + 1 BETWEEN 0 AND 2",
            "i BETWEEN p AND 2",
        ]
    ),
)
PREDICATE = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.builds(lambda left, right: f"({left}) AND ({right})", inner, inner),
        st.builds(lambda left, right: f"({left}) OR ({right})", inner, inner),
        inner.map(lambda text: f"NOT ({text})"),
    ),
    max_leaves=4,
)


def _key(row: dict[str, Any]) -> str:
    return repr(sorted(row.items(), key=lambda item: item[0]))


@settings(max_examples=examples(150))
@given(
    st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(PREDICATE, min_size=1, max_size=4),
    st.booleans(),
)
def test_no_row_is_lost(files: list[list[dict[str, Any]]], predicates: list[str], partitioned: bool) -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"] if partitioned else [])
    for data in files:
        table.append(pa.Table.from_pylist(data, schema=SCHEMA))
    everything = table.to_arrow()
    for predicate in predicates:
        expected = matching(everything, parse_predicate(predicate, SCHEMA))
        actual = table.to_arrow(where=predicate)
        assert sorted(map(_key, actual.to_pylist())) == sorted(map(_key, expected.to_pylist())), predicate


@pytest.mark.extended
@settings(max_examples=examples(100))
@given(st.data())
def test_no_row_is_lost_whatever_the_log_says_of_files(data: st.DataObject) -> None:
    """Statistics missing or in part, deletion vectors, column mapping, checkpoints in between."""
    store = MemoryStore()
    mode = data.draw(st.sampled_from([{}, {"delta.columnMapping.mode": "name"}, {"delta.columnMapping.mode": "id"}]))
    partition_by = data.draw(st.sampled_from([[], ["p"]]))
    table = DeltaTable.create(store, SCHEMA, partition_by=partition_by, properties=mode)
    for rows in data.draw(st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=3)):
        table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    for version in range(table.version + 1):
        lines = [json.loads(line) for line in store.get(commit_key(version)).splitlines()]
        for line in lines:
            if "protocol" in line:
                listed = ["deletionVectors", "columnMapping"]
                line["protocol"] = {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": listed,
                    "writerFeatures": listed,
                }
            if "add" in line:
                line["add"] |= _weakened(data, line["add"]["stats"])
        store.put(commit_key(version), "\n".join(map(json.dumps, lines)).encode())
    table = DeltaTable.open(store)
    if data.draw(st.booleans()):
        write_checkpoint(table.snapshot, 0)
        store.delete([commit_key(version) for version in range(table.version)])
        table = DeltaTable.open(store)
    everything = table.to_arrow()
    for predicate in data.draw(st.lists(PREDICATE, min_size=1, max_size=4)):
        expected = matching(everything, parse_predicate(predicate, SCHEMA))
        actual = table.to_arrow(where=predicate)
        assert sorted(map(_key, actual.to_pylist())) == sorted(map(_key, expected.to_pylist())), predicate


def _weakened(data: st.DataObject, stats: str) -> dict[str, Any]:
    """Return changes of an add that other writers might make: fewer statistics, or a deletion vector."""
    statistics = json.loads(stats)
    count = statistics["numRecords"]
    for kind in data.draw(st.lists(st.sampled_from(sorted(statistics)), unique=True)):
        del statistics[kind]
    changed: dict[str, Any] = {"stats": data.draw(st.sampled_from([stats, json.dumps(statistics), None]))}
    gone = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    if gone:
        changed |= {"deletionVector": inline_vector(gone)}
        if changed["stats"] is not None:
            changed["stats"] = changed["stats"].replace("{", '{"tightBounds":false,', 1)
    return changed


def test_one_month_of_twelve_opens_one_file_of_twelve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are skipped by statistics alone, from commits and from a checkpoint."""
    store = MemoryStore()
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("id", pa.int64())])
    table = DeltaTable.create(store, schema)
    for month in range(1, 13):
        days = [dt.datetime(2024, month, day, 23, 59, 59, 999999, tzinfo=dt.UTC) for day in range(1, 29)]
        table.append(pa.table({"at": days, "id": [month] * 28}, schema=schema))
    opened: set[str] = set()
    get = MemoryStore._get
    monkeypatch.setattr(MemoryStore, "_get", lambda self, key, *range_: opened.add(key) or get(self, key, *range_))
    for _ in range(2):
        opened.clear()
        rows = DeltaTable.open(store).to_arrow(where="at >= TIMESTAMP '2024-03-01' AND at < TIMESTAMP '2024-04-01'")
        assert rows["id"].to_pylist() == [3] * 28
        assert len([key for key in opened if not key.startswith("_delta_log/")]) == 1
        table.checkpoint()


@pytest.mark.parametrize(
    ("where", "opened"),
    [
        ("month = DATE '2020-03-01'", 1),
        ("month >= DATE '2020-03-01' AND month < DATE '2020-05-01'", 2),
        ("month IN (DATE '2020-01-01', DATE '2021-01-01')", 1),
        ("NOT (month != DATE '2020-03-01')", 1),
        ("month IS NULL", 0),
        ("id = 350", 1),
        ("id > 1150", 1),
        ("id BETWEEN 95 AND 105", 2),
        ("id IN (5, 1005)", 2),
        ("name LIKE 'n03%'", 1),
        ("name = 'n0350'", 1),
        ("at >= TIMESTAMP '2020-12-01 00:00:00'", 1),
        ("at < '2020-02-01'", 1),
        ("id < 0 OR month = DATE '2020-02-01'", 1),
        ("nested.x = 350", 1),
        ("kind NOT IN (1, 2, 3)", 9),
        ("NOT (kind IN (0, 11))", 10),
        ("kind NOT IN (1, NULL)", 0),
        ("price > 1150.5", 1),
        ("empty IS NOT NULL", 0),
        ("empty = 1", 0),
        ("id IS NULL", 0),
        ("FALSE", 0),
        ("month = DATE '2020-03-01' OR name = 'n0350'", 2),
    ],
)
def test_only_files_that_may_match_are_opened(where: str, opened: int) -> None:
    store = MemoryStore()
    schema = pa.schema(
        [
            ("month", pa.date32()),
            ("id", pa.int64()),
            ("name", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("nested", pa.struct([("x", pa.int64())])),
            ("price", pa.decimal128(10, 2)),
            ("empty", pa.int32()),
            ("kind", pa.int32()),
        ]
    )
    table = DeltaTable.create(store, schema, partition_by=["month"])
    for month in range(12):
        first = month * 100
        ids = range(first, first + 100)
        at = dt.datetime(2020, month + 1, 1, tzinfo=dt.UTC)
        data = {
            "month": [at.date()] * 100,
            "id": list(ids),
            "name": [f"n{i:04d}" for i in ids],
            "at": [at + dt.timedelta(minutes=i) for i in range(100)],
            "nested": [{"x": i} for i in ids],
            "price": [Decimal(i) for i in ids],
            "empty": [None] * 100,
            "kind": [month] * 100,
        }
        table.append(pa.table(data, schema=schema))

    class Counting(FaultStore):
        opened: ClassVar[set[str]] = set()

        def _get(self, key: str, start: int | None, end: int | None) -> Any:
            self.opened.add(key)
            return super()._get(key, start, end)

    counting = Counting(store, at=10**9)
    counting.opened = set()
    expected = table.to_arrow().filter(to_arrow(parse_predicate(where, schema)))
    assert DeltaTable.open(counting).to_arrow(where=where).num_rows == expected.num_rows
    assert (
        len([key for key in counting.opened if key.endswith(".parquet") and not key.startswith("_delta_log/")])
        == opened
    )


def _stats(data: pa.Table, limit: int = 32) -> dict[str, Any]:
    collector = StatisticsCollector(leaf_columns(list(data.schema))[:limit])
    collector.update(data)
    return json.loads(collector.to_json())


def test_bounds_that_are_cut_stay_bounds() -> None:
    cut = "y" * 40
    stats = _stats(
        pa.table({"s": [cut, "z"], "t": pa.array([456789], pa.timestamp("us", tz="UTC")).take(pa.array([0, 0]))})
    )
    assert stats["minValues"] == {"s": "y" * 32, "t": "1970-01-01T00:00:00.456Z"}
    assert stats["maxValues"] == {"s": "z", "t": "1970-01-01T00:00:00.456Z"}
    top = _stats(pa.table({"s": [cut]}))["maxValues"]["s"]
    assert top > cut
    assert len(top) == 33
    assert "s" not in _stats(pa.table({"s": ["\U0010ffff" * 40]}))["maxValues"]


def test_bounds_that_json_cannot_hold_are_left_out() -> None:
    stats = _stats(pa.table({"nan": [1.0, float("nan")], "inf": [float("inf"), 2.0], "none": pa.nulls(2, pa.int32())}))
    assert stats["minValues"] == {"nan": 1.0, "inf": 2.0}
    assert stats["maxValues"] == {}
    assert stats["nullCount"] == {"nan": 0, "inf": 0, "none": 2}


def test_decimals_keep_their_digits_and_only_indexed_columns_count() -> None:
    data = pa.table({"a": pa.array([Decimal("12345678901234567890.12")], pa.decimal128(38, 2)), "b": [1]})
    collector = StatisticsCollector(leaf_columns(list(data.schema))[:1])
    collector.update(data)
    assert '"a":12345678901234567890.12' in collector.to_json()
    assert '"b"' not in collector.to_json()


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "{}",
        "not json",
        '{"numRecords":1}',
        '{"numRecords":1,"minValues":{"i":"zzz"},"maxValues":{"i":"zzz"}}',
        '{"numRecords":1,"minValues":{"i":0.5},"maxValues":{"i":0.7}}',
        '{"numRecords":1,\n"minValues":{}}',
        '{"numRecords":1,"minValues":{"t":"yesterday","d":"never"},"maxValues":{"t":"x","d":"y"}}',
    ],
)
def test_statistics_that_say_nothing_hide_nothing(stats: str | None) -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    row = {"i": 5, "s": "a", "d": dt.date(2020, 1, 1), "t": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}
    table.append(pa.Table.from_pylist([row], schema=SCHEMA))
    _replace_stats(store, stats)
    reopened = DeltaTable.open(store)
    for where in ("i = 5", "s = 'a'", "d = DATE '2020-01-01'", "t = TIMESTAMP '2020-01-01'", "i > 4 AND i IS NOT NULL"):
        assert reopened.to_arrow(where=where).num_rows == 1


@pytest.mark.parametrize(
    ("row", "stats", "where"),
    [
        # NaN is above every number for Spark, and in no writer's maximum.
        ({"f": float("nan")}, '"minValues":{"f":1.0},"maxValues":{"f":2.0}', "f > 5"),
        ({"f": float("nan")}, '"minValues":{"f":1.0},"maxValues":{"f":1.0}', "f != 1"),
        # A float's shortest text is not the float as a double.
        ({"r": 0.1}, '"minValues":{"r":0.1},"maxValues":{"r":0.1}', "r = 0.10000000149011612"),
        # Nor is it in a column that was widened to doubles after its file was written.
        ({"f": 0.10000000149011612}, '"minValues":{"f":0.1},"maxValues":{"f":0.1}', "f = 0.10000000149011612"),
        ({"f": 0.699999988079071}, '"minValues":{"f":0.7},"maxValues":{"f":0.7}', "f < 0.69999999"),
        ({"f": 1e300}, '"minValues":{"f":1e300},"maxValues":{"f":1e300}', "f = 1e300"),
        # Decimals that went through a double.
        (
            {"n": Decimal("123456789.123")},
            '"minValues":{"n":123456789.12300001},"maxValues":{"n":123456789.12299998}',
            "n = 123456789.123",
        ),
        # Instants cut to milliseconds, the maximum downwards.
        (
            {"t": INSTANT},
            '"minValues":{"t":"2020-01-01T00:00:00.456Z"},"maxValues":{"t":"2020-01-01T00:00:00.456Z"}',
            f"t = TIMESTAMP '{INSTANT}'",
        ),
        (
            {"t": INSTANT},
            '"minValues":{"t":"2020-01-01T01:00:00.456+01:00"},"maxValues":{"t":"2020-01-01 00:00:00.456"}',
            "t > '2020-01-01 00:00:00.4567Z'",
        ),
        # Offsets cut to minutes, east and west of Greenwich: -00:25:21 and +00:53:28.
        *(
            ({"t": instant}, f'"minValues":{{"t":"{bound}"}},"maxValues":{{"t":"{bound}"}}', f"t {test} '{instant}'")
            for instant, bound in (
                (EARLY, "1850-01-01T01:01:01.000+00:53"),
                (EARLY, "1849-12-31T23:42:12.000-00:25"),
                # As columns of a checkpoint have them.
                (EARLY, "1850-01-01T00:08:01.000Z"),
                (EARLY, "1850-01-01T00:07:12.000Z"),
                # Spark's zone may be any offset.
                (INSTANT, "2020-01-01T05:30:59.456+05:30"),
            )
            for test in ("=", "<=", ">=", "<=>")
        ),
        # Strings cut, the minimum to a prefix and the maximum with a character on top.
        ({"s": LONG + "ab"}, f'"minValues":{{"s":"{LONG}"}},"maxValues":{{"s":"{LONG}b"}}', f"s LIKE '{LONG}a%'"),
        ({"s": LONG + "ab"}, f'"minValues":{{"s":"{LONG}a"}},"maxValues":{{"s":"{LONG}a"}}', f"s != '{LONG}a'"),
    ],
)
def test_bounds_of_other_writers_hide_nothing(row: dict[str, Any], stats: str, where: str) -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    table.append(pa.Table.from_pylist([row], schema=SCHEMA))
    _replace_stats(store, f'{{"numRecords":1,{stats},"nullCount":{{"{next(iter(row))}":0}}}}')
    reopened = DeltaTable.open(store)
    assert reopened.to_arrow().filter(to_arrow(parse_predicate(where, SCHEMA))).num_rows == 1
    assert reopened.to_arrow(where=where).num_rows == 1


def _replace_stats(store: MemoryStore, stats: str | None) -> None:
    key = "_delta_log/00000000000000000001.json"
    lines = [json.loads(line) for line in store.get(key).splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = stats
    store.put(key, "\n".join(map(json.dumps, lines)).encode())


def test_partition_values_are_found_however_they_are_laid_out() -> None:
    """Keys come in any order, some are missing, and some maps are empty or null.

    Each column is tried as a whole, and as a slice of a longer one.
    """
    kind = pa.map_(pa.string(), pa.string())
    for values in (
        [[("a", "1"), ("b", "2")], [("a", None), ("b", "3")]],
        [[("a", "1"), ("b", "2")], [("b", "3"), ("a", "4")]],
        [[("a", "1")], [("b", "2")], [("a", "3")]],
        [[("b", "1")], [("a", "2")]],
        [[("b", "1")], [("b", "2")]],
        [[], [("a", "1"), ("b", "2")]],
        [[("a", "1"), ("b", "2")], None, [("a", "3"), ("b", "4")], []],
        [],
    ):
        for array in (
            pa.array(values, kind),
            pa.array([[("x", "y")], *values, [("a", "z")]], kind).slice(1, len(values)),
        ):
            assert _lookup(array, "a").to_pylist() == [
                None if entries is None else dict(entries).get("a") for entries in values
            ]


def test_files_of_an_earlier_partitioning_do_not_stand_in_the_way() -> None:
    """Those of a checkpoint that later commits removed, whose partition values no longer fit the column's type."""
    store = MemoryStore()
    before, after = (pa.schema([("id", pa.int64()), ("p", kind)]) for kind in (pa.string(), pa.int32()))
    table = DeltaTable.create(store, before, partition_by=["p"])
    table.append(pa.table({"id": [1, 2], "p": ["x", "y"]}, schema=before))
    table.checkpoint()
    paths = table.files(["path"])["path"].to_pylist()
    table.append(pa.table({"id": [3], "p": ["7"]}, schema=before))
    lines = store.get(commit_key(2)).decode().splitlines()
    metadata = json.loads(store.get(commit_key(0)).splitlines()[2])
    assert "metaData" in metadata
    metadata["metaData"]["schemaString"] = schema_to_json(schema_from_arrow(after))
    lines += [json.dumps(metadata), *(json.dumps({"remove": {"path": path, "dataChange": True}}) for path in paths)]
    store.put(commit_key(2), "\n".join(lines).encode())
    reopened = DeltaTable.open(store)
    assert reopened.to_arrow(where="p = 7")["id"].to_pylist() == [3]
    assert reopened.to_arrow(where="p > 7 OR id = 1").num_rows == 0


def test_few_files_of_many_are_kept_in_memory() -> None:
    """Of a large checkpoint, only the rows of the partition asked for."""
    store = MemoryStore()
    schema = pa.schema([("id", pa.int64()), ("p", pa.int32())])
    table = DeltaTable.create(store, schema, partition_by=["p"])
    count = 150_000
    add = (
        '{"add":{"path":"p=%d/%064d","partitionValues":{"p":"%d"},'
        '"size":1,"modificationTime":1,"dataChange":true,"stats":"%s"}}'
    )
    stats = '{\\"numRecords\\":1,\\"minValues\\":{\\"id\\":1},\\"maxValues\\":{\\"id\\":1}}'
    store.put(commit_key(1), "\n".join(add % (i % 100, i, i % 100, stats) for i in range(count)).encode())
    table.refresh().checkpoint()
    store.delete([commit_key(0)])
    opened = DeltaTable.open(store)
    opened.snapshot.has_deletion_vectors()
    before = pa.total_allocated_bytes()
    plan = plan_scan(opened.snapshot, None, "p = 7 AND id = 1")
    assert len(plan.files) == count / 100
    assert pa.total_allocated_bytes() - before < 20 * 100 * len(plan.files)
    assert len(plan_scan(opened.snapshot, None, "p = 7 AND id = 2").files) == 0
    assert len(plan_scan(opened.snapshot, None, "p IS NULL").files) == 0
