"""Opens arrays in the driver with Zarr and xarray, so that values and coordinates are decoded as xarray does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xarray as xr
import zarr

from lake_core.errors import LakeError
from lake_core.icechunk import DatasetRepository, IcechunkStore, Repository, Session
from lake_core.spark.arrays.cell_types import arrow_type, to_arrow
from lake_core.spark.arrays.cf_encoding import CFEncoding, missing_values
from lake_core.spark.arrays.chunk_codec import ChunkCodec, chunk_codec, unsupported
from lake_core.spark.arrays.coordinates import Coordinates
from lake_core.spark.arrays.stored_array import StoredArray
from lake_core.spark.errors import InvalidCoordinates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.icechunk.manifest import Extents
    from lake_core.icechunk.snapshot import ArrayNode


@dataclass(frozen=True, slots=True)
class ArrayVariable:
    """An array that rows are read from or written to."""

    node: ArrayNode
    name: str
    """The last part of its path."""
    dimensions: tuple[str, ...]
    fill_value: Any
    """The value of cells in chunks that were never written."""
    codec: ChunkCodec
    encoding: CFEncoding
    type: pa.DataType
    """The type of its values as a column."""

    @property
    def path(self) -> str:
        """Return the path of the array in its repository."""
        return self.node.path

    def stored(self, session: Session, extents: Extents | None = None) -> StoredArray:
        """Return the array as executors need it: with all of its chunks, or only those in a box of its grid."""
        references = session.references(self.node, extents)
        session.virtual_chunks.open_buckets(references.locations())
        return StoredArray(
            path=self.path,
            shape=self.node.shape,
            chunk_shape=self.node.chunk_shape,
            dtype=self.encoding.stored,
            fill_value=self.fill_value,
            codec=self.codec,
            references=references,
            store=session.assets.store.data_root,
            virtual_chunks=session.virtual_chunks,
        )


class ArrayGroup:
    """A group of arrays in a session. The arrays share their coordinates."""

    def __init__(self, session: Session, path: str) -> None:
        """Open a group by its path without a slash at its ends. The root is "".

        Raises UnsupportedArray if xarray cannot open the group.
        """
        self.path = path
        self._session = session
        self._store = IcechunkStore(session, read_only=True)
        try:
            # Spans of time stay numbers.
            options: dict[str, Any] = {"consolidated": False, "chunks": None, "decode_timedelta": False}
            self._dataset: xr.Dataset = xr.open_zarr(self._store, group=path or None, **options)
        except LakeError:
            raise
        except (KeyError, ValueError, TypeError, OverflowError, AssertionError) as error:
            reason = str(error)[:300] or type(error).__name__
            raise unsupported(f"/{path}", f"xarray cannot open its group: {reason}") from None

    def variable(self, name: str) -> ArrayVariable:
        """Return an array of the group. Raises NodeNotFound, UnsupportedArray."""
        path = "/" + f"{self.path}/{name}".strip("/")
        node = self._session.array(path)
        dimensions = node.dimension_names
        if not node.shape:
            raise unsupported(path, "it has no dimensions, so it is a single value. Read it with Zarr or xarray")
        if not dimensions or any(dimension is None for dimension in dimensions):
            raise unsupported(path, "its dimensions have no names. Create it with dimension_names, as xarray does")
        if len(set(dimensions)) < len(dimensions) or name in dimensions:
            raise unsupported(
                path,
                "a coordinate or a repeated dimension would give two columns the same name. Choose another array",
            )
        if node.chunk_runs is not None:
            raise unsupported(path, "its chunks have different shapes (a rectilinear grid). Read it with Zarr")
        array = zarr.open_array(self._store, path=path.strip("/"), mode="r")
        stored = array.dtype
        encoding = self._encoding(path, name, stored)
        type_ = arrow_type(encoding.decoded)
        if type_ is None or encoding.decoded.kind == "M":
            raise unsupported(
                path, f"its values are {encoding.decoded}, but rows can hold only numbers, booleans and texts"
            )
        codec = chunk_codec(node.user_data, stored, node.chunk_shape)
        return ArrayVariable(node, name, tuple(map(str, dimensions)), array.fill_value, codec, encoding, type_)

    def _encoding(self, path: str, name: str, stored: np.dtype[Any]) -> CFEncoding:
        variable = self._dataset.variables[name]
        settings = variable.encoding
        if "_Unsigned" in settings:
            raise unsupported(path, "it has the attribute _Unsigned. Store it with an unsigned type")
        try:
            factor, offset = (
                None if settings.get(attribute) is None else float(settings[attribute])
                for attribute in ("scale_factor", "add_offset")
            )
            missing = missing_values(settings, stored) if stored.kind in "iuf" else ()
        except (ValueError, TypeError, OverflowError) as error:
            names = "scale_factor, add_offset, _FillValue and missing_value"
            raise unsupported(
                path, f"{error}. Check that its attributes {names} are numbers, and that the last two fit its cells"
            ) from None
        return CFEncoding(path, stored, np.dtype(variable.dtype), missing, factor, offset)

    def coordinates(self, variable: ArrayVariable) -> tuple[Coordinates, ...]:
        """Return the coordinates along each dimension of an array. Raises InvalidCoordinates."""
        shape = zip(variable.dimensions, variable.node.shape, strict=True)
        return tuple(Coordinates(dimension, self._values(dimension, length)) for dimension, length in shape)

    def coordinate_variables(self, dimensions: Sequence[str]) -> dict[str, xr.Variable]:
        """Return the coordinates that the group has along these dimensions, without their encoding.

        A dimension without coordinates is left out: it counts 0, 1, ….
        """
        variables = {name: self._dataset[name].variable for name in dimensions if name in self._dataset.sizes}
        return {
            name: variable.to_base_variable().drop_encoding()
            for name, variable in variables.items()
            if variable.dims == (name,)
        }

    def _values(self, dimension: str, length: int) -> pa.Array:
        if dimension not in self._dataset.variables:
            return pa.array(np.arange(length, dtype=np.int64))
        values: npt.NDArray[Any] = self._dataset.variables[dimension].values
        try:
            return to_arrow(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InvalidCoordinates(
                f"the coordinates along {dimension!r} cannot be a column of Spark: {str(error)[:200]}. Supported "
                "are numbers below 2**63, texts, and times of the standard calendar in whole microseconds"
            ) from None


def session_of(source: Repository | Session) -> Session:
    """Return the session to read arrays from. For a repository outside of a lake, that is the head of branch main."""
    if isinstance(source, Session):
        return source
    return source.session if isinstance(source, DatasetRepository) else source.readonly_session("main")


def split_path(path: str) -> tuple[str, str]:
    """Return the group and the name of an array."""
    group, _, name = path.strip("/").rpartition("/")
    return group, name


def common_group(paths: Sequence[str]) -> str:
    """Return the group that all arrays are in. Raises UnsupportedArray if they are in different groups."""
    groups = sorted({split_path(path)[0] for path in paths})
    if len(groups) > 1:
        raise unsupported(
            paths[-1],
            "the arrays of one read must be in one group, but these are in "
            f"{', '.join(f'/{group}' for group in groups)}",
        )
    return groups[0]
