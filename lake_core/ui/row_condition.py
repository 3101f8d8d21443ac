"""The condition, in Spark SQL, that is true for one row."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def row_condition(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the condition that these columns have the values of a row.

    Returns None if no column has a value that can be written exactly.
    """
    parts = [part for name in names if (part := _equals(name, row.get(name))) is not None]
    return " AND ".join(parts) or None


def _equals(name: str, value: Any) -> str | None:
    column = "`" + name.replace("`", "``") + "`"
    if value is None:
        return f"{column} IS NULL"
    literal = _literal(value)
    return None if literal is None else f"{column} = {literal}"


def _literal(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        return f"TIMESTAMP '{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=' ')}Z'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return None
