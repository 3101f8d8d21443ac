"""Bounds of the parts of variants, by which files are skipped.

The bounds of a column of variants are two variants themselves: objects with a bound for each path.
Protocol section: Statistics for Variant Columns.
"""

from __future__ import annotations

import datetime as dt
import functools
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.deletion_vector import from_z85
from lake_core.expression import And, Call, Column, Comparison, In, Like, Literal, Not, Or
from lake_core.expression.variants import VARIANT_FUNCTIONS, parse_path
from lake_core.variant_values import InvalidVariant, decoded, split

if TYPE_CHECKING:
    from lake_core.expression import Expression, Predicate

_PART = "\x00"
"""How the last name of a column begins that is a part of a variant. No column has such a name."""
_ESCAPES = {ord("'"): "\\'", ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


def with_part_columns(predicate: Predicate) -> Predicate:
    """Return a predicate in which parts of variants are columns that `part_of` knows, so that its tests are leaves."""
    match predicate:
        case And(operands=operands) | Or(operands=operands):
            return replace(predicate, operands=tuple(map(with_part_columns, operands)))
        case Not(operand=operand):
            return Not(with_part_columns(operand))
        case Comparison(left=left):
            return replace(predicate, left=_as_column(left))
        case In(operand=operand) | Like(operand=operand):
            return replace(predicate, operand=_as_column(operand))
        case _:
            return predicate


def _as_column(expression: Expression) -> Expression:
    match expression:
        case Call(
            function=function, arguments=(Column(path=path), Literal(value=pa.StringScalar() as text), *_), type=kind
        ) if function in VARIANT_FUNCTIONS:
            steps = parse_path(text.as_py())
            if steps and all(isinstance(step, str) for step in steps):
                name = "$" + "".join(f"['{_escaped(str(step))}']" for step in steps)
                return Column((*path, _PART + name), kind)
    return expression


def _escaped(name: str) -> str:
    """Return a name as it stands in a normalized path (RFC 9535)."""
    text = name.translate(_ESCAPES)
    return "".join(each if each >= " " else f"\\u{ord(each):04x}" for each in text)


def part_of(column: Column) -> tuple[tuple[str, ...], str] | None:
    """Return the path of the column of variants, and the normalized path in them; None for any other column."""
    *path, last = column.path
    return (tuple(path), last[1:]) if last.startswith(_PART) else None


def part_bounds(texts: pa.Array, part: str, kind: pa.DataType, *, upper: bool) -> pa.Array:
    """Return the bounds of a part of variants, null where they are not known or say nothing about values of a type.

    Args:
        texts: The bounds of the column of variants, as statistics hold them.
        part: The normalized path.
        kind: The type that the part is taken as.
        upper: Whether these are upper bounds.
    """
    encoded = texts.dictionary_encode()
    bounds = [None if text is None else _bound(text, part, kind) for text in encoded.dictionary.to_pylist()]
    values = pa.array(bounds, pa.float64() if pa.types.is_floating(kind) else kind).cast(kind)
    if upper and pa.types.is_timestamp(kind):
        values = pc.add(values, scalar(dt.timedelta(milliseconds=1)))  # they may be cut to the millisecond
    return values.take(encoded.indices)


def _bound(text: str, part: str, kind: pa.DataType) -> Any:
    parts = _parts(text)
    value = parts.get(part) if isinstance(parts, dict) else None
    if value is None or not _is_of(value, kind):
        return None
    return float(value) if pa.types.is_floating(kind) else value  # Arrow takes neither decimals nor all integers


@functools.lru_cache(maxsize=10_000)
def _parts(text: str) -> Any:
    try:
        # The protocol says that the metadata comes first, and has an example in which the value does.
        return decoded(*split(from_z85(text)))
    except (ValueError, IndexError, OverflowError, InvalidVariant):
        return None  # such bounds say nothing


def _is_of(value: Any, kind: pa.DataType) -> bool:
    """Return whether a bound of values is one of the values as a type, too: whether the cast keeps their order."""
    types = pa.types
    if types.is_integer(kind):
        bits = kind.bit_width - 1
        return type(value) is int and -(1 << bits) <= value < 1 << bits
    if types.is_floating(kind):
        return type(value) in (int, float, Decimal)
    if types.is_timestamp(kind):
        return isinstance(value, dt.datetime) and (value.tzinfo is None) == (kind.tz is None)
    return (types.is_string(kind) and type(value) is str) or (types.is_date(kind) and type(value) is dt.date)
