"""Names and values as Spark SQL text."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa

from lake_core.expression.tree import And, Column, Comparison, In, IsNull, Like, Literal, Not, Or, Predicate, is_leaf


def quote_identifier(name: str) -> str:
    """Quote a column name with backticks, as Spark SQL requires."""
    return f"`{name.replace('`', '``')}`"


def quote_text(text: str) -> str:
    """Quote a string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SUFFIXES = {pa.int8(): "Y", pa.int16(): "S", pa.int32(): "", pa.int64(): "L"}


def literal(value: pa.Scalar) -> str:
    """Write a value as a literal of its own type that means the same under all settings. Timestamps have their zone.

    Text is not supported. The meaning of a backslash depends on a setting, and Spark replaces `${…}` before it parses.
    """
    plain = value.as_py()
    if isinstance(plain, bool):
        return "TRUE" if plain else "FALSE"
    if isinstance(plain, dt.datetime):
        if plain.tzinfo is None:
            return f"TIMESTAMP_NTZ '{plain.isoformat(sep=' ')}'"
        return f"TIMESTAMP '{plain.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=' ')}Z'"
    if isinstance(plain, dt.date):
        return f"DATE '{plain.isoformat()}'"
    if isinstance(plain, bytes):
        return f"X'{plain.hex()}'"
    if isinstance(plain, float):
        return f"{plain!r}D"
    if isinstance(plain, int):
        return f"{plain}{_SUFFIXES.get(value.type, 'BD')}"
    if isinstance(plain, decimal.Decimal):
        return f"CAST('{plain:f}' AS DECIMAL({value.type.precision}, {value.type.scale}))"
    raise TypeError(f"no literal for {value.type}")


def predicate_sql(predicate: Predicate) -> str | None:
    """Write a predicate as text that `parse_predicate` reads with the same meaning.

    Return None if one of its parts is not a leaf.
    """
    match predicate:
        case Not(operand):
            inner = predicate_sql(operand)
            return None if inner is None else f"NOT ({inner})"
        case And(operands) | Or(operands):
            parts = [predicate_sql(part) for part in operands]
            word = " AND " if isinstance(predicate, And) else " OR "
            return None if None in parts or not parts else word.join(f"({part})" for part in parts)
        case _:
            return _leaf_sql(predicate) if is_leaf(predicate) else None


def _leaf_sql(leaf: Predicate) -> str | None:
    match leaf:
        case Comparison(operator, Column() as column, Literal(value)):
            return f"{_name(column)} {operator} {_text(value)}"
        case Comparison(operator, Column() as left, Column() as right):
            return f"{_name(left)} {operator} {_name(right)}"
        case In(Column() as column, values):
            return f"{_name(column)} IN ({', '.join(map(_text, values))})" if values else None
        case Like(Column() as column, str(pattern)):
            return f"{_name(column)} LIKE {quote_text(pattern)}"
        case IsNull(Column() as column):
            return f"{_name(column)} IS NULL"
        case Literal(value):
            return str(value.as_py()).upper() if value.is_valid else "NULL"
        case _:
            return None


def _name(column: Column) -> str:
    return ".".join(quote_identifier(part) for part in column.path)


def _text(value: pa.Scalar) -> str:
    return quote_text(value.as_py()) if pa.types.is_string(value.type) else literal(value)
