"""The keys of many values, in a form that numpy and Arrow compare as pools do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.pool import types
from lake_core.pool.arrow.arrays import Mask, integers, numbers_of, true
from lake_core.pool.arrow.bodies import Bodies, Positions, positions_by_number, split_records
from lake_core.pool.arrow.column_reader import read_column
from lake_core.pool.order import pool_key
from lake_core.pool.types import FLOATS, SIGNED, UNSIGNED, ErrorType, PrimitiveType, Type, UnionType, fields_of, under
from lake_core.pool.value_batch import ValueBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.pool.value import Value

Keys: TypeAlias = "npt.NDArray[np.int64] | pa.Array"

_FAMILIES: dict[Type, Type] = {
    **dict.fromkeys([*UNSIGNED, *SIGNED], types.INT64),
    **dict.fromkeys(FLOATS, types.FLOAT64),
    **{type: type for type in (types.BOOL, types.STRING, types.BYTES)},
}
"""The types whose keys compare as columns, and the family of each. Keys of one family compare with one another."""
_TEXTS = (types.STRING, types.BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """The keys of a batch of values.

    Attributes:
        family: The family of the keys' types; null if all keys are null.
        keys: Numbers that sort as the keys do, or strings and bytes as a binary array. Meaningless for null.
        valid: Which keys are not null.
        sizes: How many bytes each key has, without its tag.
    """

    family: Type
    keys: Keys
    valid: Mask
    sizes: Positions

    @classmethod
    def of(cls, batch: ValueBatch, path: Sequence[str]) -> KeyColumn | None:
        """Return the keys of a batch at a path of field names.

        None where they have to be compared by `compare_values`. Raises InvalidZng.

        That is needed for keys of other types than numbers, bool, string and bytes, for integers among floats or above
        those of int64, and for fields of unions.
        """
        bodies = batch.bodies
        starts, sizes = np.zeros(len(batch), np.int64), np.full(len(batch), -1, np.int64)
        numbers = np.zeros(len(batch), np.int64)
        family: Type = types.NULL
        for code, rows in positions_by_number(batch.codes):
            located = _located(batch.types[code], bodies if len(rows) == len(batch) else bodies.select(rows), path)
            if located is None:
                return None
            type, keys = located
            if not keys.valid().any():
                continue
            if _FAMILIES.get(type) is None or family not in (types.NULL, _FAMILIES[type]):
                return None
            family = _FAMILIES[type]
            starts[rows], sizes[rows] = keys.starts, keys.sizes
            if family not in _TEXTS:
                ordered = _ordered_numbers(type, keys)
                if ordered is None:
                    return None
                numbers[rows] = ordered
        values: Keys = Bodies(bodies.data, starts, sizes).binary() if family in _TEXTS else numbers
        return cls(family, values, sizes >= 0, np.maximum(sizes, 0))

    @classmethod
    def of_key(cls, key: Value) -> KeyColumn | None:
        """Return a single key as a column; None where it has to be compared by `compare_values`."""
        return cls.of(ValueBatch.of_values([key]), ())

    @classmethod
    def concat(cls, columns: Sequence[KeyColumn | None]) -> KeyColumn | None:
        """Return the keys of several batches, concatenated; None where they do not compare with one another."""
        if len(columns) == 1:
            return columns[0]
        known = [column for column in columns if column is not None]
        families = {column.family for column in known} - {types.NULL}
        if len(known) < len(columns) or len(families) > 1:
            return None
        family = families.pop() if families else types.NULL
        parts: list[Any] = [column.keys if column.family == family else _nulls(family, len(column)) for column in known]
        keys: Keys = pa.concat_arrays(parts) if family in _TEXTS else np.concatenate(parts)
        return cls(
            family,
            keys,
            np.concatenate([column.valid for column in known]),
            np.concatenate([column.sizes for column in known]),
        )

    def __len__(self) -> int:
        return len(self.valid)

    def below(self, bound: KeyColumn) -> Mask:
        """Return which keys are smaller than a single one of the same family. Meaningless for null."""
        if isinstance(self.keys, np.ndarray):
            below: Mask = self.keys < bound.keys[0]
        else:
            below = true(pc.less(self.keys, bound.keys[0]))
        return below

    def take(self, rows: Positions) -> KeyColumn:
        """Return the keys at positions."""
        keys = self.keys[rows] if isinstance(self.keys, np.ndarray) else self.keys.take(integers(rows))
        return KeyColumn(self.family, keys, self.valid[rows], self.sizes[rows])

    def slice(self, start: int, stop: int) -> KeyColumn:
        """Return the keys from a position to another. Nothing is copied."""
        keys = self.keys[start:stop] if isinstance(self.keys, np.ndarray) else self.keys.slice(start, stop - start)
        return KeyColumn(self.family, keys, self.valid[start:stop], self.sizes[start:stop])


def key_sizes(batch: ValueBatch, path: Sequence[str]) -> Positions:
    """Return how many bytes the key of each value has, decoding value by value. Raises InvalidZng."""
    return np.array([len(pool_key(value, path).body or b"") for value in batch.values()], np.int64)


def _located(type: Type, bodies: Bodies, path: Sequence[str]) -> tuple[Type, Bodies] | None:
    """Return the type and the bodies of the keys of values of one type; None where unions or errors are on the path."""
    for name in path:
        type = under(type)
        if isinstance(type, UnionType):
            return None
        fields = fields_of(type)
        position = next((position for position, each in enumerate(fields) if each.name == name), None)
        if position is None:
            return types.NULL, Bodies(bodies.data, bodies.starts, np.full(len(bodies), -1, np.int64))
        type = fields[position].type
        bodies = split_records(bodies, position + 1, exact=False)[position]
    type = under(type)
    return None if isinstance(type, ErrorType | UnionType) else (type, bodies)


def _ordered_numbers(type: Type, bodies: Bodies) -> npt.NDArray[np.int64] | None:
    """Return numbers that sort as the keys do; None for integers above those of int64."""
    array = read_column(type, bodies)
    if type == types.BOOL:
        flags: npt.NDArray[np.int64] = true(array).astype(np.int64)
        return flags
    if not isinstance(type, PrimitiveType):
        return None
    if type in FLOATS:
        return _ordered_floats(numbers_of(array, f"<f{FLOATS[type]}").astype(np.float64))
    if type in SIGNED:
        return numbers_of(array, f"<i{SIGNED[type] // 8}").astype(np.int64)
    unsigned = numbers_of(array, f"<u{UNSIGNED[type] // 8}").astype(np.uint64)
    return None if len(unsigned) and int(unsigned.max()) >> 63 else unsigned.astype(np.int64)


def _ordered_floats(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return integers that sort as floats do: NaN comes first, and both zeros are equal."""
    bits = (numbers + 0.0).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
    return np.where(np.isnan(numbers), np.iinfo(np.int64).min, ordered)


def _nulls(family: Type, count: int) -> Keys:
    return pa.nulls(count, pa.binary()) if family in _TEXTS else np.zeros(count, np.int64)
