"""Reads the values of data objects, one by one or as columns."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from lake_core.errors import NotFound
from lake_core.pool.arrow.columns import Column, read_column_groups
from lake_core.pool.arrow.shapes import Shape, shapes
from lake_core.pool.data_object import DataObject, data_key
from lake_core.pool.errors import DamagedLake, InvalidZng
from lake_core.pool.seek_index import Segment, whole_segment
from lake_core.pool.value_batch import ValueBatch, read_batches
from lake_core.store.object_file import ObjectFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from lake_core.pool.arrow.bodies import Positions
    from lake_core.pool.arrow.outline import Outlines
    from lake_core.store import ObjectStore

_BUFFER: Final = 512 << 10
"""How many bytes are read at once: about the size of a frame, as many objects may be merged."""


@dataclass(frozen=True, slots=True)
class ObjectReader:
    """A reader of segments of a data object.

    Each method raises DamagedLake if the file is missing, cut short or not ZNG.

    Attributes:
        store: The store of the lake.
        pool_id: The id of the pool.
        object: The data object.
        segments: The segments to read.
        outlines: What `shapes` learns for `columns`, if both are to be called.
    """

    store: ObjectStore
    pool_id: str
    object: DataObject
    segments: tuple[Segment, ...]
    outlines: Outlines | None = None

    @classmethod
    def whole(cls, store: ObjectStore, pool_id: str, data_object: DataObject) -> ObjectReader:
        """Return a reader of all of a data object."""
        return cls(store, pool_id, data_object, (whole_segment(data_object),))

    @property
    def key(self) -> str:
        """Return the key of the object's file."""
        return data_key(self.pool_id, self.object.id)

    def batches(self) -> Iterator[ValueBatch]:
        """Yield the values of one frame at a time."""
        for segment in self.segments:
            count = 0
            with self._open(segment) as file:
                for batch in read_batches(file):
                    count += len(batch)
                    yield batch
                self._check_count(segment, count)

    def columns(self, names: Collection[str] | None = None) -> Iterator[list[Column]]:
        """Yield the values of a few frames at a time, as columns that together hold consecutive rows.

        With names, only the fields of these names are read, and InvalidValue is raised if values are not records.
        """
        for segment in self.segments:
            with self._open(segment) as file:
                count = 0
                frames = () if self.outlines is None else self.outlines.frames(self._stream(segment))
                for columns in read_column_groups(file, names, frames):
                    count += sum(len(column.rows) for column in columns)
                    yield columns
                self._check_count(segment, count)

    def shapes(self) -> Iterator[Shape]:
        """Yield the types of the values, and how many have each."""
        for segment in self.segments:
            with self._open(segment) as file:
                segment_shapes = shapes(file, self._visit(segment))
                self._check_count(segment, sum(shape.count for shape in segment_shapes))
            yield from segment_shapes

    def _visit(self, segment: Segment) -> Callable[[Positions, int], None] | None:
        """Return what keeps the outline of a segment that is about to be read."""
        if self.outlines is None:
            return None
        self.outlines.forget(self._stream(segment))
        return partial(self.outlines.add, self._stream(segment))

    def _stream(self, segment: Segment) -> tuple[str, int]:
        return self.object.id, segment.offset

    @contextmanager
    def _open(self, segment: Segment) -> Iterator[BinaryIO]:
        raw = ObjectFile(self.store, self.key, segment.offset + segment.length)
        raw.seek(segment.offset)
        try:
            yield cast("BinaryIO", BufferedReader(raw, min(_BUFFER, max(segment.length, 1))))
        except NotFound:
            raise DamagedLake(
                f"{self.key} is missing: it was lost, or vacuumed since its commit; "
                "restore it from a backup or read a later commit",
                self.key,
            ) from None
        except InvalidZng as error:
            raise DamagedLake(f"{self.key} is damaged: {error}; restore it from a backup", self.key) from None

    def _check_count(self, segment: Segment, count: int) -> None:
        if count != segment.count:
            raise InvalidZng(f"it contains {count} values instead of {segment.count}")
