"""The IO manager for records of any shape: it writes what an asset returns to a pool, and reads inputs from pools."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from dagster import ConfigurableIOManager, DagsterRun, InputContext, OutputContext
from pydantic import Field

from lake_core.pool import DataObject, Pool
from lake_core.pool.added import added_since
from lake_core.pool.errors import NoSuchPool, OutsideRange
from lake_core.pool.key_range import KeyRange
from lake_core.pool.marker import is_recorded
from lake_core.readable import count_of, readable_bytes
from lake_core.workspace import STAGED, Workspace
from lake_orch.dagster.partitions import partitions_of
from lake_orch.definition_metadata import PARTITION_EXPR, missing_partition_expr
from lake_orch.errors import InvalidDefinition, OutsideRegion, TableNotEmpty
from lake_orch.io_managers.input import InputRequest, check_input_published, reads_itself
from lake_orch.io_managers.nothing_returned import warn_of_nothing
from lake_orch.io_managers.output import describe_write, output_partitions, output_path, producer_name, set_data_version
from lake_orch.io_managers.place import HasPlaces, check_place
from lake_orch.io_managers.retry import PAUSES, write_with_retries
from lake_orch.pools.data import PoolSlice, load, write_objects
from lake_orch.pools.key_ranges import ranges_of_partitions
from lake_orch.pools.last_run import bounds_of_read, reader_of, report_read
from lake_orch.pools.metadata import PoolResult, pool_metadata
from lake_orch.pools.owner import claim
from lake_orch.pools.settings import SINCE, PoolInputSettings, PoolSettings
from lake_orch.resources import LakeResource, SparkResource
from lake_orch.runs.attempt import run_of, step_of
from lake_orch.runs.marker import SINGLE_BATCH
from lake_orch.runs.run_session import from_tags
from lake_orch.tables.owner import Owner

"""The most tries to commit one output. Its records are stored once."""


_TRIES = 20
"""The most attempts: the records are stored once, so each is only a commit."""


class PoolIOManager(HasPlaces, ConfigurableIOManager):
    """An IO manager that stores records of any shape in pools, sorted by a key, each write exactly once.

    Inputs are loaded as the type that the parameter is annotated with.

    Example:
        .. code-block:: python

            lake = LakeResource(root="s3://bucket/lake")
            defs = dg.Definitions(assets=[events], resources={"pools": PoolIOManager(lake=lake), "lake": lake})

            @dg.asset(
                io_manager_key="pools",
                partitions_def=dg.DailyPartitionsDefinition("2025-01-01"),
                metadata={"partition_expr": "ts"},      # the key that the pool is sorted by
                kinds={"zed"},
            )
            def events(context: dg.AssetExecutionContext) -> Iterator[dict[str, Any]]: ...

    An asset's pool is at `<root>/tables/<asset key>`, a Zed lake whose one pool has the folder's name. It returns an
    iterable of dicts, Arrow data, a pandas, polars or PySpark DataFrame, or lines of JSON as one text. Wrap a generator
    in `dg.Output`. Otherwise Dagster treats what it yields as events. A parameter annotated with `pyarrow.Table`,
    `pyarrow.RecordBatchReader`, a DataFrame, `Iterator` of `collections.abc` (of dicts; Dagster allows no
    `Iterator[…]`), or `Scan` or `Pool` of `lake_core.pool` gets that type, and one annotated with `dict[str, T]` gets
    one value for each partition. Tables have one schema: fields that a record lacks are null, and fields of several
    types get a common type, or become JSON text.

    Definition metadata of an asset, or of an op's output:
        partition_expr: the key that the pool is sorted by, and the partitions stand for. Required if partitioned.
        lake/mode: `overwrite` (default; of a partitioned asset exactly the run's range of keys), `append`, `error` or
            `ignore` (only where there is nothing yet).
        lake/key, lake/order, lake/threshold: settings of a new pool. The defaults are `ts`, `desc` and 500 MB.
        lake/times: fields whose texts, such as `2025-01-01T12:00:00Z` in JSON, are stored as times.
        lake/owner: `take` takes over a pool that another asset wrote, `shared` also lets other assets overwrite it.
        lake/path: the pool's path below the root, instead of the asset's key.
        lake/preview_rows: the number of records that the asset's page shows. Dagster keeps them in its database: use 0
            for data that must not be there.

    Metadata of an input (`dg.AssetIn(metadata=...)`):
        columns: the fields to load.
        lake/shape: the name or the text of the one type of records to load, such as `{ts:time,level:string}`.
        lake/start, lake/stop: the range of keys to load, without the stop.
        lake/since: `last run` loads what was added since the asset's last materialization.
        lake/ref, lake/pool_commit: the state to load them from.

    A step that is retried, or re-executed from failure, after its records were committed writes nothing and reports
    `lake/skipped`. Records outside the run's partitions fail the step before anything is visible.
    """

    lake: LakeResource
    spark: SparkResource | None = None
    mode: Literal["overwrite", "append", "error", "ignore"] = Field(
        default="overwrite", description="How outputs are written if their metadata names no lake/mode."
    )
    preview_rows: int = Field(
        default=5,
        ge=0,
        le=50,
        description="Records in lake/preview if metadata names no lake/preview_rows. 0 shows none.",
    )

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output to its pool.

        Raises InvalidDefinition, UnsupportedData, PartitionSliceError, OutsideRegion, TableNotEmpty, TableOwned and
        PoolError.
        """
        if obj is None:
            warn_of_nothing(context)
            return
        subject = f"the output of {producer_name(context)}"
        keys = [str(key) for key in output_partitions(context)]
        settings = self._settings(context)
        check_place(context, type(self), dict(self))
        ranges = _output_ranges(context, settings, keys)
        write = _PoolWrite(settings, ranges, obj, subject, Owner.of_output(context))
        result, workspace = write_with_retries(context, self.lake, keys, write.to, subject, tries=_TRIES, pauses=PAUSES)
        pool: Pool = workspace.after(settings.path, "pool")
        if result.skipped or (result.objects and workspace.receipt is not None and workspace.receipt.state != STAGED):
            result = replace(result, commit=_commit_of(pool, (workspace.task_id, SINGLE_BATCH)) or result.commit)
        url = workspace.url(settings.path)
        size = f"{count_of(result.records, 'record')} ({readable_bytes(result.bytes)})"
        context.log.info(
            f"{subject}: "
            f"{describe_write(size, url, f'commit {result.commit}', workspace.receipt, skipped=result.skipped)}"
        )
        metadata = pool_metadata(
            result,
            pool,
            url=url,
            path=settings.path,
            operation=settings.mode,
            receipt=workspace.receipt,
            preview_rows=self.preview_rows if settings.preview_rows is None else settings.preview_rows,
        )
        context.add_output_metadata(metadata)
        # A retry has the same commit as the attempt that it repeats, so it does not make downstream assets stale.
        set_data_version(context, result.commit)

    def load_input(self, context: InputContext) -> Any:
        """Read an input. For a partitioned asset, read exactly the ranges of keys that the run's partitions map to.

        A missing pool is an error. The exception is a parameter annotated `T | None` if the run needs no partition, or
        if it is the first run of an asset that depends on itself.

        Raises InvalidDefinition, UnsupportedData, PartitionSliceError and PoolError.
        """
        request = InputRequest.of(context)
        subject, path, keys = request.subject, request.path, request.keys
        settings = PoolInputSettings.parse(context.definition_metadata or {}, subject)
        if keys == [] and request.optional:
            return None
        check_input_published(self.lake, context, settings.ref)
        try:
            pool = self.lake.read_pool(path, run_of(context), ref=settings.ref, step=step_of(context))
        except NoSuchPool:
            if request.optional and reads_itself(context):
                return None
            raise
        pool.store.note_scan()
        each = request.type_of_each()
        if keys is not None and request.metadata.get(PARTITION_EXPR) is None:
            raise missing_partition_expr(context.asset_key.to_user_string(), "column")
        part, state = self._slice(context, pool, settings, path, subject)
        parts = "" if keys is None else f", {partitions_of(context.asset_partitions_def).label(keys)}"
        context.log.info(f"{subject} is {path}, {state}{parts}")
        if keys is None:
            return load(part, request.annotation, self.spark, subject)
        name = f"asset {context.asset_key.to_user_string()}"
        if each is None:
            return load(_of_partitions(part, context, keys, name), request.annotation, self.spark, subject)
        return {key: load(_of_partitions(part, context, [key], name), each, self.spark, subject) for key in keys}

    def _slice(
        self, context: InputContext, pool: Pool, settings: PoolInputSettings, path: str, subject: str
    ) -> tuple[PoolSlice, str]:
        """Return the slice that an input reads of all partitions, and a description of the state for the log."""
        key_range = KeyRange.of(settings.start, settings.stop)
        if not settings.since_last_run:
            objects = pool.objects(commit=settings.commit)
            return PoolSlice(
                pool, objects, [key_range], settings.columns, settings.shape
            ), f"commit {settings.commit or pool.tip()}"
        if run_of(context) is None:
            raise InvalidDefinition(f"{SINCE} of {subject} needs a run: leave it out to load a value outside of runs")
        reader = reader_of(context, subject)
        if self.lake.is_staged(path, context.step_context.instance, context.step_context.dagster_run):
            raise InvalidDefinition(
                f"{subject} reads what is new in {path}, and this run has staged changes to it that are not published "
                "yet: materialize the two assets in separate runs"
            )
        bounds = bounds_of_read(context, reader, pool.tip, self._is_published)
        report_read(context, bounds, reader)
        added = added_since(pool, bounds.since, bounds.until)
        path_of_key = pool.config.keys[0]
        values = [value for value in added.values if not key_range.is_bounded or key_range.contains(value, path_of_key)]
        state = (
            f"what was added {'up' if bounds.since is None else f'after commit {bounds.since}, up'} "
            f"to commit {bounds.until}"
        )
        return PoolSlice(pool, added.objects, [key_range], settings.columns, settings.shape, values), state

    def _is_published(self, run: DagsterRun) -> bool:
        """Return whether other runs can read what a run wrote."""
        session = from_tags(run)
        return session is None or self.lake.open().get_session(session.id).record.is_published

    def _settings(self, context: OutputContext) -> PoolSettings:
        asset_key = context.asset_key.path if context.has_asset_key else None
        settings = PoolSettings.parse(
            asset_key, context.definition_metadata or {}, producer_name(context), mode=self.mode
        )
        return replace(settings, path=output_path(context, settings.path))


class _PoolWrite:
    """The write of one output to a pool. Its records are stored once, and committed again after a conflict."""

    def __init__(
        self, settings: PoolSettings, ranges: Sequence[KeyRange] | None, obj: Any, subject: str, owner: Owner | None
    ) -> None:
        self.settings = settings
        self.subject = subject
        self._ranges = ranges
        self._obj = obj
        self._owner = owner
        self._stored: dict[str, list[DataObject]] = {}

    def to(self, workspace: Workspace) -> PoolResult:
        """Write the records to a pool, and commit them with the transaction identifier of the attempt."""
        settings, txn = self.settings, (workspace.task_id, SINGLE_BATCH)
        pool: Pool = workspace.find(settings.path, "pool") or workspace.create(
            settings.path, "pool", **settings.options
        )
        self._check_key(pool)
        if pool.has_marker(txn):
            return PoolResult(pool.tip(), None)
        meta = claim(pool, self._owner, settings.ownership, replaces=settings.mode == "overwrite") or None
        ranges = self._ranges or [KeyRange()]
        if settings.mode in ("error", "ignore") and self._has_records(pool, ranges):
            return self._refuse(pool)
        if pool.config.id not in self._stored:
            self._stored[pool.config.id] = self._store(pool, ranges)
        objects = self._stored[pool.config.id]
        message = self.subject if objects else f"{self.subject}, which is empty"
        if settings.mode == "append":
            commit = pool.add_objects(objects, message=message, meta=meta, txn=txn)
        else:
            commit = pool.replace(objects, ranges, message=message, meta=meta, txn=txn)
        return PoolResult(pool.tip() if commit is None else commit.id, objects)

    def _check_key(self, pool: Pool) -> None:
        """Raise InvalidDefinition if the partitions stand for a key other than the pool's."""
        key = ".".join(pool.config.keys[0])
        if self.settings.partition_expr not in (None, key):
            raise InvalidDefinition(
                f"{PARTITION_EXPR} of {self.subject} is {self.settings.partition_expr!r}, "
                f"but the pool {self.settings.path} is sorted by {key!r}: partitions must stand for that key"
            )

    def _store(self, pool: Pool, ranges: Sequence[KeyRange]) -> list[DataObject]:
        try:
            return write_objects(self._obj, pool, ranges, self.subject, self.settings.times)
        except OutsideRange as error:
            raise OutsideRegion(
                f"{error}. Return only records of the run's partitions. For partitions by time, "
                "keys must be datetimes with a zone, or texts of fields that lake/times names"
            ) from None

    def _has_records(self, pool: Pool, ranges: Sequence[KeyRange]) -> bool:
        return any(next(pool.scan(start=each.start, stop=each.stop).values(), None) is not None for each in ranges)

    def _refuse(self, pool: Pool) -> PoolResult:
        if self.settings.mode == "error":
            part = "" if self._ranges is None else " for the run's partitions"
            raise TableNotEmpty(
                f"mode 'error' writes only the first records, but {self.settings.path} already has some{part}: "
                "use mode 'overwrite' or 'append'"
            )
        return PoolResult(pool.tip())


def _output_ranges(context: OutputContext, settings: PoolSettings, keys: Sequence[str]) -> list[KeyRange] | None:
    """Return the ranges of keys that a run writes, or None for an asset without partitions."""
    if not context.has_asset_partitions:
        return None
    if settings.partition_expr is None:
        raise missing_partition_expr(producer_name(context), "column")
    return ranges_of_partitions(partitions_of(context.asset_partitions_def), keys, producer_name(context))


def _of_partitions(part: PoolSlice, context: InputContext, keys: Sequence[str], name: str) -> PoolSlice:
    """Return the part of a slice that is in some partitions."""
    (whole,) = part.ranges
    if whole.is_bounded:
        raise InvalidDefinition(
            f"{name} is partitioned: its partitions select the keys to load, so leave out lake/start and lake/stop"
        )
    ranges = ranges_of_partitions(partitions_of(context.asset_partitions_def), keys, name)
    path = part.pool.config.keys[0]
    values = [value for value in part.values if any(each.contains(value, path) for each in ranges)]
    return replace(part, ranges=ranges, values=values)


def _commit_of(pool: Pool, txn: tuple[str, int]) -> str | None:
    """Return the id of the commit that recorded a transaction identifier, or None."""
    id = None
    for commit in pool.log():
        if commit.markers is None:
            continue
        if not is_recorded(commit.markers, txn):
            break
        id = commit.id
    return id
