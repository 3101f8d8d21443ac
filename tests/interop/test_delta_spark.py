"""delta-spark and this implementation on the same tables, in both directions.

Needs an environment of its own: `make interop`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable, variant
from lake_core.delta.errors import ConstraintViolation
from lake_core.delta.version_checksum import checksum_key, disagreements
from tests.delta.tables import SCHEMA, ids, rows
from tests.docs.reader_matrix import DELTA_SPARK as READS_BY_SPARK
from tests.docs.reader_matrix import KINDS, by_spark, written
from tests.processes import CONTEXT

PYTHON = os.environ.get("DELTA_SPARK_PYTHON", "")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not PYTHON, reason="DELTA_SPARK_PYTHON names no environment with delta-spark: run `make interop`"
    ),
]


class DeltaSparkError(Exception):
    """What delta-spark refused."""


class DeltaSpark:
    """A delta-spark session in another process."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        command = [PYTHON, str(Path(__file__).with_name("delta_spark.py")), json.dumps(dict(config or {}))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._turn = threading.Lock()
        self.version = self._answer()["ready"]

    def sql(self, text: str) -> list[dict[str, Any]]:
        with self._turn:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"sql": text}) + "\n")
            self._process.stdin.flush()
            answer = self._answer()
        if "error" in answer:
            raise DeltaSparkError(answer["error"])
        found: list[dict[str, Any]] = answer["rows"]
        return found

    def rows(self, url: str) -> Counter[str]:
        return _counted(self.sql(f"SELECT * FROM delta.`{url}`"))

    def changes(self, url: str, first: int) -> Counter[str]:
        found = self.sql(f"SELECT * FROM table_changes_by_path('{url}', {first})")
        return _counted([{key: value for key, value in row.items() if key != "_commit_timestamp"} for row in found])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # what the JVM prints
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("delta-spark ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture(scope="module")
def delta_spark() -> Iterator[DeltaSpark]:
    spark = DeltaSpark()
    yield spark
    spark.close()


def _counted(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in found)


def _ours(table: DeltaTable) -> Counter[str]:
    return _counted(table.to_arrow().to_pylist())


def _our_changes(table: DeltaTable, first: int) -> Counter[str]:
    return _counted(table.changes(first).read_all().drop_columns(["_commit_timestamp"]).to_pylist())


def _work(table: DeltaTable) -> None:
    """Every kind of operation, one after another."""
    for number in range(4):
        table.append(rows(number * 5, number * 5 + 5), txn=("app", number))
    table.delete("id % 5 = 1")
    table.update({"v": "v + 100"}, "id % 5 = 2")
    source = pa.table({"id": [3, 4, 50], "p": ["p0", "p9", "p1"], "v": [7.0, 8.0, 9.0]})
    merge = table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*")
    merge.when_not_matched_by_source_delete("t.id > 16").execute()
    table.overwrite(rows(12, 13), where="id IN (12, 13)")
    table.optimize(zorder_by=["id"])
    table.append(rows(60, 61))
    table.restore(table.version - 1)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
        {
            "delta.constraints.small": "id < 100",
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpointInterval": "3",
        },
        {
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpoint.writeStatsAsJson": "false",
            "delta.checkpointInterval": "2",
        },
        {"delta.enableInCommitTimestamps": "true"},
        {"delta.feature.deletionVectors": "supported", "delta.feature.v2Checkpoint": "supported"},
        {"delta.enableDeletionVectors": "true"},
        {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2", "delta.enableChangeDataFeed": "true"},
        {
            "delta.enableDeletionVectors": "true",
            "delta.enableChangeDataFeed": "true",
            "delta.columnMapping.mode": "name",
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpointInterval": "2",
        },
    ],
)
def test_it_reads_and_continues_what_is_written_here(
    delta_spark: DeltaSpark, tmp_path: Path, properties: dict[str, str]
) -> None:
    url = str(tmp_path)
    table = DeltaTable.create(url, SCHEMA, partition_by=["p"], properties=properties)
    _work(table)
    assert delta_spark.rows(url) == _ours(table)
    if "delta.enableChangeDataFeed" in properties:
        assert delta_spark.changes(url, 0) == _our_changes(table, 0)
    operations = [row["operation"] for row in delta_spark.sql(f"DESCRIBE HISTORY delta.`{url}`")]
    assert operations[:3] == ["RESTORE", "WRITE", "OPTIMIZE"]
    assert operations[-1] == "CREATE TABLE"
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (70, 'p1', 0.5)")
    delta_spark.sql(f"UPDATE delta.`{url}` SET v = -1 WHERE id < 4")
    delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id = 10")
    delta_spark.sql(f"OPTIMIZE delta.`{url}`")
    table.refresh()
    assert delta_spark.rows(url) == _ours(table)
    assert table.txn_version("app") == 3
    if "delta.enableChangeDataFeed" in properties:
        assert delta_spark.changes(url, 0) == _our_changes(table, 0)
    table.delete("id = 70")
    assert delta_spark.rows(url) == _ours(table)


def test_constraints_bind_both(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    url = str(tmp_path)
    table = DeltaTable.create(url, SCHEMA)
    table.append(rows(0, 5))
    table.add_constraint("positive", "v >= 0 AND id IS NOT NULL")
    for bad in ("(1, 'p', -0.5)", "(NULL, 'p', 1)", "(1, 'p', NULL)"):
        with pytest.raises(DeltaSparkError, match="CHECK constraint positive"):
            delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES {bad}")
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (9, 'p', 0)")
    delta_spark.sql(f"ALTER TABLE delta.`{url}` ADD CONSTRAINT short CHECK (length(p) < 4)")
    table.refresh()
    # The expressions are as Spark spells them.
    assert table.constraints == {"positive": "v >= 0 AND id IS NOT NULL", "short": "length ( p ) < 4"}
    for bad_row in ({"id": [1], "p": ["p"], "v": [None]}, {"id": [1], "p": ["long"], "v": [1.0]}):
        with pytest.raises(ConstraintViolation):
            table.append(pa.table(bad_row, schema=SCHEMA))
    table.drop_constraint("positive")
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (1, 'p', -0.5)")
    assert ids(table.refresh().to_arrow()) == [0, 1, 1, 2, 3, 4, 9]


def test_generated_columns_of_both(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    theirs = str(tmp_path / "theirs")
    delta_spark.sql(
        f"CREATE TABLE delta.`{theirs}` (id BIGINT, at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), "
        f"month STRING GENERATED ALWAYS AS (DATE_FORMAT(at, 'yyyy-MM')), twice BIGINT GENERATED ALWAYS AS (id * 2)) "
        f"USING delta PARTITIONED BY (day)"
    )
    delta_spark.sql(f"INSERT INTO delta.`{theirs}` (id, at) VALUES (1, TIMESTAMP '2024-02-29 23:59:59.5')")
    table = DeltaTable.open(theirs)
    assert "generatedColumns" in (table.protocol.writer_features or ())
    stamp = pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC"))
    table.append(pa.table({"id": [2, None], "at": stamp}))
    table.update({"at": "TIMESTAMP '2020-01-31 00:00:00Z'"}, "id = 2")
    with pytest.raises(ConstraintViolation, match="twice"):
        table.append(pa.table({"id": [3], "twice": [7]}))
    assert delta_spark.rows(theirs) == _counted(
        [{**row, "at": _local(row["at"])} for row in table.to_arrow().to_pylist()]
    )
    found = {row["id"]: (str(row["day"]), row["month"], row["twice"]) for row in table.to_arrow().to_pylist()}
    assert found == {1: ("2024-02-29", "2024-02", 2), 2: ("2020-01-31", "2020-01", 4), None: ("None", None, None)}
    delta_spark.sql(f"INSERT INTO delta.`{theirs}` (id, at) VALUES (5, NULL)")
    assert table.refresh().to_arrow(where="twice = 10").num_rows == 1


def _local(moment: Any) -> str | None:
    return None if moment is None else str(moment.replace(tzinfo=None))


@pytest.mark.parametrize(
    "properties",
    [
        "'delta.columnMapping.mode' = 'name'",
        "'delta.columnMapping.mode' = 'id'",
        "'delta.enableDeletionVectors' = 'true'",
        "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.columnMapping.mode' = 'name'",
        "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'",
        "'delta.enableChangeDataFeed' = 'true', 'delta.appendOnly' = 'false'",
        "'delta.enableInCommitTimestamps' = 'true'",
        "'delta.enableTypeWidening' = 'true'",
    ],
)
def test_its_tables_are_read_and_continued_here(delta_spark: DeltaSpark, tmp_path: Path, properties: str) -> None:
    url = str(tmp_path)
    delta_spark.sql(
        f"CREATE TABLE delta.`{url}` (id BIGINT, p STRING, v DOUBLE, s STRUCT<a: INT, b: ARRAY<STRING>>) USING delta "
        f"PARTITIONED BY (p) TBLPROPERTIES ({properties})"
    )
    for number in range(4):
        delta_spark.sql(
            f"INSERT INTO delta.`{url}` "
            "SELECT id, concat('p', id % 3), id / 2, named_struct('a', int(id), 'b', array('x', NULL)) "
            f"FROM range({number * 10}, {number * 10 + 10})"
        )
    delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id % 7 = 3")
    delta_spark.sql(f"UPDATE delta.`{url}` SET v = NULL WHERE id % 9 = 1")
    delta_spark.sql(f"INSERT OVERWRITE delta.`{url}` SELECT * FROM delta.`{url}` WHERE id <> 5")
    if "columnMapping" in properties:
        delta_spark.sql(f"ALTER TABLE delta.`{url}` RENAME COLUMN v TO w")
        delta_spark.sql(f"ALTER TABLE delta.`{url}` ADD COLUMNS (extra STRING)")
    table = DeltaTable.open(url)
    # delta-spark tells no changes across a rename.
    first = table.version if "columnMapping" in properties else 0
    assert delta_spark.rows(url) == _ours(table)
    table.append(table.to_arrow(where="id < 3"))
    table.delete("id = 2")
    table.update({"s.a": "s.a + 1"}, "p = 'p1' AND id < 20")
    source = pa.table({"id": [4, 400], "p": ["p1", "p4"]})
    table.merge(source, "t.id = s.id").when_matched_delete().when_not_matched_insert(
        {"id": "s.id", "p": "s.p"}
    ).execute()
    table.optimize()
    assert delta_spark.rows(url) == _ours(table)
    if "ChangeDataFeed" in properties:
        assert delta_spark.changes(url, first) == _our_changes(table, first)
    delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id > 30")
    table.refresh()
    table.checkpoint()
    assert delta_spark.rows(url) == _ours(DeltaTable.open(url))


def test_mixed_writers_lose_nothing(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    url, rounds = str(tmp_path), 15
    DeltaTable.create(url, SCHEMA)
    writers = [CONTEXT.Process(target=_append, args=(url, first, rounds)) for first in (1000, 2000)]
    for writer in writers:
        writer.start()
    for number in range(rounds):
        delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES ({number}, 'spark', 0)")
    for writer in writers:
        writer.join(300)
        assert writer.exitcode == 0
    expected = [*range(rounds), *range(1000, 1000 + rounds), *range(2000, 2000 + rounds)]
    table = DeltaTable.open(url)
    assert ids(table.to_arrow()) == expected
    assert sorted(row["id"] for row in delta_spark.sql(f"SELECT id FROM delta.`{url}`")) == expected
    assert table.version == 3 * rounds


def _ids(delta_spark: DeltaSpark, table: DeltaTable) -> None:
    """Check that both give rows the same ids and versions."""
    names = ["_metadata.row_id", "_metadata.row_commit_version"]
    ours = table.to_arrow(columns=["id", *names]).rename_columns(["id", "row_id", "version"]).to_pylist()
    query = f"SELECT id, {names[0]} row_id, {names[1]} version FROM delta.`{table.store.url()}`"
    assert _counted(delta_spark.sql(query)) == _counted(ours)


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("creator", ["here", "there", "later here", "later there"])
def test_rows_keep_their_ids_with_both(delta_spark: DeltaSpark, tmp_path: Path, creator: str, vectors: bool) -> None:
    url, tracks = str(tmp_path), {"delta.enableRowTracking": "true"}
    others = {"delta.enableDeletionVectors": str(vectors).lower(), "delta.columnMapping.mode": "name"}
    properties = (others if "later" in creator else others | tracks) | {"delta.minReaderVersion": "2"}
    if "here" in creator:
        DeltaTable.create(url, SCHEMA, properties=properties)
    else:
        texts = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items() if "minReader" not in key)
        delta_spark.sql(
            f"CREATE TABLE delta.`{url}` (id BIGINT, p STRING, v DOUBLE) USING delta TBLPROPERTIES ({texts})"
        )
    table = DeltaTable.open(url)
    table.append(rows(0, 10))
    delta_spark.sql(f"INSERT INTO delta.`{url}` SELECT id, 'p', 0.5 FROM range(10, 20, 1, 1)")
    if creator == "later here":
        table.refresh().set_properties(tracks)
    elif creator == "later there":
        delta_spark.sql(f"ALTER TABLE delta.`{url}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    table.refresh()
    _ids(delta_spark, table)
    before = _row_ids(table)
    table.update({"v": "v + 1"}, "id IN (3, 13)")
    _ids(delta_spark, table)
    delta_spark.sql(f"UPDATE delta.`{url}` SET v = -1 WHERE id IN (4, 14)")
    _ids(delta_spark, table.refresh())
    source = pa.table({"id": [5, 15, 30], "p": ["m", "m", "m"], "v": [0.0, 0.0, 0.0]}, schema=SCHEMA)
    table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    _ids(delta_spark, table)
    table.delete("id IN (6, 16)")
    delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id IN (7, 17)")
    _ids(delta_spark, table.refresh())
    table.optimize()
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (40, 'q', 0)")
    _ids(delta_spark, table.refresh())
    delta_spark.sql(f"OPTIMIZE delta.`{url}`")
    table.refresh().checkpoint()
    _ids(delta_spark, DeltaTable.open(url))
    after = _row_ids(table)
    assert {key: id for key, id in after.items() if key < 20} == {key: before[key] for key in after if key < 20}
    assert len(set(after.values())) == len(after) == 18


@pytest.mark.parametrize("creator", ["here", "there"])
def test_both_give_numbers_to_new_rows(delta_spark: DeltaSpark, tmp_path: Path, creator: str) -> None:
    url = str(tmp_path)
    if creator == "here":
        identity = {
            "delta.identity.start": "10",
            "delta.identity.step": "-2",
            "delta.identity.allowExplicitInsert": "false",
        }
        field = pa.field("n", pa.int64(), metadata=identity)
        DeltaTable.create(url, pa.schema([field, ("v", pa.string())]), properties={"delta.minWriterVersion": "7"})
    else:
        delta_spark.sql(
            f"CREATE TABLE delta.`{url}` (n BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY -2), "
            "v STRING) USING delta"
        )
    table = DeltaTable.open(url)
    table.append(pa.table({"v": ["a", "b"]}))
    delta_spark.sql(f"INSERT INTO delta.`{url}` (v) VALUES ('c'), ('d')")
    table.refresh().append(pa.table({"v": ["e"]}))
    merge = table.merge(pa.table({"v": ["a", "f"]}), "t.v = s.v").when_not_matched_insert("*")
    merge.when_matched_delete().execute()
    delta_spark.sql(f"INSERT INTO delta.`{url}` (v) VALUES ('g')")
    rows_of_both = delta_spark.rows(url)
    assert rows_of_both == _ours(table.refresh())
    numbers = table.to_arrow()["n"].to_pylist()
    assert len(set(numbers)) == len(numbers) == 6
    assert all(number <= 10 and number % 2 == 0 for number in numbers)


@pytest.mark.parametrize("by_us", [True, False])
@pytest.mark.parametrize("step", [3, -3])
def test_both_go_on_after_numbers_that_rows_had(
    delta_spark: DeltaSpark, tmp_path: Path, step: int, by_us: bool
) -> None:
    url = str(tmp_path)
    delta_spark.sql(
        f"CREATE TABLE delta.`{url}` (n BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 1 INCREMENT BY {step}), "
        "v STRING) USING delta"
    )
    table = DeltaTable.open(url)
    table.append(pa.table({"n": [step * 10], "v": ["own"]}))
    if by_us:
        table.sync_identity("n")
        delta_spark.sql(f"INSERT INTO delta.`{url}` (v) VALUES ('a')")
    else:
        delta_spark.sql(f"ALTER TABLE delta.`{url}` ALTER COLUMN n SYNC IDENTITY")
        table.refresh().append(pa.table({"v": ["a"]}))
    numbers = dict(zip(*table.refresh().to_arrow().select(["v", "n"]).to_pydict().values(), strict=True))
    assert (numbers["a"] - step * 10) * step > 0
    assert _ours(table) == delta_spark.rows(url)


@pytest.mark.parametrize("creator", ["here", "there"])
@pytest.mark.parametrize("version", [2, 3])
def test_both_keep_a_table_readable_for_iceberg(
    delta_spark: DeltaSpark, tmp_path: Path, creator: str, version: int
) -> None:
    url = str(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.list_(pa.int32()))), ("p", pa.string())])
    if creator == "here":
        DeltaTable.create(url, schema, partition_by=["p"], properties={f"delta.enableIcebergCompatV{version}": "true"})
    else:
        delta_spark.sql(
            f"CREATE TABLE delta.`{url}` (id BIGINT, m MAP<STRING, ARRAY<INT>>, p STRING) USING delta "
            "PARTITIONED BY (p) "
            f"TBLPROPERTIES ('delta.enableIcebergCompatV{version}' = 'true', 'delta.columnMapping.mode' = 'name')"
        )
    table = DeltaTable.open(url)
    found = [{"id": number, "m": [("k", [number])], "p": f"p{number % 2}"} for number in range(4)]
    table.append(pa.Table.from_pylist(found, schema=schema))
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (10, map('z', array(1, NULL)), 'p1')")
    delta_spark.sql(f"ALTER TABLE delta.`{url}` ADD COLUMNS (l ARRAY<STRING>)")
    table.refresh().add_columns(pa.schema([("n", pa.list_(pa.int64()))]))
    table.update({"p": "'p9'"}, "id = 1")
    delta_spark.sql(f"UPDATE delta.`{url}` SET n = array(5), l = array('t') WHERE id = 2")
    delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id = 3")
    table.refresh().optimize()
    rows_of_both = delta_spark.sql(f"SELECT id, m['k'] k, p, l, n FROM delta.`{url}` ORDER BY id")
    ours = table.refresh().to_arrow().sort_by("id").to_pylist()
    names = ("id", "p", "l", "n")
    assert rows_of_both == [{name: row[name] for name in names} | {"k": dict(row["m"]).get("k")} for row in ours]
    tagged = [row["add"].get("tags") for row in _adds(table)]
    assert tagged == [{"ICEBERG_COMPAT_VERSION": str(version)}] * len(tagged)


def _adds(table: DeltaTable) -> list[dict[str, Any]]:
    data = bytes(table.store.get(f"_delta_log/{table.version:020}.json"))
    return [json.loads(line) for line in data.splitlines() if b'"add"' in line]


@pytest.mark.parametrize("creator", ["here", "there"])
def test_both_widen_types(delta_spark: DeltaSpark, tmp_path: Path, creator: str) -> None:
    url = str(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("b", pa.float32()), ("c", pa.int16())])
    if creator == "here":
        DeltaTable.create(url, schema, properties={"delta.enableTypeWidening": "true"})
    else:
        delta_spark.sql(
            f"CREATE TABLE delta.`{url}` (id BIGINT, a INT, b FLOAT, c SMALLINT) USING delta "
            "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
        )
    table = DeltaTable.open(url)
    table.append(pa.table({"id": [1], "a": [5], "b": [0.5], "c": [7]}, schema=schema))
    table.widen_column("a", pa.int64())
    table.widen_column("c", pa.decimal128(12, 2))
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (2, {2**40}, 0.25, 0.75)")
    delta_spark.sql(f"ALTER TABLE delta.`{url}` ALTER COLUMN b TYPE DOUBLE")
    table.refresh().append(pa.table({"id": [3], "a": [1], "b": [1e300], "c": [Decimal("2.50")]}, schema=table.schema))
    assert delta_spark.rows(url) == _ours(table)
    delta_spark.sql(f"OPTIMIZE delta.`{url}`")
    table.refresh().checkpoint()
    assert delta_spark.rows(url) == _ours(DeltaTable.open(url))


@pytest.mark.parametrize("shredded", ["false", "true"])
def test_variants_of_both(delta_spark: DeltaSpark, tmp_path: Path, shredded: str) -> None:
    url = str(tmp_path)
    schema = pa.schema([("id", pa.int64()), pa.field("v", variant.VARIANT), ("l", pa.list_(variant.VARIANT))])
    properties = {"delta.enableDeletionVectors": "true", "delta.enableVariantShredding": shredded}
    table = DeltaTable.create(url, schema, properties=properties)
    texts = [
        '{"a":1,"b":[1,2.5,null,true,"x"]}',
        "null",
        None,
        '"' + "y" * 100 + '"',
        "12345678901234567890123",
        "1e300",
        "{}",
    ]
    lists = [variant.from_json(["1", '"t"']).to_pylist(), [], None, *[None] * (len(texts) - 3)]
    table.append(
        pa.table(
            {"id": list(range(len(texts))), "v": variant.from_json(texts), "l": pa.array(lists, schema.field("l").type)}
        )
    )
    delta_spark.sql(f"INSERT INTO delta.`{url}` SELECT 100, parse_json('[7, {{}}]'), array(parse_json('false'))")
    table.refresh().update({"id": "id + 1000"}, "id = 0")
    delta_spark.sql(f"UPDATE delta.`{url}` SET v = parse_json('[]') WHERE id = 1")
    delta_spark.sql(f"OPTIMIZE delta.`{url}`")
    table.refresh().optimize()
    found = {row["id"]: row["j"] for row in delta_spark.sql(f"SELECT id, to_json(v) j FROM delta.`{url}`")}
    ours = table.refresh().to_arrow()
    assert found == dict(zip(ours["id"].to_pylist(), variant.to_json(ours["v"]).to_pylist(), strict=True)) | {
        5: found[5]
    }
    assert json.loads(found[5]) == 1e300
    assert found[1000] == texts[0]
    elements = delta_spark.sql(f"SELECT variant_get(l[1], '$', 'string') t FROM delta.`{url}` WHERE id = 1000")
    assert elements == [{"t": "t"}]


def test_it_reads_the_types_that_are_shredded_here(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    url = str(tmp_path)
    schema = pa.schema([("id", pa.int64()), pa.field("v", variant.VARIANT)])
    table = DeltaTable.create(url, schema, properties={"delta.enableVariantShredding": "true"})
    values: list[Any] = [
        {
            "flag": number % 2 == 0,
            "whole": 10**number,
            "half": number / 2,
            "price": Decimal(f"{number}.25"),
            "day": date(2024, 2, 29),
            "at": datetime(2024, 2, 29, 1, 2, 3, 456_789, UTC),
            "local": datetime(2024, 2, 29, 1, 2, 3),
            "bytes": b"\x00\xff",
            "text": "ä" * number,
            "list": [{"k": number}, {"k": None}, {"other": [1]}, number],
            "deep": {"a": {"b": {"c": number}}},
        }
        | ({"rare": 1} if number == 3 else {})
        for number in range(12)
    ]
    values += [None, "text", [1, 2], {"whole": "a text here"}, {}]
    table.append(pa.table({"id": list(range(len(values))), "v": variant.from_python(values)}))
    found = {row["id"]: row["j"] for row in delta_spark.sql(f"SELECT id, to_json(v) j FROM delta.`{url}`")}
    ours = table.to_arrow()
    expected = dict(zip(ours["id"].to_pylist(), variant.to_json(ours["v"]).to_pylist(), strict=True))
    assert {key: text and json.loads(text) for key, text in found.items()} == {
        key: text and json.loads(text) for key, text in expected.items()
    }
    parts = delta_spark.sql(f"SELECT id FROM delta.`{url}` WHERE variant_get(v, '$.deep.a.b.c', 'int') > 9")
    assert sorted(row["id"] for row in parts) == [10, 11]


def test_it_reads_and_continues_long_vectors(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    """In files, of several data files each, merged, and with runs."""
    url = str(tmp_path)
    table = DeltaTable.create(url, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    for start in range(0, 60_000, 20_000):
        table.append(rows(start, start + 20_000))
    for where in ("id % 3 = 1", "id BETWEEN 100 AND 7000", "id % 20000 > 19000", "id = 59999 OR id = 0"):
        table.delete(where)
        assert delta_spark.rows(url) == _ours(table)
    delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id % 5 = 0")
    table.refresh()
    assert delta_spark.rows(url) == _ours(table)
    table.update({"v": "-1"}, "id % 7 = 1")
    assert delta_spark.rows(url) == _ours(table)
    delta_spark.sql(f"REORG TABLE delta.`{url}` APPLY (PURGE)")
    assert delta_spark.rows(url) == _ours(table.refresh())


def test_mixed_writers_change_each_their_own_rows(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    """Of one file, which has vectors and row ids. Where the other side was first, ours go on; Spark is asked again."""
    url, count = str(tmp_path), 12
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    table = DeltaTable.create(url, SCHEMA, properties=properties)
    table.append(rows(0, 200))
    before = _row_ids(table)
    writers = [CONTEXT.Process(target=_delete, args=(url, first, count)) for first in (50, 100)]
    writers.append(CONTEXT.Process(target=_append, args=(url, 1000, count)))
    for writer in writers:
        writer.start()
    for id in range(count):
        _until_it_is_done(delta_spark, f"DELETE FROM delta.`{url}` WHERE id = {id}")
        _until_it_is_done(delta_spark, f"INSERT INTO delta.`{url}` VALUES ({2000 + id}, 'spark', 0)")
    for writer in writers:
        writer.join(300)
        assert writer.exitcode == 0
    gone = {first + number for first in (0, 50, 100) for number in range(count)}
    kept = [id for id in range(200) if id not in gone]
    expected = [*kept, *range(1000, 1000 + count), *range(2000, 2000 + count)]
    assert ids(table.refresh().to_arrow()) == expected
    assert sorted(row["id"] for row in delta_spark.sql(f"SELECT id FROM delta.`{url}`")) == expected
    assert table.version == 1 + 5 * count
    after = _row_ids(table)
    assert len(set(after.values())) == len(expected)
    assert {id: after[id] for id in kept} == {id: before[id] for id in kept}
    _ids(delta_spark, table)


def _row_ids(table: DeltaTable) -> dict[int, int]:
    return {
        row["id"]: row["_metadata.row_id"] for row in table.to_arrow(columns=["id", "_metadata.row_id"]).to_pylist()
    }


def _until_it_is_done(delta_spark: DeltaSpark, statement: str) -> None:
    """Run a statement again for as long as other commits conflict with it."""
    while True:
        try:
            delta_spark.sql(statement)
            return
        except DeltaSparkError as error:
            assert "DELTA_CONCURRENT" in str(error)


def _delete(url: str, first: int, count: int) -> None:
    table = DeltaTable.open(url)
    for number in range(count):
        table.delete(f"id = {first + number}")
    sys.exit(0)


def _append(url: str, first: int, rounds: int) -> None:
    table = DeltaTable.open(url)
    for number in range(rounds):
        table.append(rows(first + number, first + number + 1), txn=(f"writer-{first}", number))
    sys.exit(0)


@pytest.mark.parametrize("creator", ["here", "there"])
def test_both_sort_a_clustered_table_in_turns(delta_spark: DeltaSpark, tmp_path: Path, creator: str) -> None:
    url = str(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("a b", pa.string()), ("n", pa.struct([("z", pa.int32())]))])
    mapped = {"delta.columnMapping.mode": "name"}
    if creator == "here":
        DeltaTable.create(url, schema, cluster_by=["id", "a b", "n.z"], properties=mapped)
    else:
        delta_spark.sql(
            f"CREATE TABLE delta.`{url}` (id BIGINT, `a b` STRING, n STRUCT<z: INT>) USING delta "
            "CLUSTER BY (id, `a b`, n.z) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        )
    table = DeltaTable.open(url)
    for turn in range(4):
        values = [{"id": turn * 10 + n, "a b": str(n), "n": {"z": n}} for n in range(10)]
        table.refresh().append(pa.Table.from_pylist(values, schema=schema))
        if turn % 2:
            delta_spark.sql(f"OPTIMIZE delta.`{url}`")
        else:
            table.optimize()
        # Each takes the files that the other sorted for its own: all of them are one cube again.
        files = table.refresh().snapshot.files(["clusteringProvider", "tags"]).to_pylist()
        assert {row["clusteringProvider"] for row in files} == {"liquid"}
        assert len({dict(row["tags"])["ZCUBE_ID"] for row in files}) == 1
        assert delta_spark.rows(url) == _ours(table)
    version = table.version
    delta_spark.sql(f"OPTIMIZE delta.`{url}`")
    assert table.optimize().version == table.refresh().version == version
    table.cluster_by(["n.z"])
    assert delta_spark.sql(f"DESCRIBE DETAIL delta.`{url}`")[0]["clusteringColumns"] == ["n.z"]
    delta_spark.sql(f"ALTER TABLE delta.`{url}` CLUSTER BY NONE")
    assert table.refresh().detail().clustering_columns == ()


def test_it_reads_and_writes_on_our_clones(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    source = DeltaTable.create(
        str(tmp_path / "so urce"),
        SCHEMA,
        partition_by=["p"],
        properties={"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
    )
    source.append(rows(0, 3000))
    source.delete("id % 7 = 3")
    for shallow in (True, False):
        url = str(tmp_path / f"clone-{shallow}")
        clone = source.clone(url, shallow=shallow)
        assert delta_spark.rows(url) == _ours(source)
        delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id < 50")
        delta_spark.sql(f"OPTIMIZE delta.`{url}`")
        assert _ours(clone.refresh()) == delta_spark.rows(url)
        found = delta_spark.sql(f"SELECT id, _metadata.row_id AS row_id FROM delta.`{url}`")
        ours = clone.to_arrow(columns=["id", "_metadata.row_id"]).to_pylist()
        assert {(row["id"], row["row_id"]) for row in found} == {(row["id"], row["_metadata.row_id"]) for row in ours}


def test_it_believes_our_checksums_and_goes_on_from_them(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    url = str(tmp_path)
    table = DeltaTable.create(url, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    table.append(rows(0, 30), txn=("app", 1))
    table.delete("id = 3")
    ours = json.loads(table.store.get(checksum_key(2)))
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (100, 'x', 1.0)")
    its = json.loads(table.store.get(checksum_key(3)))
    sizes = table.refresh().files(["size"])["size"].to_pylist()
    assert (its["numFiles"], its["tableSizeBytes"]) == (len(sizes), sum(sizes))
    assert its["numDeletedRecordsOpt"] == ours["numDeletedRecordsOpt"] == 1
    assert its["setTransactions"] == ours["setTransactions"]
    assert set(ours) <= set(its) | {"allFiles"}
    assert disagreements(table.snapshot) == []


def test_both_go_on_after_features_are_dropped(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    url = str(tmp_path)
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.checkpointPolicy": "v2",
        "delta.enableRowTracking": "true",
    }
    table = DeltaTable.create(url, SCHEMA, properties=properties)
    table.append(rows(0, 3000))
    table.delete("id % 3 = 0")
    before = _ours(table)
    for feature in ("deletionVectors", "rowTracking", "v2Checkpoint"):
        table.drop_feature(feature)
        assert delta_spark.rows(url) == before
    delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id = 1")
    delta_spark.sql(f"ALTER TABLE delta.`{url}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    delta_spark.sql(f"DELETE FROM delta.`{url}` WHERE id = 2")
    assert _ours(table.refresh()) == delta_spark.rows(url)
    delta_spark.sql(f"ALTER TABLE delta.`{url}` DROP FEATURE deletionVectors")
    assert _ours(table.refresh()) == delta_spark.rows(url)
    table.append(rows(5000, 5002))
    assert delta_spark.sql(f"SELECT count(*) AS n FROM delta.`{url}` VERSION AS OF 2")[0]["n"] == 2000
    assert _ours(DeltaTable.open(url)) == delta_spark.rows(url)


@pytest.mark.parametrize("by_us", [True, False])
def test_both_go_on_after_the_names_and_types_of_files_are_plain(
    delta_spark: DeltaSpark, tmp_path: Path, by_us: bool
) -> None:
    url = str(tmp_path)
    schema = pa.schema([("id", pa.int32()), ("p", pa.string()), ("s", pa.struct([("a", pa.int32())]))])
    properties = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    table = DeltaTable.create(url, schema, properties=properties, partition_by=["p"])
    values = [{"id": n, "p": str(n % 3), "s": {"a": n}} for n in range(100)]
    table.append(pa.Table.from_pylist(values, schema=schema))
    table.rename_column("p", "part")
    table.rename_column("s.a", "b")
    table.widen_column("id", pa.int64())
    before, old = _ours(table), table.version
    for feature in ("typeWidening", "columnMapping"):
        if by_us:
            table.drop_feature(feature)
        else:
            _drop_by_spark(delta_spark, url, feature)
        assert delta_spark.rows(url) == before
        assert _ours(DeltaTable.open(url)) == before
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (9000000000, '1', named_struct('b', 1))")
    delta_spark.sql(f"ALTER TABLE delta.`{url}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    delta_spark.sql(f"ALTER TABLE delta.`{url}` RENAME COLUMN part TO p")
    table = DeltaTable.open(url)
    table.append(table.to_arrow().slice(0, 1))
    assert _ours(table) == delta_spark.rows(url)
    assert len(delta_spark.sql(f"SELECT * FROM delta.`{url}` VERSION AS OF {old}")) == 100


def _drop_by_spark(delta_spark: DeltaSpark, url: str, feature: str) -> None:
    if feature == "columnMapping":
        delta_spark.sql(f"ALTER TABLE delta.`{url}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
    delta_spark.sql(f"ALTER TABLE delta.`{url}` DROP FEATURE {feature}")


@pytest.mark.parametrize("name", KINDS)
def test_it_reads_each_kind_of_table_as_the_page_says(delta_spark: DeltaSpark, name: str) -> None:
    assert by_spark(name, delta_spark) == written()[name][READS_BY_SPARK]


PARTS = ["$.a", "$.a.b", "$.a.b[0]", "$.a.b[1]", "$['x y']", "$[0]", "$"]
PART_TYPES = ["int", "bigint", "string", "double", "boolean", "date", "decimal(9,2)"]


def test_parts_of_variants_are_what_it_gets(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    url = str(tmp_path)
    schema = pa.schema([("id", pa.int64()), pa.field("v", variant.VARIANT)])
    texts = [
        '{"a": {"b": [1, "2"]}, "x y": true}',
        '{"a": 1.50}',
        '{"a": "2024-02-29", "x y": "t"}',
        '["7", null]',
        "null",
        None,
        "300",
        '{"a": {"b": []}, "x y": 12345678901}',
    ]
    table = DeltaTable.create(url, schema)
    table.append(pa.table({"id": range(len(texts)), "v": variant.from_json(texts)}, schema=schema))
    for path in PARTS:
        for kind in PART_TYPES:
            text = f"try_variant_get(v, '{path.replace(chr(39), chr(34))}', '{kind}')"
            answers = delta_spark.sql(f"SELECT id FROM delta.`{url}` WHERE {text} IS NOT NULL ORDER BY id")
            ours = table.to_arrow(columns=["id"], where=f"{text} IS NOT NULL")["id"].to_pylist()
            assert ours == [row["id"] for row in answers], text
            for other in ours:
                (row,) = delta_spark.sql(f"SELECT CAST({text} AS STRING) AS x FROM delta.`{url}` WHERE id = {other}")
                if kind not in ("double", "string"):
                    same = f"id = {other} AND CAST({text} AS STRING) = '{row['x']}'"
                    assert table.to_arrow(where=same).num_rows == 1, (text, row)
