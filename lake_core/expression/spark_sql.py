"""Predicates as Spark SQL text that means the same in every session: literals typed, timestamps with their zone."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from lake_core.expression.predicate import And, Column, ColumnComparison, Comparison, Constant, In, IsNull, Like, Not, Or, Predicate


def to_spark_sql(predicate: Predicate) -> str:
    """The predicate as text for `DataFrame.where`."""
    match predicate:
        case Comparison(operator=operator, column=column, value=value):
            return f"{_column(column)} {operator} {_literal(value)}"
        case ColumnComparison(operator=operator, left=left, right=right):
            return f"{_column(left)} {operator} {_column(right)}"
        case In(column=column, values=values):
            if not values:
                return f"({_column(column)} IS NULL AND NULL)"
            return f"{_column(column)} IN ({', '.join(map(_literal, values))})"
        case Like(column=column, pattern=pattern):
            return f"{_column(column)} LIKE {quote_text(pattern)}"
        case IsNull(column=column):
            return f"{_column(column)} IS NULL"
        case Constant(value=value):
            return {True: "TRUE", False: "FALSE", None: "CAST(NULL AS BOOLEAN)"}[value]
        case Not(operand=operand):
            return f"NOT ({to_spark_sql(operand)})"
        case And(operands=operands):
            return " AND ".join(f"({to_spark_sql(child)})" for child in operands)
        case Or(operands=operands):
            return " OR ".join(f"({to_spark_sql(child)})" for child in operands)


def quote_identifier(name: str) -> str:
    """A column name between backticks, as Spark SQL wants it."""
    return f"`{name.replace('`', '``')}`"


def quote_text(text: str) -> str:
    """A string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _column(column: Column) -> str:
    return ".".join(map(quote_identifier, column.path))


def _literal(value: pa.Scalar) -> str:
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
        return f"{plain!r}D" if plain == plain and abs(plain) != float("inf") else f"CAST('{plain!r}' AS DOUBLE)"
    if isinstance(plain, int):
        return f"{plain}L"
    return quote_text(plain) if isinstance(plain, str) else f"{plain}BD"
