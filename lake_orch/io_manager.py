"""The IO manager: what an asset returns becomes its Delta table, what it depends on is read from one."""

from collections.abc import Sequence
from typing import Any, cast

from dagster import ConfigurableIOManager, InputContext, OutputContext

from lake_orch.attempt import Attempt, run_of
from lake_orch.data import check_writable, load
from lake_orch.errors import InvalidDefinition, PartitionSliceError
from lake_orch.gate import check_step_gate
from lake_orch.location import table_path
from lake_orch.marker import SINGLE_BATCH
from lake_orch.metadata import write_metadata
from lake_orch.partition_slice import partition_columns, slice_where
from lake_orch.resources import LakeResource, SparkResource
from lake_orch.table_writer import Data, Mode, TableWriter, final_result

PARTITION_EXPR_METADATA = "partition_expr"
MODE_METADATA = "lake/mode"
PARTITION_BY_METADATA = "lake/partition_by"
COLUMNS_METADATA = "columns"

_MODES: tuple[Mode, ...] = ("overwrite", "append", "error")


class DeltaIOManager(ConfigurableIOManager):
    """Stores PySpark DataFrames and Arrow data in Delta tables, each write exactly once, and loads them by annotation.

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

    An asset's table lies at `<root>/tables/<asset key>`. It returns a `pyspark.sql.DataFrame`, a `pyarrow.Table` or a
    `pyarrow.RecordBatchReader`; a parameter annotated with one of these, or with `DeltaTable`, loads it so.

    Definition metadata of an asset:
        partition_expr: the column that the partitions stand for, or a dict from dimension to column. Required if partitioned.
        lake/mode: `overwrite` (default; of a partitioned asset exactly the run's partitions), `append`, or `error`
            (only where there are no rows yet).
        lake/path: the table's path below the root, instead of the asset's key.
        lake/partition_by: the table's partition columns at its creation; by default those of `partition_expr`.

    Metadata of an input (`dg.AssetIn(metadata=...)`):
        columns: the columns to load.

    A step that is retried, or re-executed from failure, after its rows were committed writes nothing and says so
    (`lake/skipped`). Rows outside the run's partitions fail the step before anything is visible.
    """

    lake: LakeResource
    spark: SparkResource | None = None

    def handle_output(self, context: OutputContext, obj: "Data | None") -> None:
        """Write an output to its table. Raises InvalidDefinition, UnsupportedData, PartitionSliceError, TableNotEmpty and DeltaError."""
        if obj is None:  # the asset wrote by itself, or has nothing to say
            return
        what = f"the output of {_name(context)}"
        mode = _mode(context)
        path = _path(context)
        keys = _partition_keys(context)
        columns = _partition_columns(context)
        check_writable(obj, what)

        with self.lake.workspace(Attempt.of_output(context, keys)) as workspace:
            writer = TableWriter(workspace, path, _partition_by(context, columns))
            where = None
            if context.has_asset_partitions:
                where = slice_where(context.asset_partitions_def, keys, _partition_expr(context), writer.schema(obj))
            if not workspace.is_staged:
                check_step_gate(context)
            result = writer.write(obj, mode=mode, where=where, txn=(workspace.app_id, SINGLE_BATCH))
        result = final_result(result, workspace.receipt, path)

        url = workspace.url(path)
        if result.skipped:
            context.log.info(f"{what} was committed by an earlier attempt, in version {result.version} of {url}: nothing written")
        else:
            context.log.info(f"{what}: {result.rows} rows to {url}, version {result.version}")
        table = workspace.after(path)
        context.add_output_metadata(
            write_metadata([result], table, url=url, path=path, one_partition=len(keys) == 1, receipt=workspace.receipt)
        )

    def load_input(self, context: InputContext) -> Any:
        """Read an input: of a partitioned asset exactly the partitions that this run's map to.

        Raises InvalidDefinition, UnsupportedData, PartitionSliceError and DeltaError.
        """
        upstream = context.upstream_output
        asset_key = context.asset_key.path if context.has_asset_key else None
        path = table_path(asset_key, upstream.definition_metadata if upstream else {})
        table = self.lake.read_table(path, run_of(context))
        where = None
        if context.has_asset_partitions:
            expression = (upstream.definition_metadata if upstream else {}).get(PARTITION_EXPR_METADATA)
            if expression is None:
                raise _missing_partition_expr(context.asset_key.to_user_string())
            where = slice_where(context.asset_partitions_def, context.asset_partition_keys, expression, table.schema)
        return load(
            table,
            context.dagster_type.typing_type,
            columns=_columns(context),
            where=where,
            spark=self.spark,
            what=f"input {context.name!r}" if context.has_input_name else path,
        )


def _name(context: OutputContext) -> str:
    return f"asset {context.asset_key.to_user_string()}" if context.has_asset_key else f"step {context.step_key}"


def _path(context: OutputContext) -> str:
    return table_path(context.asset_key.path if context.has_asset_key else None, context.definition_metadata)


def _mode(context: OutputContext) -> Mode:
    mode = context.definition_metadata.get(MODE_METADATA, "overwrite")
    if mode not in _MODES:
        raise InvalidDefinition(f"{MODE_METADATA} of {_name(context)} is {mode!r}: use one of {', '.join(_MODES)}")
    return cast(Mode, mode)


def _partition_keys(context: OutputContext) -> Sequence[str]:
    if context.has_asset_partitions:
        return [str(key) for key in context.asset_partition_keys]
    if context.has_asset_key and context.asset_spec.partitions_def is not None:
        # Dagster runs this as if the asset were not partitioned, and the whole table would be replaced.
        raise PartitionSliceError(f"{_name(context)} is partitioned, but this run is for no partition of it: launch it with a partition")
    return ()


def _partition_expr(context: OutputContext) -> Any:
    expression = context.definition_metadata.get(PARTITION_EXPR_METADATA)
    if expression is None:
        raise _missing_partition_expr(_name(context))
    return expression


def _missing_partition_expr(name: str) -> InvalidDefinition:
    return InvalidDefinition(
        f"{name} is partitioned, but its metadata has no {PARTITION_EXPR_METADATA!r}: name the column that the partitions stand for "
        f"(a dict from dimension to column for several dimensions)"
    )


def _partition_columns(context: OutputContext) -> tuple[str, ...]:
    if not context.has_asset_partitions:
        return ()
    return partition_columns(context.asset_partitions_def, _partition_expr(context))


def _partition_by(context: OutputContext, default: tuple[str, ...]) -> tuple[str, ...]:
    value = context.definition_metadata.get(PARTITION_BY_METADATA, default)
    columns = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(column, str) and column for column in columns):
        raise InvalidDefinition(f"{PARTITION_BY_METADATA} of {_name(context)} is {value!r}: use a list of column names")
    return columns


def _columns(context: InputContext) -> list[str] | None:
    value = context.definition_metadata.get(COLUMNS_METADATA)
    if value is None:
        return None
    if isinstance(value, str) or not all(isinstance(column, str) for column in value):
        raise InvalidDefinition(f"metadata {COLUMNS_METADATA!r} of an input is {value!r}: use a list of column names")
    return list(value)
