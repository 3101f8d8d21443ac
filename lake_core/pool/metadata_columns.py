"""Many records of metadata at once, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake_core.pool.arrow.bodies import Bodies, split_records
from lake_core.pool.arrow.column_reader import read_column
from lake_core.pool.errors import InvalidZng
from lake_core.pool.ksuid import KSUID, SIZE, format_ksuids
from lake_core.pool.metadata import INTEGERS, name_of_type
from lake_core.pool.types import TIME, RecordType, Type, under
from lake_core.pool.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class RecordColumns:
    """Records of metadata of one type; see `Record`.

    Each method returns a field of all records. It raises InvalidZng for a field that is missing, or of another type
    than it reads.

    Attributes:
        type: Their type.
        bodies: The records.
    """

    type: Type
    bodies: Bodies

    @cached_property
    def _fields(self) -> Mapping[str, tuple[Type, Bodies]]:
        """Return the types and the bodies of the fields by their names; none if a value is null or not a record."""
        record = under(self.type)
        if not isinstance(record, RecordType) or self.bodies.has_nulls():
            return {}
        columns = split_records(self.bodies, len(record.fields), exact=True)
        return {each.name: (each.type, column) for each, column in zip(record.fields, columns, strict=True)}

    def _field(self, name: str) -> tuple[Type, Bodies]:
        field = self._fields.get(name)
        if field is None:
            raise InvalidZng(
                f"a record of the type {name_of_type(self.type) or 'without a name'!r} has no field {name!r}"
            )
        return field

    def records(self, name: str) -> RecordColumns:
        """Return a field that is a record."""
        return RecordColumns(*self._field(name))

    def values(self, name: str) -> list[Value]:
        """Return a field of any type."""
        type, bodies = self._field(name)
        return list(map(Value, repeat(type), bodies.binary().to_pylist()))

    def integers(self, name: str) -> list[int]:
        """Return a field that is an integer."""
        type, bodies = self._field(name)
        self._check(name, under(type) in INTEGERS, bodies)
        array = read_column(type, bodies)
        integers: list[int] = (array.cast(pa.int64()) if under(type) == TIME else array).to_pylist()
        return integers

    def ksuids(self, name: str) -> list[str]:
        """Return a field that is an id."""
        type, bodies = self._field(name)
        self._check(name, under(type) == KSUID.inner, bodies)
        if bool((bodies.sizes != SIZE).any()):
            raise InvalidZng(f"an id is not {SIZE} bytes long")
        return format_ksuids(bodies.data[bodies.starts[:, np.newaxis] + np.arange(SIZE)])

    def _check(self, name: str, is_expected: bool, bodies: Bodies) -> None:
        if not is_expected or bodies.has_nulls():
            raise InvalidZng(f"the field {name!r} is null or has an unexpected type")
