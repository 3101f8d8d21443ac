"""Filters: predicates in Spark SQL over the fields of values, and the ranges of keys that they imply."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.expression import And, Column, Comparison, Literal, Predicate, columns, parse_predicate
from lake_core.expression.evaluate import Rows, evaluate_batch
from lake_core.expression.parse import parse_known
from lake_core.pool import types
from lake_core.pool.arrow.arrays import true
from lake_core.pool.arrow.arrow_type import arrow_type
from lake_core.pool.arrow.fuse import widen_columns
from lake_core.pool.fused_type import fused_types
from lake_core.pool.key_range import KeyRange
from lake_core.pool.projection import projected_type
from lake_core.pool.types import Type, UnionType, fields_of, under
from lake_core.pool.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lake_core.pool.arrow.arrays import Mask
    from lake_core.pool.value_batch import ValueBatch

_SQL_TYPES: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.dictionary(pa.int32(), pa.string()): pa.string(),
}
"""The Arrow types that Spark SQL does not have, and the types that their columns are cast to."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A predicate over the fields of records.

    Attributes:
        predicate: The predicate.
        type: A record type of the fields that it needs.
    """

    predicate: Predicate
    type: Type

    @classmethod
    def of(cls, text: str, type: Type) -> Filter:
        """Return a predicate in Spark SQL over the fields of a record type.

        Raises:
            InvalidExpression: The text is not a predicate over these fields.
            InvalidValue: The type is not a record.
        """
        record = projected_type(type, [each.name for each in fields_of(type)])
        predicate = parse_predicate(text, _schema(record))
        return cls(predicate, projected_type(record, {column.path[0] for column in columns(predicate)}))

    @property
    def names(self) -> list[str]:
        """Return the names of the fields that the predicate needs."""
        return [each.name for each in fields_of(self.type)]

    def mask(self, batch: ValueBatch) -> Mask:
        """Return for which values of a batch the predicate is true. Raises EvaluationFailed, InvalidZng."""
        masks = [self.mask_of_records(array) for array in widen_columns(batch.columns(self.names), self.type)]
        return np.concatenate(masks) if masks else np.zeros(0, np.bool_)

    def mask_of_records(self, records: pa.Array) -> Mask:
        """Return for which records of an array the predicate is true.

        They may have more fields than it needs. Raises EvaluationFailed.
        """
        fields = {name: _for_sql(pc.struct_field(records, name)) for name in self.names} if self.names else {}
        return true(evaluate_batch(self.predicate, Rows(len(records), fields)))


def implied_range(text: str, path: Sequence[str], key_types: Iterable[Type]) -> KeyRange:
    """Return a range that holds the keys of all records for which a predicate is true.

    Args:
        text: The predicate, in Spark SQL.
        path: The path of field names to the key.
        key_types: The types that keys have. Keys of several types imply no range.

    Raises:
        InvalidExpression: The text is not SQL.
    """
    type = fused_types(map(under, key_types), "union")
    for name in reversed(path):
        if isinstance(type, UnionType):
            return KeyRange()
        type = types.record(**{name: type})
    key_range = KeyRange()
    for predicate in _conjuncts(parse_known(text, _schema(type))):
        match predicate:
            case Comparison(operator=operator, left=Column(path=left), right=Literal(value=value)) if left == tuple(
                path
            ):
                bound = _bound(value)
                if bound is not None:
                    key_range = key_range.intersection(
                        _range(operator, bound, is_float=pa.types.is_floating(predicate.left.type))
                    )
    return key_range


def _schema(type: Type) -> pa.Schema:
    return pa.schema([pa.field(each.name, _sql_type(arrow_type(each.type))) for each in fields_of(type)])


def _sql_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(each.name, _sql_type(each.type)) for each in arrow])
    return _SQL_TYPES.get(arrow, arrow)


def _for_sql(array: pa.Array) -> pa.Array:
    expected = _sql_type(array.type)
    return array if array.type == expected else array.cast(expected)


def _conjuncts(predicates: Iterable[Predicate]) -> Iterator[Predicate]:
    for predicate in predicates:
        if isinstance(predicate, And):
            yield from _conjuncts(predicate.operands)
        else:
            yield predicate


def _bound(scalar: pa.Scalar) -> Value | None:
    """Return a literal as a key; None where it implies nothing."""
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(scalar.type):
        return Value.of(types.TIME, scalar.cast(pa.timestamp("ns", "UTC")).value)
    value = scalar.as_py()
    if pa.types.is_decimal(scalar.type) and value == int(value):
        value = int(value)
    match value:
        case bool():
            return None
        case int() if -(1 << 63) <= value < (1 << 64) - 1:
            return Value.of(types.INT64 if value < 1 << 63 else types.UINT64, value)
        case float() if math.isfinite(value):
            return Value.of(types.FLOAT64, value)
        case str():
            return Value.of(types.STRING, value)
    return None


def _range(operator: str, bound: Value, *, is_float: bool) -> KeyRange:
    """Return the keys for which a comparison with a bound is true."""
    # In Spark, NaN is larger than all other floats; in a pool it is smaller.
    start = None if is_float and operator in (">", ">=") else bound
    match operator:
        case "=":
            return KeyRange(bound, _next(bound))
        case "<":
            return KeyRange(None, bound)
        case "<=":
            return KeyRange(None, _next(bound))
        case ">" | ">=":
            return KeyRange(start, None)
    return KeyRange()


def _next(key: Value) -> Value | None:
    """Return a key that is larger, with no others of its type in between."""
    value = key.decode()
    if key.type == types.STRING:
        return Value(types.STRING, (key.body or b"") + b"\0")
    if key.type == types.FLOAT64:
        return Value.of(types.FLOAT64, math.nextafter(value, math.inf))
    if key.type == types.TIME:
        return Value.of(types.TIME, value + 1) if value + 1 < 1 << 63 else None
    return Value.of(types.INT64 if value + 1 < 1 << 63 else types.UINT64, value + 1)
