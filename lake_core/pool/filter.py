"""Filters: predicates in Spark SQL over the fields of values, and the ranges of keys that they imply."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice, product
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lake_core.expression import And, Column, Comparison, Literal, Predicate
from lake_core.expression.evaluate import Rows, evaluate_batch
from lake_core.expression.mixed import BoundPredicate, MixedPredicate, is_clock, refusal
from lake_core.expression.name import unknown_column
from lake_core.expression.parse import parse_known
from lake_core.pool import types
from lake_core.pool.arrow.arrays import booleans, true
from lake_core.pool.arrow.arrow_type import arrow_type
from lake_core.pool.arrow.field_parts import grouped, parts_of
from lake_core.pool.field_names import field_names, field_types, find_field
from lake_core.pool.fused_type import fused_types
from lake_core.pool.key_range import KeyRange
from lake_core.pool.projection import projected_type
from lake_core.pool.types import Type, UnionType, fields_of, under
from lake_core.pool.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lake_core.pool.arrow.arrays import Mask
    from lake_core.pool.arrow.columns import Column as PoolColumn
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
_MAX_COMBINATIONS: Final = 1000
"""How many combinations of types below unions the predicate is checked for, of each type of records."""


class Filter:
    """A predicate over the fields of records.

    It is evaluated for the records of each type by themselves, and of each type that a field has below a union. So what
    it is for a record depends on no other records.
    """

    def __init__(self, text: str, types: Iterable[Type], all_types: Callable[[], Iterable[Type]]) -> None:
        """Make a predicate in Spark SQL over the fields of records.

        Args:
            text: The predicate.
            types: The types of the records that are filtered.
            all_types: Returns the types of all records of the pool. It is called if the others do not have a field by
                exactly the name that is written, or a part of the predicate fits none of them.

        Raises:
            InvalidExpression: The text is not a predicate over these fields.
            InvalidValue: A type is not a record.
        """
        types = list(types)
        for each in types:
            projected_type(each, ())
        self._predicate = MixedPredicate(text)
        self._bound: dict[tuple[pa.DataType, ...], BoundPredicate] = {}
        self._paths = self._resolved(types, all_types)
        if refusal(self._bindings(types)) is not None and (error := refusal(self._bindings(all_types()))) is not None:
            raise error

    @property
    def names(self) -> list[str]:
        """Return the names of the fields of records that the predicate needs."""
        return list(dict.fromkeys(path[0] for path in self._paths.values()))

    def mask(self, batch: ValueBatch) -> Mask:
        """Return for which values of a batch the predicate is true. Raises EvaluationFailed, InvalidZng."""
        mask = np.zeros(len(batch), np.bool_)
        for column in batch.columns(self.names):
            mask[column.rows] = self.mask_of_column(column)
        return mask

    def matching(self, column: PoolColumn) -> PoolColumn:
        """Return the records of a column for which the predicate is true.

        They may have more fields than it needs. Raises EvaluationFailed.
        """
        mask = self.mask_of_column(column)
        return replace(column, values=column.values.filter(booleans(mask)), rows=column.rows[mask])

    def mask_of_column(self, column: PoolColumn) -> Mask:
        """Return for which records of a column the predicate is true. Raises EvaluationFailed."""
        count = len(column.values)
        mask = np.zeros(count, np.bool_)
        parts = [list(parts_of(column.values, column.type, path)) for path in self._paths.values()]
        for rows, fields in grouped(count, parts):
            of_group = count if rows is None else len(rows)
            values = [pa.nulls(of_group) if field is None else _for_sql(field) for field in fields]
            columns = dict(zip(map(_sql_name, self._paths.values()), values, strict=True))
            predicate = self._binding(tuple(each.type for each in values)).predicate
            mask[slice(None) if rows is None else rows] = true(evaluate_batch(predicate, Rows(of_group, columns)))
        return mask

    def _resolved(
        self, types: Sequence[Type], all_types: Callable[[], Iterable[Type]]
    ) -> dict[tuple[str, ...], tuple[str, ...]]:
        """Return the path to each field by its names as they are written."""
        written = self._predicate.names
        known = field_names(types)
        if any(find_field(known, names) != names for names in written):
            # The field may be in other records alone, and decides which field the names mean.
            known = field_names(all_types())
        paths = {names: find_field(known, names) for names in written}
        for names, path in paths.items():
            if path is None and not is_clock(names):
                raise unknown_column(self._predicate.text, names, list(known))
        return {names: path for names, path in paths.items() if path is not None}

    def _bindings(self, types: Iterable[Type]) -> list[BoundPredicate]:
        """Return the predicate as it is bound to each combination of types that its fields have."""
        combinations: dict[tuple[pa.DataType, ...], None] = {}
        for type in types:
            of_fields = [
                [_sql_type(arrow_type(each)) for each in field_types(type, path)] for path in self._paths.values()
            ]
            combinations.update(dict.fromkeys(islice(product(*of_fields), _MAX_COMBINATIONS)))
        return [self._binding(each) for each in combinations]

    def _binding(self, kinds: tuple[pa.DataType, ...]) -> BoundPredicate:
        """Return the predicate as it is bound to fields of certain types."""
        bound = self._bound.get(kinds)
        if bound is None:
            columns = {
                names: Column((_sql_name(path),), kind)
                for (names, path), kind in zip(self._paths.items(), kinds, strict=True)
            }
            bound = self._bound[kinds] = self._predicate.bind(columns)
        return bound


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
    return pa.schema([pa.field(each.name, _nested_sql_type(arrow_type(each.type))) for each in fields_of(type)])


def _nested_sql_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(each.name, _nested_sql_type(each.type)) for each in arrow])
    return _sql_type(arrow)


def _sql_type(arrow: pa.DataType) -> pa.DataType:
    return _SQL_TYPES.get(arrow, arrow)


def _for_sql(array: pa.Array) -> pa.Array:
    expected = _sql_type(array.type)
    return array if array.type == expected else array.cast(expected)


def _sql_name(path: Sequence[str]) -> str:
    """Return the path to a field as Spark SQL writes it. No two paths have the same one."""
    return ".".join(name if name.isidentifier() else "`" + name.replace("`", "``") + "`" for name in path)


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
            return KeyRange(_rounded(bound, min), _next(_rounded(bound, max)))
        case "<":
            return KeyRange(None, bound)
        case "<=":
            return KeyRange(None, _next(_rounded(bound, max)))
        case ">" | ">=":
            return KeyRange(None if start is None else _rounded(start, min), None)
    return KeyRange()


def _rounded(bound: Value, choose: Callable[[int, int], int]) -> Value:
    """Return an integer, or the float that it is rounded to if that is chosen. Return other keys unchanged.

    Keys between integers can be floats, which are compared with the rounded number.
    """
    value = bound.decode()
    if not isinstance(value, int) or bound.type not in (types.INT64, types.UINT64):
        return bound
    chosen = choose(value, int(float(value)))
    if chosen == value or not -(1 << 63) <= chosen < (1 << 64) - 1:
        return bound
    return Value.of(types.INT64 if chosen < 1 << 63 else types.UINT64, chosen)


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
