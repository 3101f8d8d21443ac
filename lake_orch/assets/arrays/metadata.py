"""Output metadata of a write of arrays: Dagster's metadata keys where they exist, else keys `lake/…`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from lake_core.icechunk import Session
from lake_core.icechunk.change_set import ChangeSet
from lake_core.workspace import STAGED, Receipt
from lake_orch.assets.arrays.image import picture
from lake_orch.assets.arrays.settings import SNAPSHOT
from lake_orch.assets.description import Column, ColumnSchema, Markdown
from lake_orch.assets.report import read_with
from lake_orch.assets.tables.preview import PREVIEW
from lake_orch.location import table_name
from lake_pipes.metadata import PATH, SKIPPED, receipt_metadata

READING_CODE = "xarray.open_zarr(lake.at('{commit}').icechunk('{path}').readonly_session('main').store)"
"""Python code that reads a dataset as of a commit."""


@dataclass(frozen=True, slots=True)
class ArrayResult:
    """The result of one write."""

    snapshot: str
    """The id of the snapshot that contains the write."""
    skipped: bool = False
    """True if an earlier attempt committed the write."""
    chunks: int | None = None
    """The number of written chunks, or None if an earlier attempt wrote them."""
    bytes: int | None = None
    """The stored size of these chunks."""
    attributes_left_out: tuple[str, ...] = ()
    """The attributes of variables that were not written, because the arrays have others."""


def count_chunks(changes: ChangeSet) -> tuple[int, int]:
    """Return how many chunks a session has written, and their bytes."""
    single = [chunk for chunks in changes.chunks.values() for chunk in chunks.values() if chunk is not None]
    several = [part for parts in changes.columns.values() for part in parts]
    count = len(single) + sum(len(part) for part in several)
    return count, sum(chunk.length for chunk in single) + sum(int(part.length.sum()) for part in several)


def array_metadata(
    result: ArrayResult,
    dataset: xr.Dataset,
    session: Session,
    *,
    url: str,
    path: str,
    operation: str,
    receipt: Receipt | None = None,
    region: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Describe a write, and the arrays after it, as output metadata.

    Args:
        result: The write.
        dataset: The arrays after it.
        session: The snapshot that holds them.
        url: The URL of the repository's folder.
        path: The path of the repository below the root.
        operation: The mode of the write.
        receipt: The receipt of a write to a lake.
        region: The lengths of the region that was written, by dimension.
    """
    staged = receipt is not None and receipt.state == STAGED
    first = next((array for array in dataset.data_vars.values() if array.ndim), None)
    values = {
        "lake/chunks_written": result.chunks,
        "lake/bytes_written": result.bytes,
        "lake/region": None if region is None else _sizes(region),
        "lake/dims": _sizes(dataset.sizes),
        "lake/shape": None if first is None else str(first.shape),
        "lake/chunks": None if first is None else str(first.encoding.get("chunks")),
        "lake/dtype": None if first is None else str(first.dtype),
        "lake/uncompressed_bytes": int(dataset.nbytes),
        "lake/operation": operation,
    }
    return {
        **(receipt_metadata(receipt) if receipt is not None else {}),
        **({} if staged else {SNAPSHOT: session.snapshot_id}),
        **read_with(None if receipt is None else receipt.commit, path, READING_CODE),
        **({SKIPPED: True} if result.skipped else {}),
        **{name: value for name, value in values.items() if value is not None},
        "dagster/column_schema": variable_schema(dataset),
        "dagster/table_name": table_name(path),
        "dagster/uri": url,
        PATH: path,
    }


def variable_schema(dataset: xr.Dataset) -> ColumnSchema:
    """Describe variables as the columns of a schema: type with dimensions, `long_name`, chunks, units."""
    return ColumnSchema(
        [
            Column(
                name=str(name),
                type=f"{_type(variable)}[{', '.join(map(str, variable.dims))}]",
                description=_text(variable.attrs.get("long_name")),
                other=_notes(variable, is_coordinate=name in dataset.coords),
            )
            for name, variable in (*dataset.data_vars.items(), *dataset.coords.items())
        ]
    )


def preview_metadata(dataset: xr.Dataset, variable: str | None = None) -> dict[str, Any]:
    """Return metadata with a picture of a variable, by default the first. Return {} if no variable can be drawn."""
    try:
        image = picture(dataset, variable)
        return {} if image is None else {PREVIEW: Markdown(f"{image[0]}\n\n{image[1]}")}
    except Exception as error:
        # The arrays are committed, so a failed preview must not fail the step.
        return {PREVIEW: f"these arrays cannot be shown: {error}"[:300]}


def _type(variable: xr.DataArray) -> str:
    return "string" if variable.dtype == object else str(variable.dtype)


def _notes(variable: xr.DataArray, *, is_coordinate: bool) -> list[str]:
    notes = ["coordinate"] if is_coordinate else []
    for name in ("chunks", "shards"):
        if variable.encoding.get(name) and variable.ndim:
            notes.append(f"{name} {'×'.join(map(str, variable.encoding[name]))}")
    units = variable.attrs.get("units")
    return [*notes, f"units {units}"] if units is not None else notes


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _sizes(sizes: Mapping[Any, int]) -> str:
    return ", ".join(f"{dimension}: {length}" for dimension, length in sizes.items())
