"""The IO manager for tables: it writes what an asset returns to a Delta table, and reads inputs from Delta tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
from dagster import ConfigurableIOManager, InputContext, OutputContext
from pydantic import Field

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.conform import EmptyPartitionValueWarning
from lake_core.delta.errors import TableNotFound
from lake_core.workspace import Workspace
from lake_orch.dagster.partitions import partitions_of
from lake_orch.definition_metadata import PARTITION_EXPR, missing_partition_expr
from lake_orch.errors import InvalidDefinition
from lake_orch.io_managers.input import InputRequest, check_input_published, reads_itself
from lake_orch.io_managers.logged_warnings import logged_warnings
from lake_orch.io_managers.nothing_returned import warn_of_nothing
from lake_orch.io_managers.output import output_partitions, output_path, producer_name, set_data_version
from lake_orch.io_managers.place import HasPlaces, Place, check_place
from lake_orch.io_managers.retry import PAUSES, TRIES, ReadOnce, write_with_retries
from lake_orch.location import table_path
from lake_orch.resources import LakeResource, SparkResource
from lake_orch.runs.attempt import run_of, step_of
from lake_orch.runs.marker import SINGLE_BATCH
from lake_orch.spark.column_lineage import described
from lake_orch.tables.data import HasTypeHandlers, TableSlice, TypeHandler, load, to_rows
from lake_orch.tables.data.registry import can_read_again
from lake_orch.tables.handle import outcome
from lake_orch.tables.metadata import write_metadata
from lake_orch.tables.owner import Owner
from lake_orch.tables.partition_slice import slice_where
from lake_orch.tables.preview import preview_metadata
from lake_orch.tables.rows import Rows
from lake_orch.tables.run_slice import RunSlice, slice_of_partitions, slice_without_partitions
from lake_orch.tables.settings import InputSettings, TableSettings, mode_of
from lake_orch.tables.state import table_state
from lake_orch.tables.writer import TableWriter, final_result

_LOGGED = 200
"""The number of characters of a predicate that a log line shows."""


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


class DeltaIOManager(HasTypeHandlers, HasPlaces, ConfigurableIOManager):
    """An IO manager that stores DataFrames and Arrow data in Delta tables, each write exactly once.

    Inputs are loaded as the type that the parameter is annotated with.

    Example:
        .. code-block:: python

            lake = LakeResource(root="s3://bucket/lake")
            defs = dg.Definitions(
                assets=[orders, orders_by_day],
                resources={"io_manager": DeltaIOManager(lake=lake, spark=SparkResource()), "lake": lake},
            )

            @dg.asset(
                partitions_def=dg.DailyPartitionsDefinition("2025-01-01"),
                metadata={"partition_expr": "day"},     # the column that the partitions stand for
                kinds={"deltalake", "pyspark"},
            )
            def orders_by_day(orders: DataFrame) -> DataFrame: ...

    An asset's table is at `<root>/tables/<asset key>`. It returns a PySpark, pandas or polars DataFrame, a polars
    LazyFrame, or a `pyarrow` Table, RecordBatchReader or Dataset. A parameter annotated with one of these, or with
    `DeltaTable`, gets that type, and one annotated with `dict[str, T]` gets one value for each partition.

    Definition metadata of an asset, or of an op's output:
        partition_expr: the column that the partitions stand for, or a dict from dimension to column. Required if
            partitioned.
        lake/mode: `overwrite` (default; of a partitioned asset exactly the run's partitions), `append`, `merge`,
            `replace_where`, `overwrite_partitions` (those of the table that get rows), `error` or `ignore` (only where
            there are no rows yet).
        lake/merge: the keys (`["id"]`), or a dict of `keys` or `on`, and clauses.
        lake/replace_where: the SQL that selects the rows to replace.
        lake/schema_mode: `none` (default: new and missing columns are an error), `fill` (missing ones are null),
            `merge` (new ones are added, too), `overwrite`.
        lake/naive_timestamps: `refuse` (default: timestamps without a zone are an error), `utc` (they are UTC), `ntz`
            (clock times of no zone).
        lake/owner: `take` takes over a table that another asset wrote, `shared` also lets other assets overwrite it.
        lake/path: the table's path below the root, instead of the asset's key.
        lake/preview_rows: the number of rows that the asset's page shows. Dagster keeps them in its database: use 0 for
            data that must not be there.
        lake/partition_by, lake/cluster_by, lake/properties, lake/constraints, lake/generated, lake/schema,
            dagster/column_schema: the layout, properties and columns of the table.

    Metadata of an input (`dg.AssetIn(metadata=...)`):
        columns, lake/where: the columns and rows to load.
        lake/ref, lake/version, lake/timestamp: the state to load them from.

    A step that is retried, or re-executed from failure, after its rows were committed writes nothing and reports
    `lake/skipped`. Rows outside the run's partitions fail the step before anything is visible.
    """

    lake: LakeResource
    spark: SparkResource | None = None
    mode: Literal["overwrite", "append", "overwrite_partitions", "error", "ignore"] = Field(
        default="overwrite", description="How outputs are written if their metadata names no lake/mode."
    )
    schema_mode: Literal["none", "fill", "merge", "overwrite"] = Field(
        default="none", description="How new and missing columns are handled if metadata names no lake/schema_mode."
    )
    naive_timestamps: Literal["refuse", "utc", "ntz"] = Field(
        default="refuse",
        description="How timestamps without a zone are read if metadata names no lake/naive_timestamps.",
    )

    preview_rows: int = Field(
        default=5, ge=0, le=50, description="Rows in lake/preview if metadata names no lake/preview_rows. 0 shows none."
    )
    with_column_lineage: bool = Field(
        default=True,
        description="Whether Spark's plans are read for column lineage. Declared lineage is kept.",
    )

    @classmethod
    def place_of(
        cls, asset_key: Sequence[str] | None, metadata: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Place:
        """Return the place of an output's table. A write replaces rows by `overwrite` and `overwrite_partitions`."""
        mode = mode_of(metadata, options.get("mode", "overwrite"))
        return Place(table_path(asset_key, metadata), replaces=mode in ("overwrite", "overwrite_partitions"))

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output to its table.

        Raises InvalidDefinition, DefinitionMismatch, UnsupportedData, PartitionSliceError, TableNotEmpty and
        DeltaError.
        """
        if obj is None:
            warn_of_nothing(context)
            return
        name = f"the output of {producer_name(context)}"
        settings = self._settings(context)
        check_place(context, type(self), dict(self))
        keys = [str(key) for key in output_partitions(context)]
        columns = _partition_columns(context, settings)
        source = _RowSource(obj, name, self.type_handlers())
        lineage = self._lineage(context, settings, source.first)

        def write(workspace: Workspace) -> tuple[OperationResult, RunSlice, Rows]:
            by = columns if settings.partition_by is None else settings.partition_by
            writer = TableWriter(workspace, settings.path, by, settings, name, owner=Owner.of_output(context))
            rows = writer.with_zones(source.rows())
            if context.has_asset_partitions:
                schema = writer.schema(rows.schema)
                partitions = partitions_of(context.asset_partitions_def)
                part = slice_of_partitions(settings, producer_name(context), schema, partitions, keys)
            else:
                part = slice_without_partitions(settings, producer_name(context))
            txn = (workspace.task_id, SINGLE_BATCH)
            result = writer.write(rows, mode=settings.mode, guard=part.guard, merge=part.merge, txn=txn)
            return result, part, rows

        with logged_warnings(context, EmptyPartitionValueWarning):
            (result, part, rows), workspace = write_with_retries(
                context, self.lake, keys, write, name, tries=TRIES, pauses=PAUSES
            )
        result = final_result(result, workspace.receipt, settings.path)

        url = workspace.url(settings.path)
        context.log.info(f"{name}: {outcome(result, url, workspace.receipt)}")
        table: DeltaTable = workspace.after(settings.path, "delta")
        state = table_state(table, part.partitions)
        shown = self.preview_rows if settings.preview_rows is None else settings.preview_rows
        preview = {} if result.skipped else preview_metadata(rows, table, part.partitions, shown)
        metadata = write_metadata(
            [result],
            table,
            url=url,
            path=settings.path,
            one_partition=len(keys) == 1,
            receipt=workspace.receipt,
            operation=settings.mode,
            settings=settings,
            state=state,
            preview=preview,
        )
        context.add_output_metadata(metadata | lineage)
        # The data version depends only on the data. So a commit that changes no data, such as a skipped retry, does not
        # make downstream assets stale.
        set_data_version(context, state.data_version)

    def load_input(self, context: InputContext) -> Any:
        """Read an input. For a partitioned asset, read exactly the partitions that the run's partitions map to.

        A missing table is an error, with two exceptions: the run needs no partition of it, or it is the first run of
        an asset that depends on itself. Then a parameter annotated `T | None` gets None, and any other gets no rows.

        Raises InvalidDefinition, UnsupportedData, PartitionSliceError and DeltaError.
        """
        request = InputRequest.of(context)
        name, path, keys = request.subject, request.path, request.keys
        settings = InputSettings.parse(context.definition_metadata or {}, name)
        if keys == [] and request.optional:
            return None
        if not settings.moment:
            check_input_published(self.lake, context, settings.ref)
        try:
            table = self.lake.read_table(
                path, run_of(context), ref=settings.ref, step=step_of(context), **settings.moment
            )
        except TableNotFound:
            if keys != [] and not reads_itself(context):
                raise
            if request.optional:
                return None
            table = None
        expression = request.metadata.get(PARTITION_EXPR)
        if keys is not None and expression is None:
            raise missing_partition_expr(context.asset_key.to_user_string(), "column")
        each = request.type_of_each()
        if each is None:
            return self._load(context, table, settings, keys, expression, request.annotation, path, name)
        return {key: self._load(context, table, settings, [key], expression, each, path, name) for key in keys or ()}

    def _load(
        self,
        context: InputContext,
        table: DeltaTable | None,
        settings: InputSettings,
        keys: Sequence[str] | None,
        expression: Any,
        annotation: object,
        path: str,
        name: str,
    ) -> Any:
        where = settings.where
        if keys is not None and table is not None:
            partitions = partitions_of(context.asset_partitions_def)
            where = _both(slice_where(partitions, keys, expression, table.schema), where)
        upstream = context.upstream_output
        declared = _declared(upstream) if table is None and upstream is not None else None
        part = TableSlice(table, settings.columns, where, self.spark, declared, path)
        is_tracked = self.with_column_lineage and context.has_asset_key and run_of(context) is not None
        asset_key = context.asset_key if is_tracked else None
        value = load(part, annotation, name, self.type_handlers(), asset_key=asset_key)
        shown = "no table yet" if table is None else self._version_label(context, table, path, settings)
        parts = "" if keys is None else f", {partitions_of(context.asset_partitions_def).label(keys)}"
        rows = f", where {_shortened(settings.where)}" if settings.where else ""
        context.log.info(f"{name} is {path}, {shown}{parts}{rows}")
        return value

    def _version_label(self, context: InputContext, table: DeltaTable, path: str, settings: InputSettings) -> str:
        """Return the version as readers see it. Staged data has no version yet."""
        run = run_of(context)
        if settings.ref is None and run is not None and self.lake.is_staged(path, *run):
            return "as this run has staged it"
        return f"version {table.version}" + (f" at {settings.ref}" if settings.ref else "")

    def _lineage(self, context: OutputContext, settings: TableSettings, rows: Rows) -> dict[str, Any]:
        """Describe the declared column lineage, or the lineage that was tracked from the loaded inputs to the rows."""
        if settings.column_lineage is not None or not context.has_asset_key or not self.with_column_lineage:
            return described(settings.column_lineage)
        return described(rows.column_lineage([dep.asset_key for dep in context.asset_spec.deps]))

    def _settings(self, context: OutputContext) -> TableSettings:
        asset_key = context.asset_key.path if context.has_asset_key else None
        settings = TableSettings.parse(
            asset_key,
            context.definition_metadata or {},
            producer_name(context),
            mode=self.mode,
            schema_mode=self.schema_mode,
            naive_timestamps=self.naive_timestamps,
        )
        return replace(settings, path=output_path(context, settings.path))


def _shortened(text: str) -> str:
    return text if len(text) <= _LOGGED else f"{text[:_LOGGED]}…"


def _partition_columns(context: OutputContext, settings: TableSettings) -> tuple[str, ...]:
    if not context.has_asset_partitions:
        return ()
    if settings.partition_expr is None:
        raise missing_partition_expr(producer_name(context), "column")
    if settings.schema_mode == "overwrite":
        raise InvalidDefinition(
            f"lake/schema_mode 'overwrite' replaces a whole table, and a run of {producer_name(context)} is for some "
            "of its partitions: use 'merge'"
        )
    return partitions_of(context.asset_partitions_def).columns(settings.partition_expr)


def _both(first: str | None, second: str | None) -> str | None:
    return f"({first}) AND ({second})" if first and second else first or second


def _declared(upstream: OutputContext) -> Any:
    key = upstream.asset_key.path if upstream.has_asset_key else None
    return TableSettings.parse(key, upstream.definition_metadata or {}, producer_name(upstream)).declared
