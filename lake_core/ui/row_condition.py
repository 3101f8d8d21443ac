"""The condition, in Spark SQL, that is true for one row."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import TYPE_CHECKING, Any

from lake_core.python_rows import ShownText

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def row_condition(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the condition that these columns have the values of a row.

    Returns None if a value cannot be written exactly: without it, the condition may be true for other rows.
    """
    parts = [_equals(name, row.get(name)) for name in names]
    known = [part for part in parts if part is not None]
    return " AND ".join(known) if known and len(known) == len(parts) else None


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
    if isinstance(value, ShownText) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
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
