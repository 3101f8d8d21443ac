"""Scans: the values of a pool as of a commit, in the pool's order."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.pool.arrow.columns import gathered
from lake_core.pool.arrow.fuse import widen_columns
from lake_core.pool.arrow.outline import Outlines
from lake_core.pool.arrow.shapes import Shape
from lake_core.pool.arrow.table import to_table
from lake_core.pool.errors import InvalidValue
from lake_core.pool.field_names import field_names
from lake_core.pool.filter import Filter, implied_range
from lake_core.pool.fused_type import fused_types
from lake_core.pool.key_range import KeyRange
from lake_core.pool.merge import merge, partitions, source_of
from lake_core.pool.object_reader import ObjectReader
from lake_core.pool.projection import projected_type, selected_type, selected_value
from lake_core.pool.seek_index import segments_in_range
from lake_core.pool.types import NULL, Field, RecordType, Type, fields_of, under, unique_types
from lake_core.pool.zson.formatter import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lake_core.pool.arrow.columns import Column
    from lake_core.pool.config import PoolConfig
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.sorted_batch import SortedBatch
    from lake_core.pool.value import Value
    from lake_core.store import ObjectStore


class Scan:
    """The values of a pool as of a commit. `Pool.scan` returns one.

    Each method reads the pool anew, and takes memory for a few frames of each data object whose keys overlap. As an
    Arrow stream, which is what `pyarrow.table`, DuckDB and Polars take, the values have one schema: fields that a
    record does not have are null, and types without a common type become a union. Values that are null are rows of
    nulls. The schema is that of all values in the range of keys, including those that the filter excludes. If the range
    has no values, the requested columns have the type null.

    Attributes:
        objects: The data objects that are read: those that can hold keys of the range.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: PoolConfig,
        objects: Iterable[DataObject],
        key_range: KeyRange,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        if columns is not None and (isinstance(columns, str) or not columns):
            raise InvalidValue(f"{columns!r} is not a list of columns; name at least one, as in ['ts', 'level']")
        filled = [each for each in objects if each.count]
        if where is not None:
            key_types = {key.type for each in filled for key in (each.min, each.max) if key.body is not None}
            key_range = key_range.intersection(implied_range(where, config.keys[0], unique_types(key_types)))
        self.objects = [each for each in filled if key_range.overlaps(each.min, each.max)]
        self._all_objects = filled
        self._store = store
        self._config = config
        self._range = key_range
        self._where = where
        self._names = None if columns is None else list(dict.fromkeys(columns))
        # Kept here, because a functools.cached_property of Python 3.11 has one lock for all scans of a process.
        self._type: Type | None = None
        self._types: list[Type] | None = None
        self._fused_type: Type | None = None
        self._bound_filter: Filter | None = None
        self._outlines = Outlines()

    def values(self) -> Iterator[Value]:
        """Yield the values.

        Raises:
            DamagedLake: A data object is missing or cannot be read.
            InvalidExpression: The filter is not a predicate over the fields of the values.
            InvalidValue: There is no such column. Or the scan has a filter or columns, and a value is not a record.
        """
        for batch in self.batches():
            for value in batch.batch.values():
                yield value if self._names is None else selected_value(value, self._names)

    def batches(self) -> Iterator[SortedBatch]:
        """Yield the values in batches, as they are encoded, with all fields. Raises as `values` does."""
        self._check_names()
        for batch in self._in_range():
            yield batch if self._filter is None else batch.filter(self._filter.mask(batch.batch))

    def records(self) -> Iterator[Any]:
        """Yield the values as Python objects; see `Value.decode`. Raises as `values` does."""
        for value in self.values():
            yield value.decode()

    def to_zson(self) -> str:
        """Return the values as ZSON, each on a line. Raises as `values` does."""
        return "".join([f"{format_value(value)}\n" for value in self.values()])

    def shapes(self) -> list[Shape]:
        """Return each distinct type of the values, and how many have it.

        Only a filter decodes values. Raises as `values` does.
        """
        self._check_names()
        if self._filter is None:
            return _counted(self._shapes(), self._names)
        return _counted((shape for batch in self.batches() for shape in batch.batch.shapes()), self._names)

    def as_type(self, type: Type) -> Scan:
        """Return a scan of the same values whose Arrow stream has the fused type, or one that it widens to.

        The type has all fields, so the scan must not select columns.
        """
        other = copy(self)
        other._type = type
        return other

    @property
    def type(self) -> Type:
        """Return the type that the values are fused into. Reads all of them once. Raises as `values` does."""
        if self._type is None:
            self._check_names()
            self._type = self._whole_type if self._names is None else self._selected_type(self._names)
        return self._type

    @property
    def types(self) -> list[Type]:
        """Return the types of the values in the range, without the filter. Reads all of them once."""
        if self._types is None:
            self._types = [shape.type for shape in self._shapes()]
        return self._types

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the values as an Arrow stream. Reads all of them once. Raises as `values` does."""
        return to_table(self.type, []).schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the values as an Arrow stream. Raises as `values` does, also while the stream is read."""
        return pa.RecordBatchReader.from_batches(self.schema, self._record_batches(self._columns()))

    def to_table(self) -> pa.Table:
        """Return the values as an Arrow table.

        Reads the values once if all of them have the same type, else twice. Raises as `values` does.
        """
        groups: Iterable[list[Column]] = self._columns()
        if self._where is None and self._names is None:
            groups = list(groups)
            distinct = {column.type for columns in groups for column in columns}
            if len(distinct) == 1:
                self._fused_type = distinct.pop()
        return pa.Table.from_batches(self._record_batches(groups), self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the values as a stream of Arrow's C interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @property
    def _whole_type(self) -> Type:
        """Return the type that the values in the range are fused into, with all fields."""
        if self._fused_type is None:
            self._fused_type = fused_types(self.types, "union")
        return self._fused_type

    def _all_types(self) -> list[Type]:
        """Return the types of all values of the pool."""
        if not self._range.is_bounded and len(self.objects) == len(self._all_objects):
            return self.types
        return Scan(self._store, self._config, self._all_objects, KeyRange()).types

    def _selected_type(self, names: Sequence[str]) -> Type:
        """Return the type that the values in the range are fused into, with some of the fields.

        A field that none of the values has is null.
        """
        known = [] if under(self._whole_type) == NULL else fields_of(self._whole_type)
        fields = {each.name: each for each in known}
        return RecordType(tuple(fields.get(name, Field(name, NULL)) for name in names))

    @property
    def _filter(self) -> Filter | None:
        if self._bound_filter is None and self._where is not None and under(self._whole_type) != NULL:
            self._bound_filter = Filter(self._where, self.types, self._all_types)
        return self._bound_filter

    def _check_names(self) -> None:
        """Raise InvalidValue for columns that no value of the pool has."""
        if self._names is None or under(self._whole_type) == NULL:
            return
        projected_type(self._whole_type, self._names)
        in_range = {each.name for each in fields_of(self._whole_type)}
        if in_range.issuperset(self._names):
            return
        known = field_names(self._all_types())
        if unknown := [name for name in self._names if name not in known]:
            raise InvalidValue(
                f"the pool {self._config.name!r} does not have the columns {unknown}; "
                f"its columns are {', '.join(known)}"
            )

    def _shapes(self) -> list[Shape]:
        """Return the types of the values in the range, and how many have each."""
        if self._range.is_bounded:
            return _counted(shape for batch in self._in_range() for shape in batch.batch.shapes())
        return _counted(shape for group in self._groups() for reader in group for shape in reader.shapes())

    def _groups(self) -> Iterator[list[ObjectReader]]:
        for group in partitions(self.objects, self._config):
            # Objects that are merged are not read as columns.
            yield [self._reader(each, self._outlines if len(group) == 1 else None) for each in group]

    def _reader(self, data_object: DataObject, outlines: Outlines | None) -> ObjectReader:
        segments = segments_in_range(self._store, self._config.id, data_object, self._range)
        return ObjectReader(self._store, self._config.id, data_object, tuple(segments), outlines)

    def _in_range(self) -> Iterator[SortedBatch]:
        """Yield the values in the range in batches."""
        for group in self._groups():
            yield from self._merged(group)

    def _merged(self, group: Sequence[ObjectReader]) -> Iterator[SortedBatch]:
        sources = [source_of(reader, self._config) for reader in group]
        if self._range.is_bounded:
            sources = [replace(source, read=partial(self._range.batches_within, source.read)) for source in sources]
        return merge(sources, self._config)

    @property
    def _read_names(self) -> list[str] | None:
        """Return the names of the fields that are read from records; None for all."""
        if self._names is None or under(self._whole_type) == NULL:
            return None
        return [*self._names, *([] if self._filter is None else self._filter.names)]

    def _columns(self) -> Iterator[list[Column]]:
        """Yield the values in the range as columns, a few frames at a time."""
        names = self._read_names
        for group in self._groups():
            if len(group) == 1 and not self._range.is_bounded:
                yield from group[0].columns(names)
            else:
                for batch in self._merged(group):
                    yield batch.batch.columns(names)

    def _record_batches(self, groups: Iterable[Sequence[Column]]) -> Iterator[pa.RecordBatch]:
        """Yield columns as batches of the schema, without the rows that the filter excludes."""
        names = self._read_names
        schema, where = self.schema, self._filter
        type = self.type if names is None else self._selected_type(list(dict.fromkeys(names)))
        matching = groups if where is None else ([where.matching(column) for column in columns] for columns in groups)
        for columns in gathered(matching):
            for rows in widen_columns(columns, type):
                # The fields of a null record are null themselves.
                arrays = [rows.field(each.name) for each in schema] if fields_of(type) else [rows]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _counted(shapes: Iterable[Shape], names: Sequence[str] | None = None) -> list[Shape]:
    """Return shapes with each type once. With names, the types have only those fields."""
    counts: dict[Type, int] = {}
    for shape in shapes:
        type = shape.type if names is None else selected_type(shape.type, names)
        counts[type] = counts.get(type, 0) + shape.count
    return [Shape(type, count) for type, count in counts.items()]
