"""Definition metadata that tables, arrays and pools share, and readers of single settings."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from lake_orch.errors import InvalidDefinition

Ownership: TypeAlias = Literal["keep", "take", "shared"]

PARTITION_EXPR = "partition_expr"
MODE = "lake/mode"
OWNER = "lake/owner"

COLUMNS = "columns"
REF = "lake/ref"
TIMESTAMP = "lake/timestamp"

Format: TypeAlias = Literal["delta", "icechunk", "pool", "files"]
Use: TypeAlias = Literal["output", "input"]

_OF_ALL = (OWNER, "lake/path", "lake/format")
SETTINGS: Mapping[tuple[Format, Use], Sequence[str]] = {
    ("delta", "output"): (
        *(MODE, "lake/schema_mode", "lake/naive_timestamps", *_OF_ALL, "lake/merge", "lake/replace_where"),
        *("lake/partition_by", "lake/cluster_by", "lake/properties", "lake/constraints", "lake/generated"),
        *("lake/schema", "lake/preview_rows"),
    ),
    ("delta", "input"): ("lake/where", REF, "lake/version", TIMESTAMP),
    ("icechunk", "output"): (
        *(
            MODE,
            *_OF_ALL,
            "lake/encoding",
            "lake/dims",
            "lake/append_dim",
            "lake/coordinates",
            "lake/preview_image",
        ),
    ),
    ("icechunk", "input"): ("lake/sel", "lake/chunks", REF, "lake/snapshot", TIMESTAMP),
    ("pool", "output"): (
        *(MODE, *_OF_ALL, "lake/key", "lake/order", "lake/threshold", "lake/times", "lake/preview_rows"),
    ),
    ("pool", "input"): ("lake/shape", "lake/start", "lake/stop", "lake/since", REF, "lake/pool_commit"),
    ("files", "output"): _OF_ALL,
    ("files", "input"): (REF,),
}
"""The names that start with `lake/` and have an effect, by the format of the data. All others are refused."""
_REPORTED = ("lake/session", "lake/commit", "lake/state", "lake/operation", "lake/read_with")
"""Names that events have, which a definition may repeat. None of them looks like a setting."""
_WITHOUT_PREFIX: Mapping[Format, Sequence[str]] = {
    "delta": (COLUMNS,),
    "icechunk": (COLUMNS,),
    "pool": (COLUMNS,),
    "files": ("allow_missing_partitions",),
}
"""Other settings of inputs."""
_PLURAL: Mapping[Format, str] = {"delta": "tables", "icechunk": "arrays", "pool": "pools", "files": "files"}

_CUTOFF = 0.85
"""The similarity, from 0 to 1, from which a name is reported as a misspelling."""

T = TypeVar("T", bound=str)


def check_settings(metadata: Mapping[str, Any], format: Format, use: Use, subject: str) -> None:
    """Raise InvalidDefinition for a `lake/…` name that has no effect on what an asset or input is stored as.

    Without the setting, the data would be other than the definition says.

    Args:
        metadata: The metadata, by name.
        format: The format of the data.
        use: Whether the metadata is that of an output or of an input.
        subject: The name of the asset or input in the error.
    """
    own = SETTINGS[format, use]
    for name in metadata:
        if not name.startswith("lake/") or name in own or name in _REPORTED:
            continue
        similar = difflib.get_close_matches(name, own, 1, _CUTOFF)
        others = sorted(f"{_PLURAL[other]} ({of})" for (other, of), names in SETTINGS.items() if name in names)
        if similar:
            remedy = f"use {similar[0]!r}"
        elif use == "input":
            remedy = f"the settings of this input are {', '.join((*_WITHOUT_PREFIX[format], *own))}"
        elif others:
            remedy = f"it is a setting of {', '.join(others)}. Those of this output are {', '.join(own)}"
        else:
            remedy = f"the settings of this output are {', '.join(own)}. Names of your own go without the prefix lake/"
        raise InvalidDefinition(f"{subject} has the metadata {name!r}, which has no effect: {remedy}")


def read_choice(metadata: Mapping[str, Any], name: str, default: T, choices: Sequence[T], subject: str) -> T:
    """Return a setting that is one of some words. Raises InvalidDefinition."""
    value = metadata.get(name, default)
    for choice in choices:
        if value == choice:
            return choice
    raise InvalidDefinition(f"{name} of {subject} is {value!r}: use one of {', '.join(choices)}")


def read_ownership(metadata: Mapping[str, Any], subject: str) -> Ownership:
    """Return `lake/owner`: what an asset does with data that another asset made. Raises InvalidDefinition."""
    default: Ownership = "keep"
    return read_choice(metadata, OWNER, default, get_args(Ownership), subject)


def read_text(metadata: Mapping[str, Any], name: str, subject: str) -> str | None:
    """Return a setting that is text, or None if it is absent. Raises InvalidDefinition."""
    value = metadata.get(name)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise InvalidDefinition(f"{name} of {subject} is {value!r}: use text")
    return value


def read_whole(
    metadata: Mapping[str, Any], name: str, subject: str, *, least: int = 0, most: int | None = None
) -> int | None:
    """Return a setting that is a whole number from `least` to `most`, or None if it is absent.

    Raises InvalidDefinition.
    """
    value = metadata.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        limit = "" if most is None else f" to {most}"
        raise InvalidDefinition(f"{name} of {subject} is {value!r}: use a whole number from {least}{limit}")
    return value


def read_names(
    metadata: Mapping[str, Any], name: str, subject: str, *, kind: str = "names", allow_single: bool = False
) -> tuple[str, ...] | None:
    """Return a setting that is a list of names, or None if it is absent. Raises InvalidDefinition.

    Args:
        metadata: The metadata, by name.
        name: The name of the setting.
        subject: The name of the asset or input in the error.
        kind: The word for the names in the error.
        allow_single: Accept text as a list of one name.
    """
    value = metadata.get(name)
    if value is None:
        return None
    names = (value,) if allow_single and isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(item, str) and item for item in names):
        raise InvalidDefinition(f"{name} of {subject} is {value!r}: use a list of {kind}")
    return tuple(names)


def missing_partition_expr(name: str, axis: Literal["column", "dimension"]) -> InvalidDefinition:
    """Return the error for a partitioned asset that does not say which column or dimension its partitions stand for."""
    return InvalidDefinition(
        f"{name} is partitioned, but its metadata has no {PARTITION_EXPR!r}: name the {axis} that the partitions stand "
        f"for (a dict from partition dimension to {axis} for several dimensions)"
    )
