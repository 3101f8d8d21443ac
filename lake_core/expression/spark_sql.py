"""Names and values as Spark SQL text."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa


def quote_identifier(name: str) -> str:
    """A column name between backticks, as Spark SQL wants it."""
    return f"`{name.replace('`', '``')}`"


def quote_text(text: str) -> str:
    """A string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SUFFIXES = {pa.int8(): "Y", pa.int16(): "S", pa.int32(): "", pa.int64(): "L"}


def literal(value: pa.Scalar) -> str:
    """A value as a literal of its own type that means the same in every session: timestamps with their zone.

    Text has no such literal: what a backslash means is a setting, and `${…}` is replaced before anything is parsed.
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
