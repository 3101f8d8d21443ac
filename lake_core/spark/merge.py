"""MERGE of a DataFrame into a Delta table of any size.

Spark joins the key columns of the table with those of the source. Other columns of the table are not shuffled. Then,
for each file that a clause applies to, one task merges the file with the source rows that match it. It uses the same
code as a merge in one process. The source is computed once and kept on the executors' disks, because a second
computation could return other rows.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lake_core.delta.conform import relabelled
from lake_core.delta.errors import MultipleSourceRows, UncomputedKey
from lake_core.delta.operations.merge import (
    Inserted,
    Merge,
    MergePlan,
    MergeText,
    candidates,
    file_merge,
    finish_merge,
    insert_rows,
    match_probe,
    no_matches,
    plan_merge,
    settled,
)
from lake_core.delta.operations.merge_clause import Clauses, first_true, relation
from lake_core.delta.operations.merge_keys import SHOWN, duplicate_keys, key_names, null_keys
from lake_core.delta.operations.merge_match import (
    KeyValues,
    has_range,
    key_columns,
    numbered_keys,
    others_hold,
    range_predicate,
)
from lake_core.delta.schema import schema_from_arrow, schema_to_json
from lake_core.spark.errors import SparkJobFailed
from lake_core.spark.executor import batch_function, our_errors, table_function
from lake_core.spark.operations import Target, opened
from lake_core.spark.runner import packed, run_in, unpacked
from lake_core.spark.write import FILE_ROWS, arrow_schema, collect_files, file_rows, writer_of_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.delta import OperationResult
    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.delta.operation import Operation
    from lake_core.delta.operations.merge_condition import Condition, Key
    from lake_core.delta.operations.merge_file import FileMerge, MergedFile
    from lake_core.delta.row_writer import RowWriter
    from lake_core.delta.scan import Scan
    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate
    from lake_core.txn import Txn

_SID = "sid"
_MOST_TASKS = 200
_TRIES = 3
"""The most attempts at a merge whose executors get lost."""
_LOST_ROWS = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
"""Spark's error condition if an executor is lost that kept rows for the jobs of a merge."""
_FEW_ROWS = 10_000
"""A source with at most so many rows is sent to every executor. Then the table's keys need not be sorted."""


def merge_delta(
    df: DataFrame,
    table: Target,
    on: str,
    *,
    alias: tuple[str, str] = ("t", "s"),
    storage_options: Mapping[str, Any] | None = None,
) -> Merge:
    """Merge a DataFrame in the executors, as `DeltaTable.merge` does: add clauses, then call `execute`.

        merge_delta(df, table, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()

    Raises the same errors as `DeltaTable.merge`, and SparkJobFailed.
    """

    def execute(text: MergeText, txn: Txn | None) -> OperationResult:
        return opened(table, storage_options).operate(lambda snapshot, now: _merge(df, snapshot, text, now), txn)

    return Merge(on, alias, execute)


def _merge(df: DataFrame, snapshot: Snapshot, text: MergeText, now: int) -> Operation | None:
    plan = plan_merge(snapshot, arrow_schema(df), text, now)
    try:
        return _attempts(df, plan, text)
    except UncomputedKey:
        # Without these keys, the merge fails only where a pair of rows needs the value.
        condition = plan.condition.without(plan.condition.computed)
        return _attempts(df, replace(plan, condition=condition), text)


def _attempts(df: DataFrame, plan: MergePlan, text: MergeText) -> Operation | None:
    for _ in range(_TRIES - 1):
        try:
            return _attempt(df, plan, text)
        except SparkJobFailed as error:
            # An executor that kept rows of the source was lost. Nothing is committed yet, so the merge can be repeated.
            if _LOST_ROWS not in str(error):
                raise
    return _attempt(df, plan, text)


def _attempt(df: DataFrame, plan: MergePlan, text: MergeText) -> Operation | None:
    with our_errors():
        merge = _SparkMerge(df, plan)
        merge.check_keys(text.keys)
        return merge.run()


class _SparkMerge:
    """One attempt at a merge.

    Columns have plain names: c0, c1, … are those of the source, k… are the keys, and p… are the columns of the table
    that conditions use.
    """

    def __init__(self, df: DataFrame, plan: MergePlan) -> None:
        self._plan, self._spark = plan, df.sparkSession
        self._names = [f"c{number}" for number in range(len(plan.source))]
        named = df.toDF(*self._names).withColumn(_SID, F.monotonically_increasing_id())
        self._source = named.localCheckpoint(True, StorageLevel.DISK_ONLY)
        self._rows = self._source.count()

    def check_keys(self, keys: Sequence[str]) -> None:
        """Raise NullKeys if a row of the source has a null key, or DuplicateKeys if several rows have the same key."""
        names = key_names(self._plan.source, keys)
        if not names:
            return
        columns = [F.col(self._names[self._plan.source.get_field_index(name)]) for name in names]
        is_null = reduce(or_, (column.isNull() for column in columns))
        without_key = self._source.where(is_null).count()
        if without_key:
            raise null_keys(names, without_key)
        # Under a collation, Spark could count different texts as equal.
        by = [
            (column.cast("string") if pa.types.is_string(self._plan.source.field(name).type) else column).alias(
                f"k{number}"
            )
            for number, (name, column) in enumerate(zip(names, columns, strict=True))
        ]
        shared = self._source.groupBy(*by).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1")
        rows, count = shared.agg(F.sum("rows"), F.count(F.lit(1))).collect()[0]
        if count:
            shown = [
                tuple(row)[:-1] for row in shared.sort(*(f"k{number}" for number in range(len(names)))).take(SHOWN)
            ]
            raise duplicate_keys(names, rows, count, shown)

    def run(self) -> Operation | None:
        plan = self._plan
        scan, reads = candidates(plan, self._ranges())
        matches = self._matches(scan).localCheckpoint(True, StorageLevel.DISK_ONLY)
        merged = dict(self._rewritten(scan, matches)) if plan.rewrites else {}
        return finish_merge(plan, scan, reads, merged, self._inserted(matches), self._rows)

    def _ranges(self) -> list[Predicate]:
        """Return the conditions that the source's keys put on the rows that can match them."""
        keys = [key for key in self._plan.condition.keys if has_range(key)]
        if not keys:
            return []
        values = _key_values(self._plan.condition, keys, self._plan.source, self._names)
        parts = self._source.select(*self._names).mapInArrow(batch_function(values), "key int, values binary").toArrow()
        found: dict[int, list[KeyValues]] = {number: [] for number in range(len(keys))}
        for number, part in zip(parts["key"].to_pylist(), parts["values"].to_pylist(), strict=True):
            found[number].append(KeyValues(*pickle.loads(part)))
        return range_predicate([(key, KeyValues.together(found[number], key.type)) for number, key in enumerate(keys)])

    def _matches(self, scan: Scan) -> DataFrame:
        """Return the pairs for which ON is true: file, row in it, clause that applies (-1 if none does), source row."""
        plan = self._plan
        probe = match_probe(plan, scan)
        key_types = pa.schema(
            [
                (name, column.type)
                for name, column in key_columns(plan.source.empty_table(), plan.condition.keys, target=False).items()
            ]
        )
        source_fields = T.StructType.fromJson(json.loads(schema_to_json(schema_from_arrow(plan.source)))).fields
        source = T.StructType(
            [T.StructField(name, field.dataType) for name, field in zip(self._names, source_fields, strict=True)]
        )
        keys = _spark_schema(key_types)
        probed = _spark_schema(
            pa.schema([pa.field(f"p{number}", child.type) for number, child in enumerate(probe.schema)])
        )
        position = T.StructType().add("file", "long").add("row", "long")
        target_rows = _numbers(self._spark, len(scan.files)).mapInArrow(
            batch_function(_probe(probe, plan.condition)), T.StructType([*position, *keys, *probed])
        )
        source_struct = T.StructType([*source, T.StructField(_SID, T.LongType())])
        source_rows = self._source.mapInArrow(
            batch_function(_keyed(plan.condition, plan.source, self._names)), T.StructType([*keys, *source_struct])
        )
        if key_types.names:
            # Without a hint, Spark would broadcast the table: it estimates its size from the list of its files.
            joined = target_rows.join(self._hinted(source_rows), key_types.names, "inner")
        else:
            joined = target_rows.crossJoin(source_rows)
        chosen = joined.select("file", "row", *probed.names, *source_struct.names)
        pairs = _Pairs(plan.condition, plan.clauses, plan.aliases, probe.schema, plan.source)
        result = T.StructType([*position, T.StructField("clause", T.LongType()), *source_struct])
        return chosen.mapInArrow(batch_function(pairs.find), result)

    def _hinted(self, source: DataFrame) -> DataFrame:
        return F.broadcast(source) if self._rows <= _FEW_ROWS else source.hint("merge")

    def _rewritten(self, scan: Scan, matches: DataFrame) -> Iterator[tuple[int, MergedFile]]:
        """Yield the number of each file that a clause applies to, with the result of its merge."""
        plan = self._plan
        task = file_merge(plan, scan)
        best = matches.groupBy("file").agg(F.max("clause").alias("clause")).toArrow().to_pydict()
        by_source = bool(plan.clauses.not_matched_by_source)
        chosen = [file for file, clause in zip(best["file"], best["clause"], strict=True) if clause >= 0 or by_source]
        if chosen:
            files = self._spark.createDataFrame(pa.table({"file": pa.array(chosen, pa.int64())}))
            # Few rows may mean much work. Without a number of partitions, Spark would put them all into one task.
            grouped = matches.join(F.broadcast(files), "file", "left_semi").repartition(
                min(len(chosen), _MOST_TASKS), "file"
            )
            # Unlike `mapInArrow`, `applyInArrow` only accepts the binary type that the session's setting demands.
            large = self._spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
            merge = _merge_file(
                task, plan.clauses, plan.source, self._names, pa.large_binary() if large else pa.binary()
            )
            results = grouped.groupBy("file").applyInArrow(table_function(merge), "file long, result binary")
            rows = results.toArrow()
            for file, result in zip(rows["file"].to_pylist(), rows["result"].to_pylist(), strict=True):
                merged = unpacked(pickle.loads(result))
                if isinstance(merged, str):
                    raise MultipleSourceRows(merged)
                yield file, merged
        if by_source:
            unmatched = sorted(set(range(len(scan.files))) - set(chosen))
            alone = run_in(self._spark)(_WithoutMatch(task, tuple(unmatched), plan.source), len(unmatched))
            yield from zip(unmatched, alone, strict=True)

    def _inserted(self, matches: DataFrame) -> Inserted:
        plan = self._plan
        if not plan.clauses.not_matched:
            return Inserted()
        alone = self._source.join(matches.select(_SID).distinct(), _SID, "left_anti").select(*self._names)
        insert = _insert(plan.clauses, plan.aliases[1], plan.writer, plan.log_changes, plan.source)
        adds, changes = collect_files(alone.mapInArrow(batch_function(insert), FILE_ROWS))
        supplied = [{each.target[0] for each in clause.assignments} for clause in plan.clauses.not_matched]
        always = set.intersection(*supplied)
        # Where some of the rows had their own numbers, the highest one says nothing of those that were given.
        has_own = not plan.writer.identity.names.isdisjoint(set.union(*supplied) - always)
        plan.writer.claim([replace(add, stats="") for add in adds] if has_own else adds, always)
        return Inserted(adds, changes, sum(add.rows for add in adds))


def _spark_schema(schema: pa.Schema) -> T.StructType:
    return T.StructType.fromJson(json.loads(schema_to_json(schema_from_arrow(schema))))


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, max(1, min(count, _MOST_TASKS)))


def _taken(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return columns from Spark under their own names and in their own types."""
    return relabelled(pa.Table.from_batches([batch]), schema)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.combine_chunks().to_batches())


def _probe(files: DataFiles, condition: Condition) -> Any:
    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                start = 0
                for rows in files.batches(number):
                    keys, chosen = _keys(rows, condition, target=True)
                    columns = {
                        "file": pa.array(np.full(len(chosen), number), pa.int64()),
                        "row": pa.array(start + np.asarray(chosen), pa.int64()),
                    }
                    possible = rows if len(chosen) == rows.num_rows else rows.take(chosen)
                    columns |= keys | {f"p{index}": column for index, column in enumerate(possible.columns)}
                    start += rows.num_rows
                    yield from _batches(pa.table(columns))

    return probe


def _keyed(condition: Condition, schema: pa.Schema, names: Sequence[str]) -> Any:
    def keyed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = _taken(batch.select(list(names)), schema)
            keys, chosen = _keys(rows, condition, target=False)
            columns = dict(zip(names, rows.columns, strict=True)) | {_SID: pa.chunked_array([batch.column(_SID)])}
            if len(chosen) < rows.num_rows:
                columns = {name: column.take(chosen) for name, column in columns.items()}
            yield from _batches(pa.table(keys | columns))

    return keyed


def _keys(rows: pa.Table, condition: Condition, *, target: bool) -> tuple[dict[str, pa.ChunkedArray], pa.ChunkedArray]:
    """Return the join keys of the rows that can match, and the numbers of these rows. Raises UncomputedKey."""
    found, keys = numbered_keys(rows, condition, target=target)
    if len(found.keys) < len(condition.keys):
        raise UncomputedKey("an expression in ON fails for a row")
    return dict(zip(keys.column_names[:-1], keys.columns, strict=False)), keys.columns[-1]


def _key_values(condition: Condition, keys: Sequence[Key], schema: pa.Schema, names: Sequence[str]) -> Any:
    """Return a function that yields the `KeyValues` of its rows: the key's number, and their pickled fields."""

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[int, KeyValues] = {}
        for batch in batches:
            columns = _keys(_taken(batch, schema), condition, target=False)[0]
            for number, key in enumerate(keys):
                values = KeyValues.of(columns[key.name])
                found[number] = KeyValues.together([found[number], values], key.type) if number in found else values
        pickled = [pickle.dumps((each.values, each.are_all)) for each in found.values()]
        yield pa.RecordBatch.from_arrays(
            [pa.array(list(found), pa.int32()), pa.array(pickled, pa.binary())], names=["key", "values"]
        )

    return find


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Selects the joined pairs for which ON is true, and finds the clause that applies to each."""

    condition: Condition
    clauses: Clauses
    aliases: tuple[str, str]
    target: pa.Schema
    source: pa.Schema

    def find(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first_source = 2 + len(self.target)
        for batch in batches:
            columns = list(range(batch.num_columns))
            scope = pa.table(
                {
                    self.aliases[0]: relation(_taken(batch.select(columns[2:first_source]), self.target)),
                    self.aliases[1]: relation(_taken(batch.select(columns[first_source:-1]), self.source)),
                }
            )
            is_match = others_hold(self.condition, scope)
            rows = pa.Table.from_batches([batch]).filter(is_match)
            clause = first_true(self.clauses.matched, scope.filter(is_match))
            result = rows.select([0, 1]).append_column("clause", pa.array(clause, pa.int64()))
            for index in columns[first_source:]:
                result = result.append_column(rows.schema.field(index), rows.column(index))
            yield from _batches(result)


def _merge_file(task: FileMerge, clauses: Clauses, schema: pa.Schema, names: Sequence[str], binary: pa.DataType) -> Any:
    def merge(rows: pa.Table) -> pa.Table:
        numbers = {name: np.asarray(rows[name]) for name in ("file", "row", "clause")}
        source = relabelled(rows.select(list(names)), schema)
        file = int(numbers["file"][0])
        try:
            matches = settled(numbers["row"], numbers["clause"], np.arange(rows.num_rows), source, clauses)
            result = pickle.dumps(packed(task(file, matches)))
        except MultipleSourceRows as error:
            # If it were raised here, Spark would run the task three more times.
            result = pickle.dumps(str(error))
        return pa.table({"file": pa.array([file], pa.int64()), "result": pa.array([result], binary)})

    return merge


@dataclass(frozen=True, slots=True)
class _WithoutMatch:
    """Merges files in which no row matches."""

    merge: FileMerge
    files: tuple[int, ...]
    source: pa.Schema

    def __call__(self, index: int) -> MergedFile:
        return self.merge(self.files[index], no_matches(self.source.empty_table()))


def _insert(clauses: Clauses, alias: str, writer: RowWriter, log_changes: bool, schema: pa.Schema) -> Any:
    def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = (_taken(batch, schema) for batch in batches)
        new = insert_rows(clauses, alias, writer_of_task(writer), log_changes, pieces)
        yield file_rows(new.adds, new.changes)

    return insert
