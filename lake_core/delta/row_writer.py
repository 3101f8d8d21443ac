"""Write rows of any origin to data files of a table: convert them to its schema, complete them and check its rules.

All rows are written this way, in the driver and in Spark's executors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE
from lake_core.delta.batches import together
from lake_core.delta.conform import check_fits, check_nulls, conform_in, null_partitions
from lake_core.delta.data_file import TARGET_BYTES, AddFile, DataFileWriter, change_rows
from lake_core.delta.errors import RowsOutsidePredicate
from lake_core.delta.file_layout import PLAIN, FileLayout, file_layout
from lake_core.delta.identity import IdentityValues, identity_values
from lake_core.delta.row_rules import RowRules, row_rules
from lake_core.delta.schema import check_storable
from lake_core.delta.statistics import leaf_values
from lake_core.expression import Predicate, columns, evaluate, matching
from lake_core.readable import shown_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lake_core.delta.action import Metadata, Protocol
    from lake_core.delta.parquet_options import ParquetOptions
    from lake_core.store import ObjectStore

_SHOWN = 3
"""Values that an error shows of a column."""
_PIECE_ROWS = 1 << 17
"""Rows that are prepared at a time: Spark hands over ten thousand each, and every look at a piece costs the same."""


@dataclass(frozen=True, slots=True)
class ReplaceWhere:
    """A predicate that all rows of a write must fulfill, and by which an overwrite replaces rows."""

    text: str
    predicate: Predicate
    name: str = ""
    """The name in errors, if the caller has another name for it than its SQL."""
    remedy: str = "Filter the rows, or widen `where`"

    def check(self, rows: pa.Table) -> None:
        """Raise RowsOutsidePredicate unless the predicate is true for every row."""
        if matching(rows, self.predicate).num_rows < rows.num_rows:
            outside = rows.filter(pc.invert(pc.fill_null(evaluate(self.predicate, rows), FALSE_VALUE)))
            raise RowsOutsidePredicate(
                self.error(f"{outside.num_rows} of {rows.num_rows}", samples(outside, self.predicate))
            )

    def error(self, count: str, shown: str = "") -> str:
        """Return the error for `count` rows outside. `shown` is the text of some of their values."""
        name = self.name or f"{self.text!r}, which every row of this write must fulfill"
        return f"{count} rows lie outside {name}{f': {shown}' if shown else ''}. {self.remedy}"


def samples(rows: pa.Table, predicate: Predicate) -> str:
    """Return some of the values in the columns of a predicate as text, for an error."""
    paths = dict.fromkeys(column.path for column in columns(predicate))
    return ", ".join(f"`{'.'.join(path)}` is {_some(leaf_values(rows, path))}" for path in paths)


def _some(values: pa.ChunkedArray) -> str:
    distinct = values.unique()
    shown = [
        "null" if value is None else repr(value) if isinstance(value, str) else str(value)
        for value in shown_values(pa.chunked_array([distinct[:_SHOWN]]))
    ]
    return ", ".join([*shown, "…"] if len(distinct) > _SHOWN else shown)


@dataclass(frozen=True, slots=True)
class RowWriter:
    """The settings by which rows are written into a table. Picklable.

    Raises, while rows are written: SchemaMismatch, ConstraintViolation, RowsOutsidePredicate, EvaluationFailed and the
    store's errors.
    """

    store: ObjectStore
    metadata: Metadata
    rules: RowRules
    now: int
    """Milliseconds since the epoch."""
    replace_where: ReplaceWhere | None = None
    """The rows that an overwrite replaces. Other new rows are refused."""
    threads: int = 0
    """The number of threads that encode files concurrently. 0 in executors, whose cores have other tasks."""
    layout: FileLayout = PLAIN
    log_inserts: bool = False
    """Whether the rows are written into change data files too, as inserts."""
    parquet: ParquetOptions | None = None
    """How files are encoded, if not as the table's properties say."""
    identity: IdentityValues = field(default_factory=lambda: IdentityValues(()))
    """What gives new rows their numbers."""

    def check_fits(self, data: pa.Schema) -> None:
        """Raise SchemaMismatch or UnsupportedType unless rows of this schema can be written without loss."""
        check_fits(data, self.metadata.arrow_schema, self.optional)

    @property
    def optional(self) -> frozenset[str]:
        """Return the columns that rows may lack even if they are NOT NULL."""
        return self.rules.optional | self.identity.names

    def of_task(self, task: int) -> RowWriter:
        """Return the writer of one task of a job, by the task's number."""
        return replace(self, identity=self.identity.of_task(task)) if self.identity.names else self

    def claim(self, adds: Sequence[AddFile], supplied: Iterable[str]) -> None:
        """Take the numbers that the tasks of a job have given to rows, which had the columns `supplied`."""
        self.identity.claim(adds, supplied, self.metadata.column_mapping)

    @property
    def final_metadata(self) -> Metadata:
        """Return the metadata that the table has after the rows that were written."""
        return self.identity.recorded(self.metadata)

    def prepare(self, rows: pa.Table, *, new: bool = True) -> pa.Table:
        """Return rows in the table's schema, with generated columns, after checking all of its rules.

        Rows that are not `new` keep the numbers that the table gave them.
        """
        schema = self.metadata.arrow_schema
        complete = self.rules.complete(conform_in(rows, schema), rows.column_names)
        if new and self.identity.names:
            complete = self.identity.filled(complete, rows.column_names)
        complete = null_partitions(complete, schema, self.metadata.partition_columns)
        check_nulls(complete, schema)
        self.rules.check(complete, rows.column_names)
        if self.replace_where is not None:
            self.replace_where.check(complete)
        return complete

    def files(self, *, target: int = TARGET_BYTES) -> DataFileWriter:
        """Return a writer of data files for prepared rows."""
        return DataFileWriter(
            self.store,
            self.metadata,
            self.now,
            target=target,
            threads=self.threads,
            layout=self.layout,
            options=self.parquet,
        )

    def change_files(self) -> DataFileWriter:
        """Return a writer of change data files, for the table's columns with `_change_type` as the last one."""
        return DataFileWriter(self.store, self.metadata, self.now, changes=True)

    def write(self, batches: Iterable[pa.Table]) -> tuple[list[AddFile], list[AddFile]]:
        """Write rows of any origin. Returns the data files, and the change data files."""
        writer, log = self.files(), self.change_files()
        try:
            for batch in together(batches, _PIECE_ROWS):
                rows = self.prepare(batch)
                writer.add(rows)
                if self.log_inserts:
                    log.add(change_rows(rows, "insert"))
            return writer.finish(), log.finish()
        finally:
            writer.close()


def row_writer(
    store: ObjectStore, metadata: Metadata, protocol: Protocol, now: int, replace_where: ReplaceWhere | None = None
) -> RowWriter:
    """Return the writer of rows into a table. `now`: milliseconds since the epoch.

    Raises UnsupportedExpression, MalformedMetadata where the table has a rule that cannot be evaluated; UnsupportedType
    where it has a struct without fields.
    """
    check_storable(metadata.schema, allow_void=True)
    # This is not a method, because everything that RowWriter's methods use is sent to the executors, which have no SQL
    # parser.
    return RowWriter(
        store,
        metadata,
        row_rules(metadata, protocol),
        now,
        replace_where,
        layout=file_layout(protocol, metadata),
        identity=identity_values(metadata, protocol),
    )
