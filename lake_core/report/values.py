"""Values as JSON, and as the text of a cell."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Mapping
from typing import Any


def cell_text(value: Any) -> str:
    """Return a value as the text of a table's cell. Null is empty."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dt.datetime):
        return date_text(value)
    return bytes_text(value) if isinstance(value, bytes) else str(value)


def bytes_text(value: bytes) -> str:
    """Return bytes as text."""
    return f"0x{value.hex()}"


def date_text(instant: dt.datetime) -> str:
    """Return an instant as text, to the second. An instant with a zone is shown in UTC."""
    if instant.tzinfo is None:
        return instant.isoformat(sep=" ", timespec="seconds")
    return instant.astimezone(dt.UTC).isoformat(sep=" ", timespec="seconds")


def plain(value: Any) -> Any:
    """Convert a value to JSON's types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"  # JSON has no such numbers
    if isinstance(value, bytes):
        return bytes_text(value)
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return value.to_pylist() if hasattr(value, "to_pylist") else str(value)
