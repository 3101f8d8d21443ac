"""Validated reading of values in the refs journal, which other applications may have written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lake_core.lake.errors import DamagedLake


def text_of(key: str, value: Any, name: str) -> str:
    """Return the text in a field of a value of the refs journal. Raises DamagedLake."""
    text = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(text, str):
        raise DamagedLake(f"the value of {key!r} in the refs journal is damaged: {str(value)[:100]!r}")
    return text


def instant_of(key: str, value: Any, name: str) -> datetime:
    """Return the instant in a field of a value of the refs journal. Raises DamagedLake."""
    try:
        instant = datetime.fromisoformat(text_of(key, value, name))
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise DamagedLake(f"the value of {key!r} in the refs journal is not a timestamp: {str(value)[:100]!r}")
    return instant
