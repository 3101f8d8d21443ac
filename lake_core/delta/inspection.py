"""What a person can look at in one state of a Delta table."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lake_core.delta.commit_file import parse_run
from lake_core.delta.commit_time import instant_of
from lake_core.delta.detail import table_detail
from lake_core.delta.health import snapshot_health
from lake_core.delta.history import history
from lake_core.delta.log_segment import commit_key
from lake_core.delta.row_changes import row_changes
from lake_core.delta.row_counts import deletions, row_count, row_counts, version_rows
from lake_core.delta.row_rules import constraints
from lake_core.delta.scan import open_data_files, plan_read, stream_rows
from lake_core.delta.schema import ARROW_METADATA_KEY
from lake_core.delta.skipping import partition_table
from lake_core.inspection import (
    SMALL_FILE,
    ColumnInfo,
    Fact,
    Inspection,
    Marker,
    PartitionInfo,
    RowChanges,
    RowPage,
    RowRequest,
    Summary,
    TooMuchToShow,
    VersionInfo,
)
from lake_core.python_rows import python_rows
from lake_core.readable import count_of
from lake_core.store import ObjectStore
from lake_core.variant_values import is_variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.delta.scan import Scan
    from lake_core.delta.snapshot import Snapshot

_MOST_SORTED = 20_000_000
"""The most rows that are read to sort them."""
_DEEPEST_SORTED = 100_000
"""The last row of a sorted table that is shown."""
_MOST_MARKERS = 1000
_MERGES_LOOKED_AT = 20


class DeltaInspection(Inspection[ObjectStore]):
    """A table at a snapshot."""

    format = "delta"
    unit = "rows"
    has_rows = True
    can_sort = True

    def __init__(self, store: ObjectStore, snapshot: Snapshot) -> None:
        super().__init__(store)
        self.snapshot = snapshot

    def summary(self) -> Summary:
        """Return the definition of the table, its size and its health."""
        snapshot = self.snapshot
        detail = table_detail(snapshot)
        return Summary(
            kind="Delta table",
            version=detail.version,
            rows=detail.num_rows,
            files=detail.num_files,
            bytes=detail.size_in_bytes,
            columns=list(self._columns()),
            constraints=constraints(snapshot.metadata),
            properties=detail.properties,
            description=detail.description or "",
            facts=list(self._facts()),
            markers=self._markers(),
        )

    def _columns(self) -> Iterator[ColumnInfo]:
        metadata = self.snapshot.metadata
        for child in metadata.arrow_schema:
            fields = json.loads((child.metadata or {}).get(ARROW_METADATA_KEY, b"{}"))
            notes = ["partition"] if child.name in metadata.partition_columns else []
            if "delta.generationExpression" in fields:
                notes.append(f"generated as {fields['delta.generationExpression']}")
            if any(name.startswith("delta.identity") for name in fields):
                notes.append("identity")
            kind = "variant" if is_variant(child.type) else str(child.type)
            yield ColumnInfo(child.name, kind, child.nullable, str(fields.get("comment", "")), notes)

    def _facts(self) -> Iterator[Fact]:
        health = snapshot_health(self.snapshot, SMALL_FILE)
        crowded = health.small_files >= 10 and health.small_file_ratio > 0.5
        yield Fact("small files", health.small_files, advice="compact the table" if crowded else "")
        yield Fact("partitions", health.partitions)
        yield Fact("files without statistics", health.files_without_statistics)
        yield Fact("removed files kept for old versions", health.tombstones)
        yield Fact("commits in the log", health.log_length)
        yield Fact(
            "commits since the last checkpoint",
            health.uncheckpointed_commits,
            advice="write a checkpoint" if health.uncheckpointed_commits > 100 else "",
        )
        vectors, deleted = deletions(self.snapshot.files(["path", "deletionVector"]))
        yield Fact("files with deletion vectors", vectors)
        yield Fact("rows that these delete", deleted)
        protocol = self.snapshot.protocol
        yield Fact("reader and writer version", f"{protocol.min_reader_version}, {protocol.min_writer_version}")

    def _markers(self) -> Sequence[Marker]:
        rows = self.snapshot.transactions().slice(0, _MOST_MARKERS).to_pylist()
        return [
            Marker(
                row["appId"],
                row["version"],
                None if row["lastUpdated"] is None else instant_of(row["lastUpdated"]),
            )
            for row in rows
            if row["version"] >= 0
        ]

    def schema(self) -> pa.Schema:
        """Return the schema."""
        return self.snapshot.metadata.arrow_schema

    def batches(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.RecordBatchReader:
        """Stream the rows."""
        return stream_rows(plan_read(self.snapshot, columns, where))

    def rows(self, request: RowRequest) -> RowPage:
        """Return rows in the order of the files, or sorted by a column. The first files that suffice are read."""
        scan = plan_read(self.snapshot, request.columns, request.where)
        counts = row_counts(self.snapshot.files(["path", "stats", "deletionVector"]))
        total = None if request.where is not None or counts.null_count else int(pc.sum(counts).as_py() or 0)
        if request.order_by is not None:
            rows = self._sorted(request, counts)
        else:
            skipped, numbers = 0, None
            if request.where is None and request.offset:
                snapshot = self.snapshot
                files = snapshot.files([*snapshot.identity, "partitionValues", "size", "stats"])
                skipped, numbers = _files_from(row_counts(files), request.offset)
                scan = replace(scan, files=files)
            tables = _tables(scan, numbers, request)
            rows = _sliced(tables, request.offset - skipped, request.count + 1, scan.schema)
        shown = rows.slice(0, request.count).select(scan.schema.names)
        return RowPage(scan.schema.names, python_rows(shown), len(rows) > request.count, total)

    def _sorted(self, request: RowRequest, counts: pa.Array) -> pa.Table:
        rows = int(pc.sum(counts).as_py() or 0)
        if rows > _MOST_SORTED or request.offset + request.count > _DEEPEST_SORTED:
            raise TooMuchToShow(
                f"sorted, a page shows the first {count_of(_DEEPEST_SORTED, 'row')} of tables of at most "
                f"{_MOST_SORTED:,} rows: narrow them down by a condition, or query them with SQL"
            )
        names = None if request.columns is None else list(dict.fromkeys([*request.columns, str(request.order_by)]))
        last = request.offset + request.count + 1
        order = [(request.order_by, "descending" if request.descending else "ascending")]
        scan = plan_read(self.snapshot, names, request.where)
        if request.order_by not in scan.schema.names or pa.types.is_nested(scan.schema.field(request.order_by).type):
            raise TooMuchToShow(f"rows cannot be sorted by {request.order_by!r}: choose a column of plain values")
        first = scan.schema.empty_table()
        waiting: list[pa.Table] = []
        for table in _tables(scan, None, request):
            waiting.append(table)
            if sum(map(len, waiting)) > max(4 * last, 1 << 18):
                first, waiting = pa.concat_tables([first, *waiting]).sort_by(order).slice(0, last), []
        return pa.concat_tables([first, *waiting]).sort_by(order).slice(request.offset, request.count + 1)

    def versions(self, count: int) -> Sequence[VersionInfo]:
        """Return the newest versions with the size of the table after each, as far as the log tells."""
        snapshot = self.snapshot
        commits = history(snapshot, count)
        if not commits:
            return ()
        numbers = [commit["version"] for commit in commits]
        changes = version_rows(snapshot, numbers)
        bodies = zip(numbers, snapshot.store.get_many([commit_key(number) for number in numbers]), strict=True)
        run = parse_run(sorted(bodies), (), None)
        files = snapshot.files(["path", "size", "stats", "deletionVector"])
        size: int | None = _bytes_of(files)
        rows, count_of_files = row_count(files), len(files)
        versions = []
        for commit in commits:
            number = commit["version"]
            change = changes.get(number)
            adds, removes = (each.filter(pc.equal(each["commit"], number)) for each in (run.adds, run.removes))
            versions.append(
                VersionInfo(
                    number,
                    instant_of(commit["timestamp"]),
                    str(commit.get("operation") or ""),
                    rows=rows,
                    bytes=size,
                    files=count_of_files,
                    rows_added=None if change is None else change.added,
                    rows_removed=None if change is None else change.removed,
                )
            )
            # The table before the commit, with which the older one left it.
            if rows is None or change is None or change.added is None or change.removed is None:
                rows = None
            else:
                rows += change.removed - change.added
            size = None if size is None or removes["size"].null_count else size + _bytes_of(removes) - _bytes_of(adds)
            count_of_files += len(removes) - len(adds)
        return versions

    def partitions(self) -> Sequence[PartitionInfo]:
        """Return the partitions, in the order of their values."""
        names = list(self.snapshot.partition_columns)
        if not names:
            return ()
        files = self.snapshot.files(["path", "size", "partitionValues", "stats", "deletionVector"])
        values = partition_table(files, self.snapshot.metadata)
        columns = [f"part{index}" for index in range(len(names))]
        table = values.rename_columns(columns).append_column("size", files["size"])
        table = table.append_column("rows", row_counts(files))
        groups = table.group_by(columns).aggregate(
            [("size", "sum"), ("size", "count"), ("rows", "sum"), ("rows", "count")]
        )
        return [
            PartitionInfo(
                {
                    name: None if row[column] is None else str(row[column])
                    for name, column in zip(names, columns, strict=True)
                },
                row["rows_sum"] if row["rows_count"] == row["size_count"] else None,
                row["size_count"],
                row["size_sum"],
            )
            for row in groups.sort_by([(column, "ascending") for column in columns]).to_pylist()
        ]

    def key(self) -> Sequence[str]:
        """Return the columns by which the newest merge into the table matched rows."""
        for commit in islice(history(self.snapshot, _MERGES_LOOKED_AT), _MERGES_LOOKED_AT):
            parameters = commit.get("operationParameters")
            if commit.get("operation") == "MERGE" and isinstance(parameters, dict):
                own = {name.lower(): name for name in self.schema().names}
                names = _equal_columns(str(parameters.get("predicate") or ""))
                return [own[name] for name in names] if own.keys() >= set(names) else ()
        return ()

    def row_changes(self, before: Inspection[ObjectStore] | None, key: Sequence[str], most_rows: int) -> RowChanges:
        """Return the rows that differ from an earlier snapshot."""
        old = before.snapshot if isinstance(before, DeltaInspection) else None
        return row_changes(old, self.snapshot, key, most_rows)


def _bytes_of(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)


def _files_from(counts: pa.Array, offset: int) -> tuple[int, Sequence[int]]:
    """Return how many rows the first files hold that end before an offset, and the numbers of the others."""
    ends, end = [], 0
    for count in counts.to_pylist():
        if count is None:
            break  # the rows of this file and later ones are counted by reading them
        end += count
        ends.append(end)
    skipped = sum(each <= offset for each in ends)
    return (ends[skipped - 1] if skipped else 0), range(skipped, len(counts))


def _tables(scan: Scan, numbers: Sequence[int] | None, request: RowRequest) -> Iterator[pa.Table]:
    """Yield the rows of some files until the time of a request is over. Raises TooMuchToShow."""
    check = request.deadline()
    files = open_data_files(scan, numbers, scan.predicate)
    for index in range(len(files.keys)):
        for table in files.batches(index):
            check()
            yield table.select(scan.schema.names)


def _sliced(tables: Iterator[pa.Table], offset: int, count: int, schema: pa.Schema) -> pa.Table:
    parts: list[pa.Table] = []
    length = 0
    for table in tables:
        if offset >= len(table):
            offset -= len(table)
            continue
        part = table.select(schema.names).slice(offset, count - length)
        offset = 0
        parts.append(part)
        length += len(part)
        if length >= count:
            break
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _equal_columns(predicate: str) -> Sequence[str]:
    """Return the columns that the condition of a merge compares with the source's of the same name, in lower case."""
    try:
        texts = json.loads(predicate)
        text = texts[0] if isinstance(texts, list) and len(texts) == 1 else predicate
    except ValueError:
        text = predicate
    try:
        condition = sqlglot.parse_one(str(text), dialect="spark")
    except SqlglotError:
        return ()
    while isinstance(condition, exp.Paren):
        condition = condition.this
    names: dict[str, None] = {}
    for each in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        while isinstance(each, exp.Paren):
            each = each.this
        sides = (each.this, each.expression) if isinstance(each, exp.EQ) else ()
        if len(sides) != 2 or not all(isinstance(side, exp.Column) for side in sides):
            continue
        name, other = (side.name.lower() for side in sides)
        if name == other and sides[0].table != sides[1].table:
            names[name] = None
    return list(names)
