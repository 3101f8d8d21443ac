"""Tables: rows of any library become Delta tables, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.conform import EmptyPartitionValueWarning
from lake_core.delta.errors import TableNotFound
from lake_core.workspace import Workspace
from lake_orch.assets.asset_format import (
    SINGLE_BATCH,
    AssetFormat,
    AssetInput,
    AssetOutput,
    AssetRead,
    AssetWrite,
    ReadingStep,
    ReadOnce,
    Written,
    check_appends,
)
from lake_orch.assets.description import AssetPath
from lake_orch.assets.tables.data import TableSlice, TypeHandler, load, to_rows
from lake_orch.assets.tables.data.registry import can_read_again, handler_of, handler_of_annotation, type_handlers
from lake_orch.assets.tables.landing import TableLanding
from lake_orch.assets.tables.metadata import READING_CODE, outcome, write_metadata
from lake_orch.assets.tables.partition_slice import slice_where
from lake_orch.assets.tables.preview import preview_metadata
from lake_orch.assets.tables.rows import Rows
from lake_orch.assets.tables.rows.column_lineage import described
from lake_orch.assets.tables.run_slice import RunSlice, slice_of_partitions, slice_without_partitions
from lake_orch.assets.tables.settings import (
    NAMES,
    InputSettings,
    NaiveTimestamps,
    SchemaModeSetting,
    TableSettings,
    TableWriteMode,
    mode_of,
)
from lake_orch.assets.tables.state import table_state
from lake_orch.assets.tables.writer import TableWriter, final_result
from lake_orch.definition_metadata import MOST_PREVIEW_ROWS, OWNER, PARTITION_EXPR, missing_partition_expr
from lake_orch.errors import InvalidDefinition

if TYPE_CHECKING:
    from lake_core.errors import LakeError
    from lake_orch.assets.spark_source import SparkSource

_LOGGED = 200
"""The number of characters of a predicate that a log line shows."""


@dataclass(frozen=True, slots=True)
class TableFormat(AssetFormat):
    """Delta tables."""

    format = "delta"
    kind = "deltalake"
    names = NAMES
    takes_partitions = True
    reading_code = READING_CODE

    mode: TableWriteMode = "overwrite"
    schema_mode: SchemaModeSetting = "none"
    naive_timestamps: NaiveTimestamps = "refuse"
    preview_rows: int = 5
    with_column_lineage: bool = True
    spark: SparkSource | None = None
    handlers: Sequence[TypeHandler] = field(default_factory=type_handlers)

    def __post_init__(self) -> None:
        if not 0 <= self.preview_rows <= MOST_PREVIEW_ROWS:
            raise InvalidDefinition(f"preview_rows is {self.preview_rows}: use a number from 0 to {MOST_PREVIEW_ROWS}")

    @classmethod
    def replaces(cls, metadata: Mapping[str, Any], mode: str) -> bool:
        """Return whether a write by this metadata replaces rows that another output has written."""
        return mode_of(metadata, cast("TableWriteMode", mode)) in ("overwrite", "overwrite_partitions")

    def accepts(self, value: object) -> bool:
        """Return whether a handler takes values of this type."""
        return handler_of(value, self.handlers) is not None

    def loads(self, annotation: object) -> bool:
        """Return whether a handler loads this type."""
        return handler_of_annotation(annotation, self.handlers) is not None

    def settings(self, output: AssetOutput) -> TableSettings:
        """Read the settings of an output. Raises InvalidDefinition."""
        settings = TableSettings.parse(
            output.asset_key,
            output.metadata,
            output.producer,
            mode=self.mode,
            schema_mode=self.schema_mode,
            naive_timestamps=self.naive_timestamps,
        )
        return replace(settings, path=output.located(settings.path))

    def write(self, value: Any, output: AssetOutput) -> TableWrite:
        """Prepare the write of rows, whose column lineage is read now."""
        settings = self.settings(output)
        output.check_mode(settings.mode)
        columns = _partition_columns(output, settings)
        rows = _RowSource(value, output.subject, self.handlers)
        lineage = self._lineage(output, settings, rows.first)
        shown = self.preview_rows if settings.preview_rows is None else settings.preview_rows
        return TableWrite(output, settings, columns, rows, lineage, shown)

    def read(self, request: AssetInput) -> TableRead:
        """Prepare the read of rows."""
        return TableRead(request, InputSettings.parse(request.settings, request.subject), self)

    def landing(self, output: AssetOutput) -> TableLanding:
        """Prepare to append batches of files. Raises InvalidDefinition for an owner, as nothing is replaced."""
        if OWNER in output.metadata:
            raise InvalidDefinition(f"{output.producer} only appends, so {OWNER} has no effect: leave it out")
        settings = TableSettings.parse(output.asset_key, output.metadata, output.producer, mode="append")
        check_appends(settings.mode, output.producer)
        return TableLanding(settings.path, settings, self.handlers)

    def _lineage(self, output: AssetOutput, settings: TableSettings, rows: Rows) -> Mapping[str, Any]:
        """Describe the declared column lineage, or the lineage that was tracked from the loaded inputs to the rows."""
        if settings.column_lineage is not None or output.asset_key is None or not self.with_column_lineage:
            return described(settings.column_lineage)
        return described(rows.column_lineage(output.upstream))


class _RowSource:
    """The rows of an output, for each attempt to write them."""

    def __init__(self, value: object, name: str, handlers: Sequence[TypeHandler]) -> None:
        self._value, self._name, self._handlers = value, name, handlers
        self.first = to_rows(value, name, handlers)
        """The rows of the first attempt."""
        self._attempts = 0

    def rows(self) -> Rows:
        """Return the rows of the next attempt. Raises ReadOnce for a stream that has been read."""
        self._attempts += 1
        if self._attempts == 1 or not isinstance(self.first.data, pa.RecordBatchReader):
            return self.first
        if not can_read_again(self._value):
            raise ReadOnce
        return to_rows(self._value, self._name, self._handlers)


@dataclass(frozen=True, slots=True)
class _WrittenRows:
    result: OperationResult
    part: RunSlice
    rows: Rows


@dataclass(frozen=True, slots=True)
class TableWrite(AssetWrite[_WrittenRows]):
    """The write of an output to its table."""

    logged = EmptyPartitionValueWarning

    output: AssetOutput
    settings: TableSettings
    columns: tuple[str, ...]
    """The columns that the partitions stand for."""
    source: _RowSource
    lineage: Mapping[str, Any]
    shown: int
    """The number of rows to show."""

    def to(self, workspace: Workspace) -> _WrittenRows:
        """Write the rows once, with the transaction identifier of the attempt."""
        settings, output = self.settings, self.output
        by = self.columns if settings.partition_by is None else settings.partition_by
        writer = TableWriter(workspace, settings.path, by, settings, output.subject, owner=output.owner)
        rows = writer.with_zones(self.source.rows())
        if output.partitions is not None:
            schema = writer.schema(rows.schema)
            part = slice_of_partitions(settings, output.producer, schema, output.partitions, output.keys)
        else:
            part = slice_without_partitions(settings, output.producer)
        txn = (workspace.task_id, SINGLE_BATCH)
        result = writer.write(rows, mode=settings.mode, guard=part.guard, merge=part.merge, txn=txn)
        return _WrittenRows(result, part, rows)

    def written(self, result: _WrittenRows, workspace: Workspace) -> Written:
        """Describe the write, and the table after it."""
        settings, part = self.settings, result.part
        final = final_result(result.result, workspace.receipt, settings.path)
        url = workspace.url(settings.path)
        table: DeltaTable = workspace.after(settings.path, "delta")
        state = table_state(table, part.partitions)
        preview = {} if final.skipped else preview_metadata(result.rows, table, part.partitions, self.shown)
        metadata = write_metadata(
            [final],
            table,
            url=url,
            path=settings.path,
            one_partition=len(self.output.keys) == 1,
            receipt=workspace.receipt,
            operation=settings.mode,
            settings=settings,
            state=state,
            preview=preview,
        )
        # The data version depends only on the data. So a commit that changes no data, such as a skipped retry, does not
        # make downstream assets stale.
        return Written(outcome(final, url, workspace.receipt), metadata | {**self.lineage}, state.data_version)


class TableRead(AssetRead):
    """The read of an input from a table."""

    loads_absent = True

    def __init__(self, request: AssetInput, settings: InputSettings, format: TableFormat) -> None:
        self._request, self._settings, self._format = request, settings, format
        self._lineage_key: AssetPath | None = None
        self.options = settings.moment
        self.pins_state = bool(settings.moment)

    def absent(self, message: str) -> LakeError:
        """Return TableNotFound."""
        return TableNotFound(message)

    def start(self, dataset: DeltaTable | None, step: ReadingStep | None) -> str:
        """Return the version as readers see it. Staged data has no version yet."""
        request, ref = self._request, self._settings.ref
        if request.keys is not None and request.metadata.get(PARTITION_EXPR) is None:
            raise missing_partition_expr(request.producer, "column")
        if step is not None and self._format.with_column_lineage:
            self._lineage_key = step.lineage_key
        if dataset is None:
            state = "no table yet"
        elif ref is None and step is not None and step.is_staged():
            state = "as this run has staged it"
        else:
            state = f"version {dataset.version}" + (f" at {ref}" if ref else "")
        where = self._settings.where
        return state if where is None else f"{state}, where {_shortened(where)}"

    def load(self, dataset: DeltaTable | None, keys: Sequence[str] | None, annotation: object) -> Any:
        """Return the rows of some partitions."""
        request, where = self._request, self._settings.where
        if keys is not None and dataset is not None:
            expression = request.metadata[PARTITION_EXPR]
            where = _both(slice_where(request.of_partitions(), keys, expression, dataset.schema), where)
        declared = None
        if dataset is None and request.output is not None:
            output = request.output
            declared = TableSettings.parse(output.asset_key, output.metadata, output.producer).declared
        part = TableSlice(dataset, self._settings.columns, where, self._format.spark, declared, request.path)
        return load(part, annotation, request.subject, self._format.handlers, asset_key=self._lineage_key)


def _shortened(text: str) -> str:
    return text if len(text) <= _LOGGED else f"{text[:_LOGGED]}…"


def _partition_columns(output: AssetOutput, settings: TableSettings) -> tuple[str, ...]:
    if output.partitions is None:
        return ()
    if settings.partition_expr is None:
        raise missing_partition_expr(output.producer, "column")
    if settings.schema_mode == "overwrite":
        raise InvalidDefinition(
            f"lake/schema_mode 'overwrite' replaces a whole table, and a run of {output.producer} is for some "
            "of its partitions: use 'merge'"
        )
    return output.partitions.columns(settings.partition_expr)


def _both(first: str | None, second: str | None) -> str | None:
    return f"({first}) AND ({second})" if first and second else first or second
