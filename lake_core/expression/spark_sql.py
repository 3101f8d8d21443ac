"""Names and values as Spark SQL text."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa


def quote_identifier(name: str) -> str:
    """A column name between backticks, as Spark SQL wants it."""
    return f"`{name.replace('`', '``')}`"


def quote_text(text: str) -> str:
    """A string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal(value: pa.Scalar) -> str:
    """A value as a literal that means the same in every session: typed, timestamps with their zone."""
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
