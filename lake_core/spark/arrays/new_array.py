"""Arrays that a write creates.

The array, its coordinates and its groups are created in a repository in memory. The session gets them at the end,
together with the chunks. So a write that fails leaves the session unchanged.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xarray as xr
import zarr
from pyspark.sql import functions as F
from xarray.coding.strings import create_vlen_dtype

from lake_core.errors import LakeError
from lake_core.expression import quote_identifier
from lake_core.icechunk import Repository, Session
from lake_core.icechunk.chunk_file import write_chunk
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, parent_path
from lake_core.icechunk.xarray import to_icechunk
from lake_core.icechunk.xarray.new_arrays import default_chunks
from lake_core.readable import count_of
from lake_core.spark.arrays.array_variable import ArrayGroup, ArrayVariable, split_path
from lake_core.spark.errors import ArrayChanged, InvalidArraySpec, InvalidColumns, InvalidCoordinates
from lake_core.spark.executor import our_errors
from lake_core.spark.write import arrow_schema
from lake_core.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lake_core.icechunk.manifest import InlineChunk, NativeChunk
    from lake_core.icechunk.snapshot import Node
    from lake_core.spark.arrays.array_spec import ArraySpec

_TEXT: np.dtype[Any] = create_vlen_dtype(str)


@dataclass(frozen=True, slots=True)
class NewArray:
    """An array that was created in memory, in a group with its coordinates."""

    group: ArrayGroup
    variable: ArrayVariable
    layout: Session
    """The session of the repository in memory that has the array."""
    before: Mapping[str, Node | None]
    """The nodes that the session had when the array was laid out: the groups above, the coordinates and the array.

    The keys are their paths. The value of a path without a node is None.
    """
    missing: tuple[str, ...]
    """The paths of the nodes that the session lacks, groups first."""

    def create(self, session: Session) -> None:
        """Create the array in a session, with the coordinates and groups that the session lacks.

        Raises ArrayChanged if the nodes of the session changed since the array was laid out.
        """
        session.check_writable()
        if any(session.node(path) != node for path, node in self.before.items()):
            raise ArrayChanged(
                f"{self.variable.path} or its coordinates were created or changed in the session while Spark wrote "
                "chunks: write them again"
            )
        # Objects are written first, because that can fail. Then the session is unchanged.
        chunks = [(path, *chunk) for path in self.missing for chunk in self._copied_chunks(path, session)]
        for path in self.missing:
            node = self.layout.node(path)
            assert node is not None
            session.set_metadata(path, node.user_data)
        for path, index, chunk in chunks:
            session.set_reference(path, index, chunk)

    def _copied_chunks(
        self, path: str, session: Session
    ) -> Iterator[tuple[tuple[int, ...], InlineChunk | NativeChunk]]:
        """Write the chunks of an array to a session's store. Yield their indexes and references."""
        node = self.layout.node(path)
        if not isinstance(node, ArrayNode):
            return
        for index in map(tuple, self.layout.chunk_indexes(node).tolist()):
            reference = self.layout.reference(node, index)
            assert reference is not None
            data = self.layout.fetch(reference)
            yield index, write_chunk(session.assets.store, data, session.config.inline_threshold)


def lay_out(df: DataFrame, session: Session, path: str, columns: Sequence[str], spec: ArraySpec) -> NewArray:
    """Lay out an array that a session lacks.

    Args:
        df: The rows of the array.
        session: The session.
        path: The absolute path of the array.
        columns: The column of each dimension, in their order, and the column of the values.
        spec: The layout.

    Raises:
        InvalidArraySpec: Such an array cannot be created.
        InvalidColumns: A column has a type that coordinates or cells cannot have.
        InvalidCoordinates: The coordinates of a dimension differ from those that its group has.
        SparkJobFailed: The job that collects coordinates failed.
    """
    group, name = split_path(path)
    *dimensions, value = columns
    _check_dimensions(path, dimensions)
    types = arrow_schema(df.select(*map(quote_identifier, columns)))
    coordinate_paths = [_joined(group, dimension) for dimension in dimensions]
    before = {node_path: session.node(node_path) for node_path in (*_groups_above(path), *coordinate_paths, path)}
    _check_nodes(path, before)
    dtype = _dtype(types.field(value))
    existing = _existing_coordinates(session, group, dimensions, before)
    coordinates = existing | check_coordinates(path, spec, dimensions, existing)
    coordinates |= _collected_coordinates(df, types, path, [name for name in dimensions if name not in coordinates])
    shape = tuple(coordinates[dimension].size for dimension in dimensions)
    layout = Repository.create(MemoryStore()).writable_session("main")
    options: dict[str, Any] = {"group": group or None, "consolidated": False}
    with _refusing(path):
        to_icechunk(xr.Dataset(coords=coordinates), layout, group=group)
        encoding = _encoding(path, dtype, shape, spec.encoding)
        # The array is created without cells and then resized, because xarray would write all cells.
        empty = xr.Dataset({name: (dimensions, np.empty((0,) * len(shape), dtype), dict(spec.attributes))})
        empty.to_zarr(layout.store, mode="a", encoding={name: encoding}, **options)
        zarr.open_array(layout.store, path=path.strip("/")).resize(shape)
    # The group may use a dimension without coordinates. Do not create coordinates for it.
    kept = {_joined(group, dimension) for dimension in existing}
    missing = tuple(node_path for node_path, node in before.items() if node is None and node_path not in kept)
    arrays = ArrayGroup(layout, group)
    return NewArray(arrays, arrays.variable(name), layout, before, missing)


def check_coordinates(
    path: str, spec: ArraySpec, dimensions: Sequence[str], existing: Mapping[str, xr.Variable]
) -> dict[str, xr.Variable]:
    """Return the coordinates of a spec.

    Raises:
        InvalidArraySpec: They are not coordinates along the dimensions.
        InvalidCoordinates: The group has other coordinates along one of them.
    """
    with _refusing(path):
        passed = xr.Dataset(coords=dict(spec.coordinates)).variables
    for dimension in spec.coordinates:
        if dimension not in dimensions or passed[dimension].dims != (dimension,):
            raise InvalidArraySpec(
                f"ArraySpec(coordinates=…) has {dimension!r}, but the dimensions of {path} are "
                f"{', '.join(dimensions)}: pass a list of coordinates for some of them"
            )
        if dimension in existing and not np.array_equal(existing[dimension].values, passed[dimension].values):
            raise InvalidCoordinates(
                f"the group of {path} has other coordinates along {dimension!r} than ArraySpec(coordinates=…): leave "
                "them out to use those of the group"
            )
    # Zarr specifies how texts of variable length are stored, but not those of a fixed length.
    return {
        dimension: variable.astype(object) if variable.dtype.kind == "U" else variable
        for dimension in spec.coordinates
        for variable in (passed[dimension].to_base_variable(),)
    }


def _joined(group: str, name: str) -> str:
    return f"/{group}/{name}" if group else f"/{name}"


def _groups_above(path: str) -> list[str]:
    """Return the paths of the groups that hold a node, the root first."""
    groups = []
    while path != "/":
        path = parent_path(path)
        groups.append(path)
    return groups[::-1]


def _check_dimensions(path: str, dimensions: Sequence[str]) -> None:
    if not dimensions or len({*dimensions, split_path(path)[1]}) <= len(dimensions):
        raise InvalidArraySpec(
            f"{path} cannot have the dimensions {list(dimensions)}: name at least one, do not repeat one, and do not "
            "use the name of the array"
        )


def _check_nodes(path: str, before: Mapping[str, Node | None]) -> None:
    """Raise InvalidArraySpec if a node exists at the path, or an array above it."""
    if before[path] is not None:
        raise InvalidArraySpec(f"{path} is a group: choose another path for the array")
    for above in _groups_above(path):
        if isinstance(before[above], ArrayNode):
            raise InvalidArraySpec(f"{path} would lie inside the array {above}: choose another path")


def _existing_coordinates(
    session: Session, group: str, dimensions: Sequence[str], before: Mapping[str, Node | None]
) -> dict[str, xr.Variable]:
    """Return the coordinates that the group in the session has along these dimensions. Raises InvalidArraySpec."""
    has_group = isinstance(before[f"/{group}"], GroupNode)
    existing = ArrayGroup(session, group).coordinate_variables(dimensions) if has_group else {}
    for dimension in dimensions:
        node_path = _joined(group, dimension)
        if before[node_path] is not None and dimension not in existing:
            raise InvalidArraySpec(
                f"{node_path} exists, but does not hold coordinates along a dimension of that name: "
                "rename the dimension"
            )
    return existing


def _collected_coordinates(
    df: DataFrame, types: pa.Schema, path: str, dimensions: Sequence[str]
) -> dict[str, xr.Variable]:
    """Return the sorted distinct values of the columns of these dimensions. Raises InvalidColumns, InvalidArraySpec."""
    if not dimensions:
        return {}
    for dimension in dimensions:
        _check_coordinate_type(types.field(dimension))
    sets = [F.collect_set(quote_identifier(dimension)).alias(f"c{at}") for at, dimension in enumerate(dimensions)]
    with our_errors():
        sets_of_values = df.agg(*sets).toArrow().combine_chunks()
    collected = {}
    for column, dimension in zip(sets_of_values.columns, dimensions, strict=True):
        values = _sorted_values(column.chunk(0).values)
        if not values.size:
            raise InvalidArraySpec(
                f"{path} cannot be created, because the DataFrame has no coordinates along {dimension!r}: pass them in "
                "ArraySpec(coordinates=…)"
            )
        collected[dimension] = xr.Variable((dimension,), values)
    return collected


def _check_coordinate_type(column: pa.Field) -> None:
    type_ = column.type
    if not (
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_string(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_date(type_)
    ):
        raise InvalidColumns(
            f"the column {column.name!r} has the type {type_}, but coordinates can be numbers, texts, booleans, dates "
            "and times: cast it"
        )


def _sorted_values(values: pa.Array) -> npt.NDArray[Any]:
    """Return values as xarray takes them, sorted. Rows with NaN have no cell."""
    if pa.types.is_string(values.type):
        return np.array(sorted(values.to_pylist()), object)
    numbers: npt.NDArray[Any] = np.unique(values.to_numpy(zero_copy_only=False))
    if numbers.dtype.kind == "M":
        return numbers.astype("datetime64[us]")
    return numbers[~np.isnan(numbers)] if numbers.dtype.kind == "f" else numbers


def _dtype(column: pa.Field) -> np.dtype[Any]:
    """Return the type of values as cells. Raises InvalidColumns."""
    if pa.types.is_string(column.type):
        return _TEXT
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        dtype: np.dtype[Any] = np.dtype(column.type.to_pandas_dtype())
        return dtype
    raise InvalidColumns(
        f"the column {column.name!r} has the type {column.type}, but cells can be numbers, texts and booleans: cast it"
    )


def _encoding(path: str, dtype: np.dtype[Any], shape: tuple[int, ...], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with chunks and a fill value, as xarray takes them. Raises InvalidArraySpec."""
    encoding = dict(settings)
    stored = np.dtype(encoding.get("dtype") or dtype)
    if encoding.get("_FillValue") is not None:
        encoding.setdefault("fill_value", encoding["_FillValue"])
    if encoding.get("fill_value") is None and stored.kind != "f":
        raise InvalidArraySpec(
            f"cells of {path} without a row need a value, because they are not floats and cannot be NaN: pass a "
            "_FillValue, which marks a missing value, or a fill_value in ArraySpec(encoding=…)"
        )
    chunks = encoding.get("chunks")
    if chunks is None:
        encoding["chunks"] = default_chunks(shape, str if dtype == _TEXT else stored)
    elif not isinstance(chunks, int) and len(chunks) != len(shape):
        raise InvalidArraySpec(
            f"the chunks of {path} have {count_of(len(chunks), 'dimension')}, and the array {len(shape)}: give both "
            "the same number"
        )
    return encoding


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Turn the errors of xarray and Zarr into InvalidArraySpec."""
    try:
        yield
    except (InvalidArraySpec, InvalidCoordinates):
        raise
    except (LakeError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError, AssertionError) as error:
        reason = str(error)[:300] or type(error).__name__
        raise InvalidArraySpec(f"{path} cannot be created: {reason}") from None
