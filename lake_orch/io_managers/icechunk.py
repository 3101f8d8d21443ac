"""The IO manager for arrays: it writes what an asset returns to an Icechunk repository, and reads inputs from one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import xarray as xr
import zarr
from dagster import ConfigurableIOManager, InputContext, OutputContext
from pydantic import Field

from lake_core.backoff import Backoff
from lake_core.icechunk import ConflictError, Repository, Session
from lake_core.icechunk.conflict_detector import ConflictDetector
from lake_core.icechunk.errors import RebaseFailedError, RepositoryNotFound
from lake_core.readable import count_of, readable_bytes
from lake_core.workspace import Workspace
from lake_orch.arrays.data import ArraySlice, load, open_dataset, to_dataset
from lake_orch.arrays.metadata import ArrayResult, array_metadata, count_chunks, preview_metadata
from lake_orch.arrays.owner import claim
from lake_orch.arrays.partitioning import with_partitions
from lake_orch.arrays.region import Region, region_of_partitions
from lake_orch.arrays.settings import ArrayInputSettings, ArraySettings
from lake_orch.arrays.writer import ArrayWriter
from lake_orch.dagster.partitions import partitions_of
from lake_orch.definition_metadata import PARTITION_EXPR, missing_partition_expr
from lake_orch.io_managers.input import InputRequest, check_input_published, reads_itself
from lake_orch.io_managers.nothing_returned import warn_of_nothing
from lake_orch.io_managers.output import describe_write, output_partitions, output_path, producer_name, set_data_version
from lake_orch.io_managers.place import HasPlaces, check_place
from lake_orch.io_managers.retry import write_with_retries
from lake_orch.resources import LakeResource
from lake_orch.runs.attempt import run_of, step_of
from lake_orch.runs.marker import SINGLE_BATCH
from lake_orch.tables.owner import Owner

_BRANCH = "main"
_TRIES = 200
_PAUSES = Backoff(first=1.0, longest=1.0, factor=0.8, shortest_share=0.0)
"""The pauses between attempts get shorter. If many partitions append to one array, earlier losers go first."""


class IcechunkIOManager(HasPlaces, ConfigurableIOManager):
    """An IO manager that stores arrays in Icechunk repositories, each write exactly once, and loads them lazily.

    Needs the extra `arrays`.

    Example:
        .. code-block:: python

            lake = LakeResource(root="s3://bucket/lake")
            defs = dg.Definitions(assets=[temperature], resources={"arrays": IcechunkIOManager(lake=lake), "lake":
            lake})

            @dg.asset(
                io_manager_key="arrays",
                partitions_def=dg.DailyPartitionsDefinition("2024-01-01"),
                metadata={"partition_expr": "time"},    # the dimension that the partitions stand for
                kinds={"icechunk", "xarray"},
            )
            def temperature(context: dg.AssetExecutionContext) -> xr.Dataset: ...

    An asset's repository is at `<root>/tables/<asset key>`. It returns an `xarray.Dataset` or `DataArray`, a
    `zarr.Group` or `Array`, or an array of numpy or dask. A parameter annotated with one of these, or with
    `lake_core.icechunk.Session`, gets that type, and one annotated with `dict[str, T]` gets one value for each
    partition.

    Definition metadata of an asset, or of an op's output:
        partition_expr: the dimension that the partitions stand for, or a dict from the partitions' dimensions to the
            arrays'. Required if partitioned.
        lake/mode: `overwrite` (default; of a partitioned asset exactly the run's region), `append`, `error` or `ignore`
            (only where there is nothing yet).
        lake/append_dim: the dimension along which `append` adds.
        lake/coordinates: all coordinates that a dimension will ever have, by dimension, or the frequency of those of
            time partitions, such as `{"time": "h"}`. Then each partition has its position from the start, and chunks of
            its own.
        lake/encoding: chunks, shards, compressors, dtype, fill_value, units, …, by variable.
        lake/dims: names of the dimensions of numpy and dask arrays.
        lake/owner: `take` takes over arrays that another asset wrote, `shared` also lets other assets overwrite them.
        lake/path: the repository's path below the root, instead of the asset's key.
        lake/preview_image: whether the asset's page shows a picture, or the variable that it shows. Dagster keeps it in
            its database.

    Metadata of an input (`dg.AssetIn(metadata=...)`):
        columns: the variables to load.
        lake/sel: the selection, as for `Dataset.sel`. A dict of `start` and `stop` is a slice.
        lake/chunks: the chunks of dask arrays. Without it, arrays are lazy and do not need dask.
        lake/ref, lake/snapshot, lake/timestamp: the state to load them from.

    A step that is retried, or re-executed from failure, after its arrays were committed writes nothing and reports
    `lake/skipped`. Coordinates outside the run's partitions fail the step before anything is visible.
    """

    lake: LakeResource
    mode: Literal["overwrite", "error", "ignore"] = Field(
        default="overwrite", description="How outputs are written if their metadata names no lake/mode."
    )
    preview_image: bool = Field(
        default=True, description="Whether lake/preview shows a picture if metadata names no lake/preview_image."
    )

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output to its repository.

        Raises InvalidDefinition, UnsupportedData, PartitionSliceError, OutsideRegion, RegionMismatch, TableNotEmpty,
        TableOwned and IcechunkError.
        """
        if obj is None:
            warn_of_nothing(context)
            return
        subject = f"the output of {producer_name(context)}"
        keys = [str(key) for key in output_partitions(context)]
        settings = self._settings(context)
        check_place(context, type(self), dict(self))
        region = _region(context, settings, keys)
        writer = ArrayWriter(settings, subject, region)
        copies_group = isinstance(obj, zarr.Group) and region is None and settings.mode != "append"
        data: xr.Dataset | zarr.Group = (
            obj if copies_group else to_dataset(obj, subject, settings.path.rpartition("/")[2], settings.dimensions)
        )
        owner = Owner.of_output(context)
        result, workspace = write_with_retries(
            context,
            self.lake,
            keys,
            lambda workspace: _write(workspace, writer, data, owner),
            subject,
            tries=_TRIES,
            pauses=_PAUSES,
        )
        repository: Repository = workspace.after(settings.path, "icechunk")
        session = repository.readonly_session(_BRANCH)
        url = workspace.url(settings.path)
        size = f"{count_of(result.chunks or 0, 'chunk')} ({readable_bytes(result.bytes or 0)})"
        state = f"snapshot {result.snapshot}"
        context.log.info(f"{subject}: {describe_write(size, url, state, workspace.receipt, skipped=result.skipped)}")
        if result.attributes_left_out:
            context.log.warning(
                f"{subject}: the stored arrays keep the attributes of their first write. These differ, and were left "
                f"out: {', '.join(result.attributes_left_out)}. Overwrite all of the arrays to change them"
            )
        metadata = array_metadata(
            result,
            open_dataset(session.store) if isinstance(data, xr.Dataset) else xr.Dataset(),
            session,
            url=url,
            path=settings.path,
            operation=settings.mode,
            receipt=workspace.receipt,
            region=_region_sizes(region, data),
        )
        shows_preview = self.preview_image if settings.preview_image is None else settings.preview_image
        if shows_preview and not result.skipped and isinstance(data, xr.Dataset):
            variable = settings.preview_image if isinstance(settings.preview_image, str) else None
            metadata |= preview_metadata(ArraySlice(session, None, {}, None, region).dataset(subject), variable)
        context.add_output_metadata(metadata)
        # A retry has the same snapshot as the attempt that it repeats, so it does not make downstream assets stale.
        set_data_version(context, result.snapshot)

    def load_input(self, context: InputContext) -> Any:
        """Read an input. For a partitioned asset, read exactly the regions that the run's partitions map to.

        Missing arrays are an error. The exception is a parameter annotated `T | None` if the run needs no partition, or
        if it is the first run of an asset that depends on itself.

        Raises InvalidDefinition, UnsupportedData, PartitionSliceError and IcechunkError.
        """
        request = InputRequest.of(context)
        subject, path, keys = request.subject, request.path, request.keys
        settings = ArrayInputSettings.parse(context.definition_metadata or {}, subject)
        if keys == [] and request.optional:
            return None
        check_input_published(self.lake, context, settings.ref)
        try:
            repository = self.lake.read_repository(path, run_of(context), ref=settings.ref, step=step_of(context))
        except RepositoryNotFound:
            if request.optional and reads_itself(context):
                return None
            raise
        session = _session(repository, settings)
        each = request.type_of_each()
        values = [
            load(
                ArraySlice(session, settings.variables, settings.selection, settings.chunks, region),
                request.annotation if each is None else each,
                subject,
            )
            for region in _input_regions(context, request.metadata, keys, separate=each is not None)
        ]
        parts = "" if keys is None else f", {partitions_of(context.asset_partitions_def).label(keys)}"
        context.log.info(f"{subject} is {path}, snapshot {session.snapshot_id}{parts}")
        return values[0] if each is None else dict(zip(keys or (), values, strict=True))

    def _settings(self, context: OutputContext) -> ArraySettings:
        asset_key = context.asset_key.path if context.has_asset_key else None
        settings = ArraySettings.parse(
            asset_key, context.definition_metadata or {}, producer_name(context), mode=self.mode
        )
        partitions = partitions_of(context.asset_partitions_def) if context.has_asset_partitions else None
        settings = with_partitions(settings, partitions, producer_name(context))
        return replace(settings, path=output_path(context, settings.path))


def _write(
    workspace: Workspace, writer: ArrayWriter, data: xr.Dataset | zarr.Group, owner: Owner | None
) -> ArrayResult:
    """Write arrays, and commit them to the repository with the transaction identifier of the attempt."""
    settings, txn = writer.settings, (workspace.task_id, SINGLE_BATCH)
    if not isinstance(data, zarr.Group):
        writer.check(data)
    path = settings.path
    repository: Repository = workspace.find(path, "icechunk") or workspace.create(path, "icechunk")
    for tries in range(1, _TRIES + 1):
        session = repository.writable_session(_BRANCH)
        earlier = session.recorded(txn)
        if earlier is not None:
            return ArrayResult(str(earlier), skipped=True)
        metadata = claim(repository, owner, settings.ownership, replaces=settings.mode == "overwrite")
        written = writer.copy(session, data) if isinstance(data, zarr.Group) else writer.write(session, data)
        left_out = () if isinstance(data, zarr.Group) else tuple(writer.attributes_left_out(session, data))
        if not written:
            return ArrayResult(session.snapshot_id, chunks=0, bytes=0)
        if not isinstance(data, zarr.Group):
            # What xarray could not open must not be committed.
            open_dataset(session.store)
        chunks, size = count_chunks(session.change_set)
        try:
            commit = session.commit(_message(writer), metadata, rebase_with=ConflictDetector(), txn=txn)
            return ArrayResult(
                str(commit),
                skipped=commit.skipped,
                chunks=None if commit.skipped else chunks,
                bytes=size,
                attributes_left_out=left_out,
            )
        except (ConflictError, RebaseFailedError):
            # Later commits changed the arrays, so they must be written again.
            if tries == _TRIES:
                raise
            _PAUSES.wait(tries)
    raise AssertionError("the loop ends by a return or an error")


def _input_regions(
    context: InputContext, metadata: Mapping[str, Any], keys: Sequence[str] | None, *, separate: bool
) -> list[Region | None]:
    """Return the regions that an input reads.

    Args:
        context: The input.
        metadata: The definition metadata of the upstream asset.
        keys: The partitions to read, or None to read all of an asset without partitions.
        separate: Return a region for each partition.
    """
    if keys is None:
        return [None]
    name = f"asset {context.asset_key.to_user_string()}"
    groups = [[key] for key in keys] if separate else [keys]
    if groups and metadata.get(PARTITION_EXPR) is None:
        raise missing_partition_expr(name, "dimension")
    return [
        region_of_partitions(partitions_of(context.asset_partitions_def), group, metadata[PARTITION_EXPR], name)
        for group in groups
    ]


def _region_sizes(region: Region | None, data: xr.Dataset | zarr.Group) -> dict[str, int] | None:
    """Return the lengths of the written region by dimension, or None if no region was written."""
    if region is None or not isinstance(data, xr.Dataset):
        return None
    return {dimension: data.sizes.get(dimension, 1) for dimension in region.dimensions}


def _message(writer: ArrayWriter) -> str:
    return writer.subject if writer.region is None else writer.region.name


def _session(repository: Repository, settings: ArrayInputSettings) -> Session:
    if settings.snapshot is not None:
        return repository.readonly_session(snapshot_id=settings.snapshot)
    return repository.readonly_session(_BRANCH, as_of=settings.timestamp)


def _region(context: OutputContext, settings: ArraySettings, keys: Sequence[str]) -> Region | None:
    if not context.has_asset_partitions:
        return None
    return region_of_partitions(
        partitions_of(context.asset_partitions_def), keys, settings.partition_expr, producer_name(context)
    )
