"""MERGE against a naive model that pairs every row with every other, and on tables of every kind."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    ConcurrentModification,
    DuplicateKeys,
    InvalidMerge,
    MultipleSourceRows,
    NullKeys,
    SchemaMismatch,
)
from lake_core.delta.operations.merge import Merge
from lake_core.errors import LakeError
from lake_core.expression import EvaluationFailed, InvalidExpression
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, ids, oracle, paths, rows
from tests.examples import examples

Row = dict[str, Any]


# A model of a merge: expressions as Python functions of a target and a source row, None standing for SQL's null.
KINDS: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "int32 with int64": (pa.int32(), pa.int64(), [None, 0, 1, 2, -3]),
    "int64 with int8": (pa.int64(), pa.int8(), [None, 0, 1, 2, -3]),
    "double": (pa.float64(), pa.float64(), [None, 0.0, -0.0, float("nan"), 1.5, float("inf")]),
    "float with double": (pa.float32(), pa.float64(), [None, 0.0, -0.0, float("nan"), 1.5]),
    "text": (pa.string(), pa.string(), [None, "", "a", "A", "a "]),
    "bytes": (pa.binary(), pa.binary(), [None, b"", b"\xff", b"a"]),
    "bool": (pa.bool_(), pa.bool_(), [None, True, False]),
    "decimal": (pa.decimal128(5, 2), pa.decimal128(9, 4), [None, 0, 1, -3]),
}


def equal(a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    return bool(a == b or (a != a and b != b))


def same(a: Any, b: Any) -> bool:
    return (a is None and b is None) or equal(a, b) is True


Test = Callable[[Row, Row], "bool | None"]
ON: dict[str, Test] = {
    "t.k = s.k": lambda t, s: equal(t["k"], s["k"]),
    "s.K <=> t.K": lambda t, s: same(t["k"], s["k"]),
    "t.k = s.k AND t.x > s.x": lambda t, s: equal(t["k"], s["k"]) and _greater(t["x"], s["x"]),
    "t.k <=> s.k AND t.x <=> s.x": lambda t, s: same(t["k"], s["k"]) and same(t["x"], s["x"]),
    "t.x = s.x AND t.p = 'p0'": lambda t, s: equal(t["x"], s["x"]) and t["p"] == "p0",
    "t.p = s.p AND t.x = s.x + 1": lambda t, s: (
        equal(t["p"], s["p"]) and s["x"] is not None and equal(t["x"], s["x"] + 1)
    ),
    "t.x < s.x OR t.k = s.k": lambda t, s: _greater(s["x"], t["x"]) or equal(t["k"], s["k"]),
    "FALSE": lambda t, s: False,
    "s.x > 1 AND t.x = s.x": lambda t, s: _greater(s["x"], 1) and equal(t["x"], s["x"]),
}


def _greater(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a > b


CONDITIONS: dict[str | None, Callable[[Row, Row], bool]] = {
    None: lambda t, s: True,
    "s.x > 2": lambda t, s: _greater(s["x"], 2),
    "t.x > 2": lambda t, s: _greater(t["x"], 2),
    "t.p = 'p0' OR s.p IS NULL": lambda t, s: t["p"] == "p0" or s["p"] is None,
}
SOURCE_CONDITIONS: dict[str | None, Callable[[Row], bool]] = {
    None: lambda s: True,
    "s.x > 2": lambda s: _greater(s["x"], 2),
    "p IS NULL": lambda s: s["p"] is None,
}
TARGET_CONDITIONS: dict[str | None, Callable[[Row], bool]] = {
    None: lambda t: True,
    "t.x > 2": lambda t: _greater(t["x"], 2),
    "p IS NULL": lambda t: t["p"] is None,
}
SETS: dict[str, tuple[Any, Callable[[Row, Row], Row]]] = {
    "*": ("*", lambda t, s: {**s, "k": s["k"]}),
    "sum": (
        {"X": "t.x + s.x", "p": "s.p"},
        lambda t, s: {**t, "x": None if None in (t["x"], s["x"]) else t["x"] + s["x"], "p": s["p"]},
    ),
    "null": ({"x": "NULL"}, lambda t, s: {**t, "x": None}),
}


@dataclass
class Clause:
    kind: str
    condition: str | None
    values: str = ""


def model(
    target: list[Row], source: list[Row], on: str, matched: list[Clause], new: list[Clause], alone: list[Clause]
) -> list[Row] | None:
    """Return the rows after the merge, or None where several source rows would change one row."""
    after: list[Row] = []
    hit = [False] * len(source)
    for t in target:
        pairs = [number for number, s in enumerate(source) if ON[on](t, s) is True]
        for number in pairs:
            hit[number] = True
        if not pairs:
            clause = next((candidate for candidate in alone if TARGET_CONDITIONS[candidate.condition](t)), None)
            if clause is None:
                after.append(t)
            elif clause.kind == "update":
                after.append({**t, "x": -1, "p": "alone"})
            continue
        matches = [
            (
                number,
                next((candidate for candidate in matched if CONDITIONS[candidate.condition](t, source[number])), None),
            )
            for number in pairs
        ]
        matches = [(number, clause) for number, clause in matches if clause is not None]
        if not matches:
            after.append(t)
            continue
        if len(matches) > 1 and not (
            len(matched) == 1 and matched[0].kind == "delete" and matched[0].condition is None
        ):
            return None
        number, clause = matches[0]
        assert clause is not None
        if clause.kind == "update":
            after.append(SETS[clause.values][1](t, source[number]))
    for number, s in enumerate(source):
        if hit[number]:
            continue
        clause = next((candidate for candidate in new if SOURCE_CONDITIONS[candidate.condition](s)), None)
        if clause is not None:
            after.append(s if clause.values == "*" else {"k": s["k"], "x": 7, "p": None})
    return after


def _clauses(kinds: list[str], conditions: Any, values: list[str]) -> st.SearchStrategy[list[Clause]]:
    clause = st.builds(
        Clause,
        st.sampled_from(kinds),
        st.sampled_from([text for text in conditions if text is not None]),
        st.sampled_from(values),
    )
    last = st.one_of(st.none(), st.builds(Clause, st.sampled_from(kinds), st.just(None), st.sampled_from(values)))
    return st.builds(lambda some, final: [*some, *([final] if final else [])], st.lists(clause, max_size=2), last)


MERGES = st.fixed_dictionaries(
    {
        "on": st.sampled_from(sorted(ON)),
        "matched": _clauses(["update", "delete"], CONDITIONS, sorted(SETS)),
        "new": _clauses(["insert"], SOURCE_CONDITIONS, ["*", "some"]),
        "alone": _clauses(["update", "delete"], TARGET_CONDITIONS, [""]),
    }
)


def _execute(merge: Merge, matched: list[Clause], new: list[Clause], alone: list[Clause]) -> Any:
    for clause in matched:
        if clause.kind == "delete":
            merge.when_matched_delete(clause.condition)
        else:
            merge.when_matched_update(SETS[clause.values][0], clause.condition)
    for clause in new:
        merge.when_not_matched_insert("*" if clause.values == "*" else {"K": "s.k", "x": "7"}, clause.condition)
    for clause in alone:
        if clause.kind == "delete":
            merge.when_not_matched_by_source_delete(clause.condition)
        else:
            merge.when_not_matched_by_source_update({"x": "-1", "p": "'alone'"}, clause.condition)
    return merge.execute()


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), merge=MERGES, partitioned=st.booleans(), feed=st.booleans())
def test_against_a_model_row_by_row(
    data: st.DataObject, kind: str, merge: dict[str, Any], partitioned: bool, feed: bool
) -> None:
    assume(merge["matched"] or merge["new"] or merge["alone"])
    target_type, other, values = KINDS[kind]
    schema = pa.schema([("k", target_type), ("x", pa.int64()), ("p", pa.string())])
    keys = st.sampled_from(values)
    numbers = st.one_of(st.none(), st.integers(0, 4))
    row = st.fixed_dictionaries({"k": keys, "x": numbers, "p": st.sampled_from(["p0", "p1", None])})
    files = data.draw(st.lists(st.lists(row, max_size=4), max_size=3))
    source = data.draw(st.lists(row, max_size=4))
    table = DeltaTable.create(
        MemoryStore(),
        schema,
        partition_by=["p"] if partitioned else [],
        properties={"delta.enableChangeDataFeed": "true"} if feed else None,
    )
    for file in files:
        table.append(pa.Table.from_pylist(file, schema=schema))
    columns = {name: [row[name] for row in source] for name in ("p", "x", "k")}
    rows_ = pa.table(
        {
            "p": pa.array(columns["p"], pa.string()),
            "X": pa.array(columns["x"], pa.int64()),
            "K": pa.array(columns["k"], other),
        }
    )
    rows_ = rows_.set_column(0, "p", rows_["p"].dictionary_encode())
    target = [row for file in files for row in file]
    expected = model(target, source, **merge)
    version = table.version
    start = table.merge(rows_, merge["on"])
    if expected is None:
        with pytest.raises(MultipleSourceRows):
            _execute(start, merge["matched"], merge["new"], merge["alone"])
        assert table.refresh().version == version
        return
    before = held(table)
    result = _execute(start, merge["matched"], merge["new"], merge["alone"])
    assert held(table) == Counter(map(str, pa.Table.from_pylist(expected, schema=schema).to_pylist()))
    metrics = result.metrics
    if metrics:
        kept = sum(before.values()) - metrics["numTargetRowsDeleted"] + metrics["numTargetRowsInserted"]
        assert kept == len(expected)
        assert metrics["numOutputRows"] == sum(
            metrics[f"numTargetRows{name}"] for name in ("Inserted", "Updated", "Copied")
        )
        assert metrics["numSourceRows"] == len(source)
    if feed and result.version > version:
        state = before.copy()
        for change in table.changes(result.version).read_all().to_pylist():
            gone = change.pop("_change_type") in ("delete", "update_preimage")
            del change["_commit_version"], change["_commit_timestamp"]
            state[str(change)] += -1 if gone else 1
        assert {key: count for key, count in state.items() if count} == dict(held(table))


def test_only_files_with_a_change_are_written_anew(table: DeltaTable) -> None:
    before = paths(table)
    source = pa.table({"id": [7, 8, 100], "v": [0.0, 0.0, 0.0], "p": ["p1", "p2", "p0"]})
    result = (
        table.merge(source, "t.id = s.id").when_matched_update("*", "s.id <> 8").when_not_matched_insert("*").execute()
    )
    counted = {
        key: value for key, value in result.metrics.items() if value and "Bytes" not in key and "Time" not in key
    }
    assert counted == {
        "numSourceRows": 3,
        "numTargetRowsInserted": 1,
        "numTargetRowsUpdated": 1,
        "numTargetRowsMatchedUpdated": 1,
        "numTargetRowsCopied": 1,
        "numOutputRows": 3,
        "numTargetFilesAdded": 2,
        "numTargetFilesRemoved": 1,
    }
    assert len(before - paths(table)) == 1
    assert len(paths(table)) == 10
    entry = table.history(1)[0]
    assert entry["operation"] == "MERGE"
    assert entry["operationParameters"]["predicate"] == '["t.id = s.id"]'
    assert entry["operationParameters"]["matchedPredicates"] == '[{"actionType": "update", "predicate": "s.id <> 8"}]'
    assert {key: str(value) for key, value in result.metrics.items()} == entry["operationMetrics"]


def test_files_that_cannot_match_are_not_opened(table: DeltaTable) -> None:
    for meta in list(table.store.list()):
        if meta.key.endswith(".parquet"):
            table.store.delete([meta.key])
    texts = (
        "t.id = s.id",
        "t.id = s.id AND t.p = s.p",
        "t.p = 'p0' AND t.id > 17 AND t.v = s.v",
        "t.id <=> s.id AND t.id BETWEEN 50 AND 60",
    )
    for number, on in enumerate(texts):
        merge = table.merge(pa.table({"id": [1000 + number, None], "p": ["p0", "p0"], "v": [1.0, 2.0]}), on)
        result = merge.when_matched_delete().when_not_matched_insert({"id": "s.id"}).execute()
        assert result.metrics["numTargetRowsInserted"] == 2


def test_partition_moves(table: DeltaTable) -> None:
    source = pa.table({"id": list(range(0, 18, 2)), "p": ["", None, "p1"] * 3, "v": [0.5] * 9})
    table.merge(source, "t.id = s.id").when_matched_update("*").execute()
    partitions = {row["id"]: row["p"] for row in table.to_arrow().to_pylist()}
    assert partitions == {
        **{n: f"p{n % 3}" for n in range(1, 18, 2)},
        **{2 * n: ["", None, "p1"][n % 3] or None for n in range(9)},
    }
    assert ids(table.to_arrow(where="p IS NULL")) == [0, 2, 6, 8, 12, 14]


def test_several_source_rows(table: DeltaTable) -> None:
    twice = pa.table({"id": [1, 1, 2, 500, 500], "p": ["a", "b", "c", "d", "d"], "v": [1.0, 2.0, 3.0, 4.0, 4.0]})
    refused: tuple[Callable[[Merge], Merge], ...] = (
        lambda merge: merge.when_matched_update("*"),
        lambda merge: merge.when_matched_delete("s.v > 0"),
        lambda merge: merge.when_matched_update({"v": "0"}, "s.v < 2").when_matched_delete(),
    )
    for clauses in refused:
        with pytest.raises(MultipleSourceRows, match="1 row of the table matches"):
            clauses(table.merge(twice, "t.id = s.id")).execute()
    assert table.refresh().version == 3
    result = (
        table.merge(twice, "t.id = s.id").when_matched_update("*", "s.v <> 1").when_not_matched_insert("*").execute()
    )
    assert (result.metrics["numTargetRowsUpdated"], result.metrics["numTargetRowsInserted"]) == (2, 2)
    result = table.merge(twice, "t.id = s.id").when_matched_delete().execute()
    assert result.metrics["numTargetRowsDeleted"] == 4
    assert table.to_arrow().num_rows == 16


def test_one_source_row_for_many_rows_of_the_table(table: DeltaTable) -> None:
    result = (
        table.merge(pa.table({"p": ["p1"], "v": [9.0]}), "t.p = s.p").when_matched_update({"v": "s.v + t.id"}).execute()
    )
    assert result.metrics["numTargetRowsUpdated"] == 6
    assert {row["id"]: row["v"] for row in table.to_arrow(where="p = 'p1'").to_pylist()} == {
        n: 9.0 + n for n in range(1, 18, 3)
    }


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "dictionary", "large", "stream", "sliced", "small"])
def test_sources_of_every_form(table: DeltaTable, kind: str) -> None:
    plain = pa.table({"id": [-5, 1, 100], "p": ["x", "y", "z"], "v": [1.0, 2.0, 3.0]})
    forms: dict[str, Callable[[], Any]] = {
        "table": lambda: pa.concat_tables([plain.slice(0, 1), plain.slice(1, 2)]).slice(1, 2),
        "batch": lambda: plain.to_batches()[0].slice(1, 2),
        "reader": lambda: plain.slice(1, 2).to_reader(1),
        "dictionary": lambda: pa.table(
            {name: plain.slice(1, 2)[name].dictionary_encode() for name in plain.column_names}
        ),
        "large": lambda: plain.slice(1, 2).set_column(1, "p", plain.slice(1, 2)["p"].cast(pa.large_string())),
        "stream": lambda: _Stream(plain.slice(1, 2)),
        "sliced": lambda: plain.slice(1, 2).set_column(1, "p", plain.slice(1, 2)["p"].cast(pa.string_view())),
        "small": lambda: plain.slice(1, 2).set_column(0, "ID", plain.slice(1, 2)["id"].cast(pa.uint8())),
    }
    result = table.merge(forms[kind](), "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    assert (result.metrics["numTargetRowsUpdated"], result.metrics["numTargetRowsInserted"]) == (1, 1)
    assert table.to_arrow(where="v IN (2.0, 3.0) AND p IN ('y', 'z')").num_rows == 2


class _Stream:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


def test_nested_columns_and_null_typed_ones(store: MemoryStore) -> None:
    kind = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.struct([("y", pa.string())])))])
    table = DeltaTable.create(
        store, pa.schema([("id", pa.int64()), ("s", kind), ("m", pa.map_(pa.string(), pa.int64()))])
    )
    first = {
        "id": [1, 2, 3],
        "s": [{"x": 1, "l": [{"y": "a"}, None]}, None, {"x": None, "l": None}],
        "m": [[("k", 1)], None, []],
    }
    table.append(pa.table(first, schema=table.schema))
    other = pa.struct([("L", pa.large_list(pa.struct([("Y", pa.large_string())]))), ("X", pa.int32())])
    source = pa.table(
        {"s": pa.array([{"L": [{"Y": "b"}], "X": 1}, {"L": None, "X": 9}], other), "id": [10, None], "m": pa.nulls(2)}
    )
    with pytest.raises(LakeError):  # structs are matched by their fields' names and order, as in Spark
        table.merge(source, "t.s.x = s.s.x").when_matched_update({"s": "s.s"}).execute()
    same = source.set_column(0, "s", pa.array([{"x": 1, "l": [{"y": "b"}]}, {"x": 9, "l": None}], kind))
    merge = table.merge(same, "t.s.x = s.s.X").when_matched_update("*").when_not_matched_insert("*")
    merge.when_not_matched_by_source_update({"S.X": "id"}).execute()
    assert sorted(table.to_arrow().to_pylist(), key=str) == [
        {"id": 10, "s": {"x": 1, "l": [{"y": "b"}]}, "m": None},
        {"id": 2, "s": {"x": 2, "l": None}, "m": None},
        {"id": 3, "s": {"x": 3, "l": None}, "m": []},
        {"id": None, "s": {"x": 9, "l": None}, "m": None},
    ]
    nulls = pa.table({"id": pa.nulls(2), "s": pa.nulls(2), "m": pa.nulls(2)})
    result = table.merge(nulls, "t.id = s.id").when_matched_delete().when_not_matched_insert("*").execute()
    assert (result.metrics["numTargetRowsDeleted"], result.metrics["numTargetRowsInserted"]) == (0, 2)
    result = table.merge(nulls.slice(1), "t.id <=> s.id").when_matched_update({"id": "-1"}).execute()
    assert result.metrics["numTargetRowsUpdated"] == 3


def test_schema_evolution(store: MemoryStore) -> None:
    inner = pa.struct([("x", pa.int64())])
    table = DeltaTable.create(store, pa.schema([("id", pa.int64()), ("s", inner)]))
    table.append(pa.table({"id": [1, 2], "s": [{"x": 1}, None]}))
    wide = pa.struct([("x", pa.int64()), ("y", pa.string())])
    source = pa.table({"id": [2, 3], "s": pa.array([{"x": 5, "y": "y"}, None], wide), "n": [7, 8]})
    plain = table.merge(source, "t.id = s.id").when_matched_update({"s": "s.s"})
    with pytest.raises(LakeError):
        plain.execute()
    with pytest.raises((SchemaMismatch, InvalidMerge)):
        table.merge(source.drop_columns(["s"]), "t.id = s.id").when_not_matched_insert("*").execute()
    merge = (
        table.merge(source, "t.id = s.id")
        .with_schema_evolution()
        .when_matched_update("*", "s.n = 7")
        .when_not_matched_insert("*")
    )
    merge.execute()
    assert sorted(table.to_arrow().to_pylist(), key=str) == [
        {"id": 1, "s": {"x": 1, "y": None}, "n": None},
        {"id": 2, "s": {"x": 5, "y": "y"}, "n": 7},
        {"id": 3, "s": None, "n": 8},
    ]
    version = table.version
    with pytest.raises(SchemaMismatch, match="cannot be changed"):
        table.merge(
            pa.table({"id": [1], "s": [None], "n": ["x"]}), "t.id = s.id"
        ).with_schema_evolution().when_matched_update("*").execute()
    assert table.refresh().version == version


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (lambda t: t.merge(rows(0, 1), "t.id = s.id"), InvalidMerge),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id").when_matched_delete().when_matched_update("*"), InvalidMerge),
        (lambda t: t.merge(rows(0, 1), "id = s.id").when_matched_delete(), InvalidExpression),
        (lambda t: t.merge(rows(0, 1), "t.id = s.zz").when_matched_delete(), InvalidExpression),
        (lambda t: t.merge(rows(0, 1), "t.id = x.id").when_matched_delete(), InvalidExpression),
        (lambda t: t.merge(rows(0, 1), "t.id + s.id").when_matched_delete(), InvalidExpression),
        (lambda t: t.merge(rows(0, 1), "").when_matched_delete(), InvalidExpression),
        (lambda t: t.merge(rows(0, 1).drop_columns(["v"]), "t.id = s.id").when_matched_update("*"), InvalidMerge),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id").when_matched_update({}), SchemaMismatch),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id").when_matched_update({"zz": "1"}), SchemaMismatch),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id").when_matched_update({"v": "1", "V": "2"}), SchemaMismatch),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id").when_matched_update(7), SchemaMismatch),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id").when_not_matched_insert({"v": "t.v"}), InvalidExpression),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id").when_not_matched_insert("*", "t.v = 1"), InvalidExpression),
        (
            lambda t: t.merge(rows(0, 1), "t.id = s.id").when_not_matched_by_source_update({"v": "s.v"}),
            InvalidExpression,
        ),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id").when_not_matched_by_source_delete("s.v = 1"), InvalidExpression),
        (lambda t: t.merge(pa.table({"id": [1], "ID": [2]}), "t.id = s.id").when_matched_delete(), SchemaMismatch),
        (lambda t: t.merge([{"id": 1}], "t.id = s.id").when_matched_delete(), SchemaMismatch),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id", alias=("T", "t")).when_matched_delete(), InvalidMerge),
        (lambda t: t.merge(rows(0, 1), "t.id = s.id", alias="ts").when_matched_delete(), InvalidMerge),
    ],
)
def test_bad_merges_are_refused_before_anything_is_written(
    table: DeltaTable, start: Callable[[DeltaTable], Any], error: type[Exception]
) -> None:
    before = [meta.key for meta in table.store.list()]
    with pytest.raises(error):
        start(table).execute()
    assert [meta.key for meta in table.store.list()] == before
    assert table.refresh().version == 3


def test_aliases(table: DeltaTable) -> None:
    merge = table.merge(rows(0, 1), "`my target`.id = `ș`.id", alias=("my target", "ș"))
    assert merge.when_matched_update("*").execute().metrics["numTargetRowsUpdated"] == 1
    merge = table.merge(rows(1, 2), "id.id = v.id", alias=("id", "v"))  # like columns
    assert merge.when_matched_update({"v": "v.v + id.v"}).execute().metrics["numTargetRowsUpdated"] == 1
    assert table.to_arrow(where="id = 1")["v"].to_pylist() == [1.0]


def test_empty_sides(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA)
    full = table.merge(rows(0, 3), "t.id = s.id").when_matched_delete().when_not_matched_insert("*").execute()
    assert full.metrics["numTargetRowsInserted"] == 3
    nothing = SCHEMA.empty_table()
    version = table.version
    assert (
        table.merge(nothing, "t.id = s.id").when_matched_delete().when_not_matched_insert("*").execute().version
        == version
    )
    assert (
        table.merge(nothing, "t.id > s.id")
        .when_not_matched_by_source_delete("t.id = 1")
        .execute()
        .metrics["numTargetRowsDeleted"]
        == 1
    )
    assert (
        table.merge(nothing, "t.id = s.id")
        .when_not_matched_by_source_delete()
        .execute()
        .metrics["numTargetRowsDeleted"]
        == 2
    )
    assert table.files().num_rows == 0


CASES = [
    "kerneljava-basic-dv-no-checkpoint",
    "krs-table-with-dv-small",
    "golden-dv-with-columnmapping",
    "krs-cdf-table-with-dv",
    "rs-table_with_deletion_logs",
    "golden-table-with-columnmapping-mode-name",
    "rs-table_with_partitioning_mapping",
    "golden-data-reader-escaped-chars",
    "golden-data-reader-timestamp_ntz-id-mode",
]


@pytest.mark.parametrize("name", CASES)
def test_tables_of_others(cases: Path, tmp_path: Path, name: str) -> None:
    """Half of the rows as a source: matched ones are deleted, the others stay, and new ones with null keys come in."""
    shutil.copytree(cases / "delta" / name, tmp_path / "t")
    table = DeltaTable.open(tmp_path / "t")
    before = table.to_arrow()
    flat = [child.name for child in table.schema if not pa.types.is_nested(child.type)]
    key = min(flat, key=lambda name: before[name].null_count)
    quoted = "`" + key.replace("`", "``") + "`"
    chosen = sorted(set(before[key].to_pylist()) - {None})[::2]
    source = pa.table({key: pa.array([*chosen, None], table.schema.field(key).type)})
    staying = [row for row in before.to_pylist() if row[key] not in chosen]
    merge = table.merge(source, f"t.{quoted} = s.{quoted}").when_matched_delete()
    result = merge.when_not_matched_insert({key: f"s.{quoted}"}).execute()
    assert result.metrics["numTargetRowsDeleted"] == len(before) - len(staying) > 0
    expected = Counter(map(str, [*staying, dict.fromkeys(before.column_names)]))
    assert held(table) == expected
    assert oracle(tmp_path / "t") == expected


def test_a_merge_that_is_executed_again_has_its_source_still(table: DeltaTable) -> None:
    """The merge runs again after a lost race. With an empty source it would delete every row."""
    stale = DeltaTable.open(table.store)
    merge = stale.merge(rows(0, 17).to_reader(), "t.id = s.id").when_not_matched_by_source_delete()
    table.append(rows(18, 20))
    with pytest.raises(ConcurrentModification):
        merge.execute()
    stale.refresh()
    assert merge.execute().metrics["numTargetRowsDeleted"] == 3
    assert ids(stale.to_arrow()) == list(range(17))


def test_a_source_that_breaks_off_is_not_taken_for_a_whole_one(table: DeltaTable) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(0, 3).to_batches()[0]
        raise RuntimeError("the source broke off")

    merge = table.merge(
        pa.RecordBatchReader.from_batches(SCHEMA, batches()), "t.id = s.id"
    ).when_not_matched_by_source_delete()
    with pytest.raises(RuntimeError, match="broke off"):
        merge.execute()
    with pytest.raises(InvalidMerge, match="cannot be read again"):
        merge.execute()
    assert table.refresh().version == 3


def test_structs_are_compared_by_their_fields_alone(store: MemoryStore) -> None:
    kind = pa.struct([("a", pa.int64())])
    table = DeltaTable.create(store, pa.schema([("id", pa.int64()), ("s", kind)]))
    table.append(pa.table({"id": [1, 2, 3], "s": [None, {"a": None}, {"a": 5}]}, schema=table.schema))
    source = pa.table({"s": pa.array([{"a": None}, {"a": 5}], kind)})
    with pytest.raises(InvalidExpression, match="cannot be compared"):
        table.merge(source, "t.s = s.s").when_matched_delete().execute()
    with pytest.raises(InvalidExpression, match="cannot be compared"):
        table.add_constraint("c", "s <=> s")
    # The field of a struct that is null is null too.
    assert (
        table.merge(source, "t.s.a <=> s.s.a")
        .when_matched_update({"id": "-t.id"})
        .execute()
        .metrics["numTargetRowsUpdated"]
        == 3
    )


def test_keys_that_the_table_could_not_hold(store: MemoryStore) -> None:
    table = DeltaTable.create(store, pa.schema([("id", pa.int32()), ("d", pa.date32())]))
    table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "d": pa.array([0, -1], pa.date32())}))
    source = pa.table({"id": [1, 2**40], "d": pa.array([0, 1], pa.timestamp("us", "UTC"))})
    assert (
        table.merge(source, "t.d = s.d").when_matched_update({"id": "7"}).execute().metrics["numTargetRowsUpdated"] == 1
    )
    assert table.merge(source, "t.id = s.id").when_matched_delete().execute().metrics == {}
    with pytest.raises(LakeError, match="1099511627776"):
        table.merge(source, "t.id = s.id").when_not_matched_insert({"id": "s.id"}).execute()
    many = pa.table({"id": [*range(1, 3000), 2**40]})  # more keys than are searched one by one
    assert table.merge(many, "t.id = s.id").when_matched_delete().execute().metrics["numTargetRowsDeleted"] == 2


@pytest.mark.parametrize(("own", "other"), [(pa.float64(), pa.float64()), (pa.float32(), pa.float64())])
def test_every_nan_is_one_key_and_so_is_every_zero(store: MemoryStore, own: pa.DataType, other: pa.DataType) -> None:
    bits = pa.array([0x7FF8000000000000, -0x0008000000000000, 0x7FF8000000000001], pa.int64()).view(pa.float64())
    table = DeltaTable.create(store, pa.schema([("k", own), ("n", pa.int64())]))
    table.append(pa.table({"k": pa.array([float("nan"), 0.0, 1.5], own), "n": [1, 2, 3]}))
    for number, key in enumerate(bits):
        source = pa.table(
            {"k": pa.array([key.as_py()], other) if number == 0 else bits.slice(number, 1), "n": [10 + number]}
        )
        result = (
            table.merge(source, "t.k = s.k").when_matched_update({"n": "s.n"}).when_not_matched_insert("*").execute()
        )
        assert (result.metrics["numTargetRowsUpdated"], result.metrics["numTargetRowsInserted"]) == (1, 0), number
    table.merge(pa.table({"k": pa.array([-0.0], other), "n": [20]}), "t.k <=> s.k").when_matched_update(
        {"n": "s.n"}
    ).execute()
    assert sorted(table.to_arrow()["n"].to_pylist()) == [3, 12, 20]


def test_null_safe_keys_find_files_of_nulls_alone(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    table.append(pa.table({"id": [None, None], "p": [None, "p0"], "v": [1.0, 2.0]}, schema=SCHEMA))
    table.append(rows(0, 3))
    source = pa.table({"id": [None, 1, 100], "p": [None, "p1", "p9"]})
    result = table.merge(source, "t.id <=> s.id").when_matched_update({"v": "-1"}).execute()
    assert result.metrics["numTargetRowsUpdated"] == 3
    result = table.merge(source, "t.p <=> s.p AND t.id <=> s.id").when_matched_delete().execute()
    assert result.metrics["numTargetRowsDeleted"] == 2
    assert table.merge(source, "t.id = s.id").when_matched_delete().execute().metrics == {}


def test_targets_as_sql_names_them(table: DeltaTable) -> None:
    """Targets are named with the table's alias and in backticks."""
    source = pa.table({"id": [7], "v": [70.0]})
    merge = table.merge(source, "t.id = s.id").when_matched_update({"t.v": "s.v", "`P`": "'p1'"})
    merge.execute()
    assert table.to_arrow(where="v = 70")["id"].to_pylist() == [7]
    merge = table.merge(source, "old.id = new.id", alias=("old", "new"))
    merge.when_not_matched_by_source_update({"Old.`v`": "old.v + 1000"}).execute()
    assert table.to_arrow(where="v > 999").num_rows == 17
    for twice in ({"t.v": "1", "v": "2"}, {"t.v": "1", "`V`": "2"}):
        with pytest.raises(SchemaMismatch, match="twice"):
            table.merge(source, "t.id = s.id").when_matched_update(twice).execute()
    with pytest.raises(SchemaMismatch, match=r"no column 's\.v'"):
        table.merge(source, "t.id = s.id").when_matched_update({"s.v": "1"}).execute()
    odd = DeltaTable.create(
        MemoryStore(), pa.schema([("t", pa.struct([("v", pa.int64())])), ("a.b", pa.struct([("c`d", pa.int64())]))])
    )
    odd.append(pa.table({"t": [{"v": 1}], "a.b": [{"c`d": 1}]}))
    odd.merge(pa.table({"v": [1]}), "t.t.v = s.v").when_matched_update({"t.v": "5", "`a.b`.`c``d`": "6"}).execute()
    assert odd.to_arrow().to_pylist() == [{"t": {"v": 5}, "a.b": {"c`d": 6}}]


UPSERT = pa.schema([("id", pa.int64()), ("f", pa.float64())])


def _upsert(store: MemoryStore, ids: list[int | None], floats: list[float], keys: list[str]) -> None:
    table = DeltaTable.create(store, UPSERT, exist_ok=True)
    on = " AND ".join(f"t.{key} = s.{key}" for key in keys)
    merge = table.merge(pa.table({"id": ids, "f": floats}, schema=UPSERT), on)
    merge.when_matched_update("*").when_not_matched_insert("*").with_unique_keys(keys).execute()


@pytest.mark.parametrize(
    ("ids", "floats", "keys", "message"),
    [
        (
            [2, 2, 3],
            [1.0, 2.0, 3.0],
            ["id"],
            r"2 of the rows to merge share a key \(id\) with another one, such as 2, so",
        ),
        ([2, 2, 3], [1.0, 1.0, 3.0], ["id", "f"], r"such as \(2, 1.0\), so"),
        ([1, 2], [float("nan"), float("nan")], ["f"], "such as nan"),
        ([1, 2], [0.0, -0.0], ["f"], "such as 0.0"),
        ([1, 1, 2, 2, 3, 3, 4, 4], [0.0] * 8, ["id"], "8 of the rows .* such as 1, 2, 3, …, so"),
    ],
)
def test_rows_that_share_a_key_are_refused(
    store: MemoryStore, ids: list[int | None], floats: list[float], keys: list[str], message: str
) -> None:
    with pytest.raises(DuplicateKeys, match=message):
        _upsert(store, ids, floats, keys)
    assert DeltaTable.open(store).is_blank


def test_rows_without_a_key_are_refused(store: MemoryStore) -> None:
    with pytest.raises(NullKeys, match=r"1 of the rows to merge have a null in the key \(f, id\)"):
        _upsert(store, [None, 1], [0.0, 1.0], ["f", "id"])
    assert DeltaTable.open(store).is_blank


def test_rows_with_keys_of_their_own_are_merged(store: MemoryStore) -> None:
    _upsert(store, [1, 2], [1.0, 2.0], ["id"])
    _upsert(store, [2, 3], [20.0, 30.0], ["id"])
    _upsert(store, [], [], ["id"])
    assert sorted(DeltaTable.open(store).to_arrow()["f"].to_pylist()) == [1.0, 20.0, 30.0]


CHANGED = [
    (1.5, pa.float64(), pa.int64()),
    (Decimal("1.55"), pa.decimal128(5, 2), pa.int32()),
    (Decimal("1.55"), pa.decimal128(5, 2), pa.decimal128(5, 1)),
    (0.155, pa.float64(), pa.decimal128(5, 2)),
    (0.1, pa.float64(), pa.float32()),
    (2**53 + 1, pa.int64(), pa.float64()),
    (2**63 - 1, pa.int64(), pa.float64()),
    (2**31, pa.int64(), pa.int32()),
    (1000, pa.int64(), pa.decimal128(5, 2)),
    (dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), pa.timestamp("us", "UTC"), pa.date32()),
]
KEPT = [
    (2.0, pa.float64(), pa.int64(), 2),
    (Decimal("1.50"), pa.decimal128(5, 2), pa.decimal128(5, 1), Decimal("1.5")),
    (Decimal("1.10"), pa.decimal128(5, 2), pa.float64(), 1.1),
    (2**60, pa.int64(), pa.float64(), 2.0**60),
    (7, pa.int64(), pa.decimal128(5, 2), Decimal("7.00")),
    (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), pa.timestamp("us", "UTC"), pa.date32(), dt.date(2024, 1, 1)),
]


def starred(value: Any, source: pa.DataType, target: pa.DataType, nested: bool) -> Any:
    """Merge a row with a value by `*`, into one row and as a new one. Return the column of both."""
    kinds = [pa.list_(pa.struct([("f", kind)])) if nested else kind for kind in (source, target)]
    value = [{"f": value}, {"f": None}, None] if nested else value
    table = DeltaTable.create(MemoryStore(), pa.schema([("id", pa.int64()), ("v", kinds[1])]))
    table.append(pa.table({"id": [1], "v": pa.nulls(1, kinds[1])}))
    rows = pa.table({"id": [1, 2], "v": pa.array([value, value], kinds[0])})
    table.merge(rows, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    return table.to_arrow()["v"].to_pylist()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("value", "source", "target"), CHANGED, ids=str)
def test_a_star_changes_no_value(value: Any, source: pa.DataType, target: pa.DataType, nested: bool) -> None:
    with pytest.raises(EvaluationFailed, match=r"column 'v': .*not the same"):
        starred(value, source, target, nested)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("value", "source", "target", "expected"), KEPT, ids=str)
def test_a_star_takes_values_that_are_the_same_in_the_table(
    value: Any, source: pa.DataType, target: pa.DataType, expected: Any, nested: bool
) -> None:
    assert (
        starred(value, source, target, nested)
        == [
            [{"f": expected}, {"f": None}, None] if nested else expected,
        ]
        * 2
    )


def test_values_of_sql_are_cut_as_spark_does() -> None:
    table = DeltaTable.create(MemoryStore(), pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    table.append(pa.table({"id": [1], "v": [0]}))
    rows = pa.table({"id": [1], "v": [1.5]})
    table.merge(rows, "t.id = s.id").when_matched_update({"v": "s.v"}).execute()
    assert table.to_arrow()["v"].to_pylist() == [1]
