"""Table properties that this implementation acts on. Unknown ones are kept and left alone.

Strict where a table is created here (InvalidProperty), lenient where another writer has set them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lake_core.delta.errors import InvalidProperty

_UNITS_MS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
_LONGEST_MS = 2**62
_INTERVAL = re.compile(r"(?:interval\s+)?((?:-?\d+(?:\.\d+)?\s+[a-z]+\s*)+)", re.IGNORECASE)


_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
_DEFAULT_CHECKPOINT_INTERVAL = 10


def checkpoint_interval(properties: Mapping[str, str]) -> int:
    """`delta.checkpointInterval`: commits between two checkpoints, 10 by default and where another writer set what makes no sense.

    Never raises: it is asked after a commit, which stands whatever the property says. `check_properties` is strict.
    """
    try:
        return _checkpoint_interval(properties)
    except InvalidProperty:
        return _DEFAULT_CHECKPOINT_INTERVAL


def deleted_file_retention_ms(properties: Mapping[str, str]) -> int | None:
    """`delta.deletedFileRetentionDuration` in milliseconds: how long a removed file stays on record, one week by default.

    None where another writer set what cannot be read (such as months, which differ in length): then no removed file may be forgotten.
    """
    try:
        return _deleted_file_retention_ms(properties)
    except InvalidProperty:
        return None


def _checkpoint_interval(properties: Mapping[str, str]) -> int:
    text = properties.get(_CHECKPOINT_INTERVAL, str(_DEFAULT_CHECKPOINT_INTERVAL))
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise InvalidProperty(f"{_CHECKPOINT_INTERVAL} is {text!r}: use a whole number from 1 up")
    return int(text)


def _deleted_file_retention_ms(properties: Mapping[str, str]) -> int:
    return interval_ms(properties.get(_DELETED_FILE_RETENTION, "interval 1 week"), _DELETED_FILE_RETENTION)


def interval_ms(text: str, name: str) -> int:
    """A Spark interval such as `interval 1 week` or `2 days 3 hours`, in milliseconds."""
    match = _INTERVAL.fullmatch(text.strip())
    total = 0.0
    for number, unit in re.findall(r"(-?\d+(?:\.\d+)?)\s+([a-z]+)", match[1].lower()) if match else ():
        scale = _UNITS_MS.get(unit.removesuffix("s"))
        if scale is None:
            match = None
            break
        total += float(number) * scale
    # Past any clock's milliseconds it is no duration any more, and no 64-bit integer.
    if match is None or not 0 <= total < _LONGEST_MS:
        raise InvalidProperty(f"{name} is {text!r}: use an interval such as 'interval 7 days' (weeks at most: months differ in length)")
    return int(total)


def check_properties(properties: Mapping[str, str]) -> None:
    """Raises InvalidProperty for the first property whose value this implementation would stumble over later."""
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidProperty(f"table property {key!r} is {value!r}: names and values are text, such as 'true' or '10'")
    _checkpoint_interval(properties)
    _deleted_file_retention_ms(properties)
