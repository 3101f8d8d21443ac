"""Definition metadata that tables, arrays and pools share, and readers of single settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from lake_orch.errors import InvalidDefinition

Ownership: TypeAlias = Literal["keep", "take", "shared"]

PARTITION_EXPR = "partition_expr"
MODE = "lake/mode"
REPLACE_WHERE = "lake/replace_where"
OWNER = "lake/owner"

MOST_PREVIEW_ROWS = 50

COLUMNS = "columns"
REF = "lake/ref"
TIMESTAMP = "lake/timestamp"

T = TypeVar("T", bound=str)


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
