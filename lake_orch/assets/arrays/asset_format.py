"""Arrays: datasets of xarray, groups of Zarr and arrays of numpy or dask become Icechunk repositories, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr
import zarr

from lake_core.backoff import Backoff
from lake_core.icechunk import ConflictError, Repository, Session
from lake_core.icechunk.conflict_detector import ConflictDetector
from lake_core.icechunk.errors import RebaseFailedError, RepositoryNotFound
from lake_core.readable import count_of, readable_bytes
from lake_core.workspace import Workspace
from lake_orch.assets.arrays.data import ArraySlice, is_array, is_type_of_arrays, load, open_dataset, to_dataset
from lake_orch.assets.arrays.metadata import READING_CODE, ArrayResult, array_metadata, count_chunks, preview_metadata
from lake_orch.assets.arrays.owner import claim
from lake_orch.assets.arrays.partitioning import with_partitions
from lake_orch.assets.arrays.region import Region, region_of_partitions
from lake_orch.assets.arrays.settings import NAMES, ArrayInputSettings, ArraySettings
from lake_orch.assets.arrays.writer import ArrayWriter
from lake_orch.assets.asset_format import (
    SINGLE_BATCH,
    AssetFormat,
    AssetInput,
    AssetOutput,
    AssetRead,
    AssetWrite,
    ReadingStep,
    Written,
)
from lake_orch.assets.report import describe_write
from lake_orch.definition_metadata import PARTITION_EXPR, missing_partition_expr

if TYPE_CHECKING:
    from lake_core.errors import LakeError

_BRANCH = "main"
_TRIES = 200
_PAUSES = Backoff(first=1.0, longest=1.0, factor=0.8, shortest_share=0.0)
"""The pauses between attempts get shorter. If many partitions append to one array, earlier losers go first."""


@dataclass(frozen=True, slots=True)
class ArrayFormat(AssetFormat):
    """Arrays in Icechunk repositories."""

    format = "icechunk"
    kind = "icechunk"
    names = NAMES
    takes_partitions = True
    reading_code = READING_CODE

    mode: Literal["overwrite", "error", "ignore"] = "overwrite"
    preview_image: bool = True
    spec_version: int = 1
    """The version of the Icechunk specification that new repositories follow."""

    def accepts(self, value: object) -> bool:
        """Return whether a value is an array, or several."""
        return is_array(value)

    def loads(self, annotation: object) -> bool:
        """Return whether a type is one of arrays."""
        return is_type_of_arrays(annotation)

    def write(self, value: Any, output: AssetOutput) -> ArrayWrite:
        """Prepare the write of arrays. A whole group of Zarr is copied as it is."""
        settings = ArraySettings.parse(output.asset_key, output.metadata, output.producer, mode=self.mode)
        output.check_mode(settings.mode)
        settings = with_partitions(settings, output.partitions, output.producer)
        settings = replace(settings, path=output.located(settings.path))
        region = None
        if output.partitions is not None:
            region = region_of_partitions(output.partitions, output.keys, settings.partition_expr, output.producer)
        copies_group = isinstance(value, zarr.Group) and region is None and settings.mode != "append"
        name = settings.path.rpartition("/")[2]
        data = value if copies_group else to_dataset(value, output.subject, name, settings.dimensions)
        shown = self.preview_image if settings.preview_image is None else settings.preview_image
        return ArrayWrite(output, ArrayWriter(settings, output.subject, region), data, shown, self.spec_version)

    def read(self, request: AssetInput) -> ArrayRead:
        """Prepare the read of arrays."""
        return ArrayRead(request, ArrayInputSettings.parse(request.settings, request.subject))


@dataclass(frozen=True, slots=True)
class ArrayWrite(AssetWrite[ArrayResult]):
    """The write of an output to its repository."""

    tries = _TRIES
    pauses = _PAUSES

    output: AssetOutput
    writer: ArrayWriter
    data: xr.Dataset | zarr.Group
    shown: bool | str
    """Whether a picture is shown, or the variable that it shows."""
    spec_version: int = 1
    """The version of the Icechunk specification that a new repository follows."""

    def to(self, workspace: Workspace) -> ArrayResult:
        """Write the arrays, and commit them with the transaction identifier of the attempt."""
        writer, data, txn = self.writer, self.data, (workspace.task_id, SINGLE_BATCH)
        settings, path = writer.settings, writer.settings.path
        if not isinstance(data, zarr.Group):
            writer.check(data)
        repository: Repository = workspace.find(path, "icechunk") or workspace.create(
            path, "icechunk", spec_version=self.spec_version
        )
        for tries in range(1, _TRIES + 1):
            session = repository.writable_session(_BRANCH)
            earlier = session.recorded(txn)
            if earlier is not None:
                return ArrayResult(str(earlier), skipped=True)
            replaces = settings.mode == "overwrite"
            metadata = claim(repository, self.output.owner, settings.ownership, replaces=replaces)
            written = writer.copy(session, data) if isinstance(data, zarr.Group) else writer.write(session, data)
            left_out = () if isinstance(data, zarr.Group) else tuple(writer.attributes_left_out(session, data))
            if not written:
                return ArrayResult(session.snapshot_id, chunks=0, bytes=0)
            if not isinstance(data, zarr.Group):
                # What xarray could not open must not be committed.
                open_dataset(session.store)
            chunks, size = count_chunks(session.change_set)
            message = writer.subject if writer.region is None else writer.region.name
            try:
                commit = session.commit(message, metadata, rebase_with=ConflictDetector(), txn=txn)
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

    def written(self, result: ArrayResult, workspace: Workspace) -> Written:
        """Describe the write, and the arrays after it."""
        settings, region, data = self.writer.settings, self.writer.region, self.data
        repository: Repository = workspace.after(settings.path, "icechunk")
        session, url = repository.readonly_session(_BRANCH), workspace.url(settings.path)
        size = f"{count_of(result.chunks or 0, 'chunk')} ({readable_bytes(result.bytes or 0)})"
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
        if self.shown and not result.skipped and isinstance(data, xr.Dataset):
            variable = self.shown if isinstance(self.shown, str) else None
            shown = ArraySlice(session, None, {}, None, region).dataset(self.output.subject)
            metadata |= preview_metadata(shown, variable)
        left_out = ", ".join(result.attributes_left_out)
        return Written(
            describe_write(size, url, f"snapshot {result.snapshot}", workspace.receipt, skipped=result.skipped),
            metadata,
            # A retry has the same snapshot as the attempt that it repeats, so downstream assets do not become stale.
            result.snapshot,
            [
                "the stored arrays keep the attributes of their first write. These differ, and were left "
                f"out: {left_out}. Overwrite all of the arrays to change them"
            ]
            if left_out
            else [],
        )


class ArrayRead(AssetRead):
    """The read of an input from a repository."""

    def __init__(self, request: AssetInput, settings: ArrayInputSettings) -> None:
        self._request, self._settings = request, settings
        self._session: Session | None = None

    def absent(self, message: str) -> LakeError:
        """Return RepositoryNotFound."""
        return RepositoryNotFound(message)

    def start(self, dataset: Repository | None, step: ReadingStep | None) -> str:
        """Open the snapshot to read. All of the repository counts as read."""
        assert dataset is not None
        dataset.assets.store.note_scan()
        settings = self._settings
        if settings.snapshot is not None:
            self._session = dataset.readonly_session(snapshot_id=settings.snapshot)
        else:
            self._session = dataset.readonly_session(_BRANCH, as_of=settings.timestamp)
        return f"snapshot {self._session.snapshot_id}"

    def load(self, dataset: Repository | None, keys: Sequence[str] | None, annotation: object) -> Any:
        """Return the region of some partitions."""
        request, settings, region = self._request, self._settings, None
        if keys is not None:
            if request.metadata.get(PARTITION_EXPR) is None:
                raise missing_partition_expr(f"asset {request.producer}", "dimension")
            partition_expr = request.metadata[PARTITION_EXPR]
            region = region_of_partitions(request.of_partitions(), keys, partition_expr, f"asset {request.producer}")
        assert self._session is not None, "start comes first"
        part = ArraySlice(self._session, settings.variables, settings.selection, settings.chunks, region)
        return load(part, annotation, request.subject)


def _region_sizes(region: Region | None, data: xr.Dataset | zarr.Group) -> dict[str, int] | None:
    """Return the lengths of the written region by dimension, or None if no region was written."""
    if region is None or not isinstance(data, xr.Dataset):
        return None
    return {dimension: data.sizes.get(dimension, 1) for dimension in region.dimensions}
