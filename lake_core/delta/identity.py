"""Identity columns: whole numbers that the table gives to new rows, each once.

The numbers are taken while rows are written, from the highest one that the table's schema records. The commit records
the new highest one in a metaData action, so of two writers at the same time one must write again. The tasks of a job
that writes in several processes take blocks of numbers in turn, so that none is given twice, and some are not given.
Protocol section: Identity Columns.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import ConstraintViolation, MalformedMetadata, SchemaMismatch, UnsupportedWriterFeature
from lake_core.delta.features import IDENTITY, supported_features
from lake_core.delta.numpy_arrays import integers
from lake_core.delta.schema import PrimitiveType, StructField, StructType, edited_fields, schema_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lake_core.delta.action import Metadata, Protocol
    from lake_core.delta.column_mapping import ColumnMapping
    from lake_core.delta.data_file import AddFile

_START: Final = "delta.identity.start"
_STEP: Final = "delta.identity.step"
_EXPLICIT: Final = "delta.identity.allowExplicitInsert"
HIGH_WATER_MARK: Final = "delta.identity.highWaterMark"
_LIMITS = np.iinfo(np.int64)
MOST_TASKS: Final = 1 << 16
"""The most tasks of a job that give numbers."""
_BLOCK = 1 << 10
"""The consecutive numbers that a task takes at once."""


@dataclass(frozen=True, slots=True)
class IdentityColumn:
    """A column whose numbers the table gives."""

    name: str
    start: int
    step: int
    takes_values: bool
    """Whether rows may have numbers of their own (BY DEFAULT instead of ALWAYS)."""
    mark: int | None
    """The last number given; None if none was."""

    @property
    def next(self) -> int:
        """Return the next number."""
        return self.start if self.mark is None else self.mark + self.step


def identity_columns(metadata: Metadata) -> tuple[IdentityColumn, ...]:
    """Return the identity columns of a schema. Raises MalformedMetadata."""
    return tuple(_identity_column(child) for child in metadata.schema.fields if _START in child.metadata)


def _identity_column(child: StructField) -> IdentityColumn:
    start, step, mark = (child.metadata.get(key) for key in (_START, _STEP, HIGH_WATER_MARK))
    takes_values = child.metadata.get(_EXPLICIT)
    if (
        type(start) is not int
        or type(step) is not int
        or not step
        or not isinstance(takes_values, bool)
        or not (mark is None or type(mark) is int)
        or child.type != PrimitiveType("long")
    ):
        raise MalformedMetadata(
            f"column {child.name!r} is an identity column, but has no whole numbers as its start and step, or no type "
            "for them: it must be a long, with a step that is not 0"
        )
    return IdentityColumn(child.name, start, step, takes_values, mark)


class IdentityValues:
    """Gives the numbers of a write. Its threads share it, processes do not: each of their tasks has its own."""

    def __init__(self, columns: Iterable[IdentityColumn], *, task: int | None = 0, tasks: int = 1) -> None:
        """Begin to give numbers.

        Args:
            columns: The columns.
            task: The number of the task that writes; None where it is not known, so that no number can be given.
            tasks: The most tasks that write.
        """
        self._columns = {column.name: column for column in columns}
        self._taken = dict.fromkeys(self._columns, 0)
        self._task, self._tasks = task, tasks
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_unknown_task, (tuple(self._columns.values()),)

    def of_task(self, task: int) -> IdentityValues:
        """Return what gives the numbers of one task of a job."""
        return IdentityValues(self._columns.values(), task=task if task < MOST_TASKS else None, tasks=MOST_TASKS)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the identity columns."""
        return frozenset(self._columns)

    def filled(self, rows: pa.Table, supplied: Iterable[str]) -> pa.Table:
        """Return new rows in the table's schema with numbers in the identity columns that are not `supplied`.

        Raises ConstraintViolation for numbers in a column that takes none, and where no number is left;
        UnsupportedWriterFeature in a job whose tasks have no numbers.
        """
        folded = {name.lower() for name in supplied}
        for name, column in self._columns.items():
            if name.lower() not in folded:
                place = rows.column_names.index(name)
                rows = rows.set_column(place, rows.schema.field(place), self._numbers(name, rows.num_rows))
            elif not column.takes_values:
                raise ConstraintViolation(
                    f"column {name!r} gets its numbers from the table (GENERATED ALWAYS AS IDENTITY): leave it out of "
                    "the rows"
                )
        return rows

    def _numbers(self, name: str, count: int) -> pa.ChunkedArray:
        if self._task is None:
            raise UnsupportedWriterFeature(
                f"column {name!r} gets its numbers from the table, of which more than {MOST_TASKS} tasks would give "
                "one twice: write from fewer partitions, or give the rows numbers",
                feature=IDENTITY,
            )
        with self._lock:
            first = self._taken[name]
            self._taken[name] = first + count
        column = self._columns[name]
        if count:
            self._check_left(column, first + count - 1)
        places = np.arange(first, first + count, dtype=np.int64)
        return pa.chunked_array([integers(column.next + column.step * self._offset(places))])

    def _offset(self, place: Any) -> Any:
        """Return how many steps after the first number the one is that the task gives at a place, the first being 0."""
        if self._tasks == 1:
            return place
        return (place // _BLOCK * self._tasks + self._task) * _BLOCK + place % _BLOCK

    def _check_left(self, column: IdentityColumn, place: int) -> None:
        if not _LIMITS.min <= column.next + column.step * self._offset(place) <= _LIMITS.max:
            raise ConstraintViolation(
                f"column {column.name!r} has no number left for {place + 1} rows after {column.mark}"
            )

    def recorded(self, metadata: Metadata) -> Metadata:
        """Return metadata whose schema records the last number of each column."""
        taken = {name: count for name, count in self._taken.items() if count}
        marks = {
            name: self._columns[name].next + self._columns[name].step * (count - 1) for name, count in taken.items()
        }
        return _with_marks(metadata, {name: column.mark for name, column in self._columns.items()} | marks)

    def claim(self, files: Sequence[AddFile], supplied: Iterable[str], mapping: ColumnMapping) -> None:
        """Take all numbers up to those that the tasks of a job have given.

        Args:
            files: The files that the tasks have written.
            supplied: The columns that the rows had.
            mapping: The names of columns in the statistics of files.
        """
        folded = {name.lower() for name in supplied}
        lacking = {name: column for name, column in self._columns.items() if name.lower() not in folded}
        # Statistics are long, and most tables have no such column.
        statistics = [json.loads(file.stats or "{}") for file in files if file.rows] if lacking else []
        for name, column in lacking.items() if statistics else ():
            (key,) = mapping.physical_path((name,))
            bounds = [each.get("maxValues" if column.step > 0 else "minValues", {}).get(key) for each in statistics]
            if all(type(bound) is int for bound in bounds):
                last = max(bounds) if column.step > 0 else min(bounds)
                self._taken[name] = (last - column.next) // column.step + 1
            else:  # no task has given more numbers than there are rows
                rows = sum(file.rows for file in files)
                self._taken[name] = (-(-rows // _BLOCK)) * _BLOCK * MOST_TASKS


def with_marks_of_rows(metadata: Metadata, name: str, values: Iterable[pa.ChunkedArray]) -> Metadata:
    """Return metadata by which a column gives no number up to the highest one that rows have (the lowest, downwards).

    Raises SchemaMismatch for a column that gives none.
    """
    column = next((each for each in identity_columns(metadata) if each.name.lower() == name.lower()), None)
    if column is None:
        raise SchemaMismatch(f"column {name!r} is not an identity column: the table gives no numbers to it")
    furthest = pc.max if column.step > 0 else pc.min
    ends = [end for end in (furthest(part).as_py() for part in values) if end is not None]
    if not ends:
        return metadata
    end = max(ends) if column.step > 0 else min(ends)
    steps = (end - column.start) // column.step  # to the last number of the column's own that is not after it
    mark = column.start + steps * column.step
    if steps < 0 or (column.mark is not None and (mark - column.mark) * column.step <= 0):
        return metadata
    return _with_marks(metadata, {column.name: mark})


def with_highest_marks(metadata: Metadata, before: Metadata) -> Metadata:
    """Return a table's new definition with the last number that each column ever gave: none is given twice."""
    if not any(_START in child.metadata for child in metadata.schema.fields):
        return metadata
    earlier = {column.name: column for column in identity_columns(before)}
    marks: dict[str, int | None] = {}
    for column in identity_columns(metadata):
        old = earlier.get(column.name)
        given = [mark for mark in (column.mark, None if old is None else old.mark) if mark is not None]
        marks[column.name] = (max if column.step > 0 else min)(given, default=None)
    return _with_marks(metadata, marks)


def gave_numbers(before: Metadata | None, after: Metadata) -> bool:
    """Return whether identity columns gave numbers between two definitions of a table; None if it did not exist."""
    if before is not None and before.schema_string == after.schema_string:
        return False
    earlier = {} if before is None else {column.name: column.mark for column in identity_columns(before)}
    return any(column.mark != earlier.get(column.name) for column in identity_columns(after))


def _with_marks(metadata: Metadata, marks: Mapping[str, int | None]) -> Metadata:
    fields = tuple(
        replace(child, metadata={**child.metadata, HIGH_WATER_MARK: marks[child.name]})
        if marks.get(child.name) not in (None, child.metadata.get(HIGH_WATER_MARK))
        else child
        for child in metadata.schema.fields
    )
    schema = StructType(fields)
    if schema == metadata.schema:
        return metadata
    return replace(metadata, schema=schema, schema_string=schema_to_json(schema))


def _of_unknown_task(columns: tuple[IdentityColumn, ...]) -> IdentityValues:
    return IdentityValues(columns, task=None)


def identity_values(metadata: Metadata, protocol: Protocol) -> IdentityValues:
    """Return what gives the numbers of a write, if the table's protocol has identity columns."""
    return IdentityValues(identity_columns(metadata) if IDENTITY in supported_features(protocol) else ())


def without_marks(schema: StructType) -> StructType:
    """Return a schema without what the numbers given change in it."""
    return edited_fields(schema, lambda child: replace(child, metadata=_unmarked(child.metadata)))


def _unmarked(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != HIGH_WATER_MARK}
