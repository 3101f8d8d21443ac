"""The table properties that this implementation uses. Unknown properties are kept and ignored.

Invalid values raise InvalidProperty when they are set here. Those that another writer has set are tolerated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lake_core.delta.errors import InvalidProperty
from lake_core.delta.parquet_options import ParquetOptions

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
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_LOG_RETENTION = "delta.logRetentionDuration"
_LOG_CLEANUP = "delta.enableExpiredLogCleanup"
_STATS_AS_JSON = "delta.checkpoint.writeStatsAsJson"
_STATS_AS_STRUCT = "delta.checkpoint.writeStatsAsStruct"
_ISOLATION_LEVEL = "delta.isolationLevel"
_CHECKPOINT_POLICY = "delta.checkpointPolicy"
_MAPPING_MODE = "delta.columnMapping.mode"
_FLAGS = (
    _LOG_CLEANUP,
    _STATS_AS_JSON,
    _STATS_AS_STRUCT,
    "delta.appendOnly",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableInCommitTimestamps",
    "delta.enableRowTracking",
    "delta.enableVariantShredding",
    "delta.rowTrackingSuspended",
    "delta.writePartitionColumnsToParquet",
)
_DEFAULT_CHECKPOINT_INTERVAL = 10


def checkpoint_interval(properties: Mapping[str, str]) -> int:
    """Return `delta.checkpointInterval`: commits between checkpoints, 10 by default and for an invalid value.

    Never raises, because it is called after a commit, which is valid already. `check_properties` is strict.
    """
    try:
        return _checkpoint_interval(properties)
    except InvalidProperty:
        return _DEFAULT_CHECKPOINT_INTERVAL


def deleted_file_retention_ms(properties: Mapping[str, str]) -> int | None:
    """Return `delta.deletedFileRetentionDuration` (ms): how long tombstones are kept, a week by default.

    Return None if another writer set a value that cannot be read, such as months, which differ in length. Then all
    tombstones are kept.
    """
    try:
        return _deleted_file_retention_ms(properties)
    except InvalidProperty:
        return None


def transaction_retention_ms(properties: Mapping[str, str]) -> int | None:
    """Return `delta.setTransactionRetentionDuration` in milliseconds: how long txn actions count.

    None, the default, is for ever. It is also returned if another writer set a value that cannot be read, because a txn
    action that is kept too long does less harm than one that is lost.
    """
    text = properties.get(_TRANSACTION_RETENTION)
    try:
        return None if text is None else interval_ms(text, _TRANSACTION_RETENTION)
    except InvalidProperty:
        return None


def log_retention_ms(properties: Mapping[str, str]) -> int | None:
    """Return `delta.logRetentionDuration` in milliseconds: how long versions can be opened, 30 days by default.

    Return None if nothing may be cleaned up: `delta.enableExpiredLogCleanup` is false, or another writer set a value
    that cannot be read.
    """
    try:
        if not _flag(properties, _LOG_CLEANUP, default=True):
            return None
        return interval_ms(properties.get(_LOG_RETENTION, "interval 30 days"), _LOG_RETENTION)
    except InvalidProperty:
        return None


def stats_as_json(properties: Mapping[str, str]) -> bool:
    """Return `delta.checkpoint.writeStatsAsJson`: whether checkpoints hold statistics as text. Never raises."""
    return _lenient(properties, _STATS_AS_JSON, default=True)


def stats_as_struct(properties: Mapping[str, str]) -> bool:
    """Return `delta.checkpoint.writeStatsAsStruct`.

    It says whether checkpoints hold statistics and partition values as columns. Never raises.
    """
    return _lenient(properties, _STATS_AS_STRUCT, default=False)


def has_v2_policy(properties: Mapping[str, str]) -> bool:
    """Return whether `delta.checkpointPolicy` asks for checkpoints of version 2."""
    return properties.get(_CHECKPOINT_POLICY, "classic").lower() == "v2"


def _lenient(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    try:
        return _flag(properties, name, default=default)
    except InvalidProperty:
        return default


def _flag(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = properties.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidProperty(f"{name} is {properties[name]!r}: use 'true' or 'false'")
    return text == "true"


def _checkpoint_interval(properties: Mapping[str, str]) -> int:
    text = properties.get(_CHECKPOINT_INTERVAL, str(_DEFAULT_CHECKPOINT_INTERVAL))
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise InvalidProperty(f"{_CHECKPOINT_INTERVAL} is {text!r}: use a whole number of at least 1")
    return int(text)


def _deleted_file_retention_ms(properties: Mapping[str, str]) -> int:
    return interval_ms(properties.get(_DELETED_FILE_RETENTION, "interval 1 week"), _DELETED_FILE_RETENTION)


_SHORT_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}


def interval_ms(text: str, name: str) -> int:
    """Convert a Spark interval such as `interval 1 week` or `2 days 3 hours` to milliseconds."""
    match = _INTERVAL.fullmatch(text.strip())
    total = 0.0
    for number, unit in re.findall(r"(-?\d+(?:\.\d+)?)\s+([a-z]+)", match[1].lower()) if match else ():
        scale = _UNITS_MS.get(unit.removesuffix("s"))
        if scale is None:
            match = None
            break
        total += float(number) * scale
    # A longer duration is beyond any clock, and does not fit a 64-bit integer of milliseconds.
    if match is None or not 0 <= total < _LONGEST_MS:
        raise InvalidProperty(
            f"{name} is {text!r}: use an interval such as 'interval 7 days', without months, whose length varies"
        )
    return int(total)


def duration_ms(text: str, name: str) -> int:
    """Convert a length of time to milliseconds: `90m`, `24h` or `7d`, or an interval such as `7 days`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if match is None:
        return interval_ms(text, name)
    return interval_ms(f"{match[1]} {_SHORT_UNITS[match[2]]}", name)


def check_texts(properties: Mapping[str, str]) -> None:
    """Raise InvalidProperty unless this is a mapping from names to texts."""
    if not isinstance(properties, Mapping):
        raise InvalidProperty(
            f"table properties must be a mapping from names to texts, not {type(properties).__name__}"
        )
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidProperty(
                f"table property {key!r} is {value!r}: names and values must be text, such as 'true' or '10'"
            )


_WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "delta.parquet.format.version": frozenset({"1.0.0"}),
    "delta.randomizeFilePrefixes": frozenset({"false"}),
    "delta.universalFormat.enabledFormats": frozenset({""}),
}
"""Properties that this writer does not carry out, each with the values that ask for what it does anyway."""


def check_honoured(properties: Mapping[str, str]) -> None:
    """Raise InvalidProperty for a property that is to be set and that would have no effect on what is written."""
    for name, values in _WITHOUT_EFFECT.items():
        text = properties.get(name)
        if text is not None and text.lower() not in values:
            raise InvalidProperty(
                f"{name} is {text!r}, which this writer does not carry out: leave it out, or set it with a client that "
                "does. Tables that have it are written on"
            )


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise InvalidProperty for the first property with a value that this implementation could not use later."""
    check_texts(properties)
    _checkpoint_interval(properties)
    _deleted_file_retention_ms(properties)
    for name in (_TRANSACTION_RETENTION, _LOG_RETENTION):
        if name in properties:
            interval_ms(properties[name], name)
    ParquetOptions.of(properties)
    for name in _FLAGS:
        _flag(properties, name, default=False)
    if all(_flag(properties, f"delta.{name}", default=False) for name in ("enableRowTracking", "rowTrackingSuspended")):
        raise InvalidProperty("delta.rowTrackingSuspended needs delta.enableRowTracking to be false: set that, too")
    if properties.get(_MAPPING_MODE, "none") not in ("none", "name", "id"):
        raise InvalidProperty(
            f"{_MAPPING_MODE} is {properties[_MAPPING_MODE]!r}: use 'none' or 'name' (or 'id' when a table is created)"
        )
    if properties.get(_CHECKPOINT_POLICY, "classic").lower() not in ("classic", "v2"):
        raise InvalidProperty(f"{_CHECKPOINT_POLICY} is {properties[_CHECKPOINT_POLICY]!r}: use 'classic' or 'v2'")
    if properties.get(_ISOLATION_LEVEL, "Serializable") not in ("Serializable", "WriteSerializable"):
        raise InvalidProperty(
            f"{_ISOLATION_LEVEL} is {properties[_ISOLATION_LEVEL]!r}: use 'Serializable' or 'WriteSerializable'"
        )
