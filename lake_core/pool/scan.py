"""Scans: the values of a pool as of a commit, in the pool's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from itertools import chain
from typing import Any

import pyarrow as pa

from lake_core.pool.arrow.columns import Column
from lake_core.pool.arrow.fuse import widen_columns
from lake_core.pool.arrow.shapes import Shape
from lake_core.pool.arrow.table import to_table
from lake_core.pool.config import PoolConfig
from lake_core.pool.data_object import DataObject
from lake_core.pool.fused_type import fused_type
from lake_core.pool.key_range import KeyRange
from lake_core.pool.merge import merge, partitions, source_of
from lake_core.pool.object_reader import ObjectReader
from lake_core.pool.seek_index import segments_in_range
from lake_core.pool.sorted_batch import SortedBatch
from lake_core.pool.types import NULL, RecordType, Type, under
from lake_core.pool.value import Value
from lake_core.pool.zson.formatter import format_value
from lake_core.store import ObjectStore


class Scan:
    """The values of a pool as of a commit. `Pool.scan` returns one.

    Each method reads the pool anew, and takes memory for a few frames of each data object whose keys overlap. As an Arrow stream, which is
    what `pyarrow.table`, DuckDB and Polars take, the values have one schema: fields that a record does not have are null, and types that
    have no common one become a union. Values that are null are rows of nulls.

    Attributes:
        objects: The data objects that are read: those that can hold keys of the range.
    """

    def __init__(self, store: ObjectStore, config: PoolConfig, objects: Iterable[DataObject], key_range: KeyRange) -> None:
        self.objects = [each for each in objects if each.count and key_range.overlaps(each.min, each.max)]
        self._store = store
        self._config = config
        self._range = key_range

    def values(self) -> Iterator[Value]:
        """Yield the values. Raises DamagedLake."""
        for batch in self.batches():
            yield from batch.batch.values()

    def batches(self) -> Iterator[SortedBatch]:
        """Yield the values in batches, as they are encoded. Raises DamagedLake."""
        for group in self._groups():
            yield from self._merged(group)

    def records(self) -> Iterator[Any]:
        """Yield the values as Python objects; see `Value.decode`. Raises DamagedLake."""
        for value in self.values():
            yield value.decode()

    def to_zson(self) -> str:
        """Return the values as ZSON, each on a line. Raises DamagedLake."""
        return "".join([f"{format_value(value)}\n" for value in self.values()])

    def shapes(self) -> list[Shape]:
        """Return each distinct type of the values, and how many have it. Raises DamagedLake."""
        counts: dict[Type, int] = {}
        if self._range.is_bounded:
            shapes = chain.from_iterable(batch.batch.shapes() for batch in self.batches())
        else:
            shapes = chain.from_iterable(reader.shapes() for group in self._groups() for reader in group)
        for shape in shapes:
            counts[shape.type] = counts.get(shape.type, 0) + shape.count
        return [Shape(type, count) for type, count in counts.items()]

    @cached_property
    def type(self) -> Type:
        """Return the type that the values are fused into. Reads all of them once. Raises DamagedLake."""
        start: Type = NULL
        return reduce(lambda type, shape: fused_type(type, shape.type, "union"), self.shapes(), start)

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema of the values as an Arrow stream. Reads all of them once. Raises DamagedLake."""
        return to_table(self.type, []).schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the values as an Arrow stream. Raises DamagedLake, also while the stream is read."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_table(self) -> pa.Table:
        """Return the values as an Arrow table. Raises DamagedLake."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the values as a stream of Arrow's C interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _groups(self) -> Iterator[list[ObjectReader]]:
        for group in partitions(self.objects, self._config):
            yield [self._reader(each) for each in group]

    def _reader(self, data_object: DataObject) -> ObjectReader:
        segments = segments_in_range(self._store, self._config.id, data_object, self._range)
        return ObjectReader(self._store, self._config.id, data_object, tuple(segments))

    def _merged(self, group: Sequence[ObjectReader]) -> Iterator[SortedBatch]:
        sources = [source_of(reader, self._config) for reader in group]
        if self._range.is_bounded:
            sources = [replace(source, read=partial(self._range.batches_within, source.read)) for source in sources]
        return merge(sources, self._config)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for group in self._groups():
            if len(group) == 1 and not self._range.is_bounded:
                for columns in group[0].columns():
                    yield from self._widened(columns)
            else:
                for batch in self._merged(group):
                    yield from self._widened(batch.batch.columns())

    def _widened(self, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        record = under(self.type)
        for array in widen_columns(columns, self.type):
            # The fields of a null record are null themselves.
            is_table = isinstance(record, RecordType) and record.fields
            columns_ = [array.field(number) for number in range(array.type.num_fields)] if is_table else [array]
            yield pa.RecordBatch.from_arrays(columns_, schema=self.schema)
