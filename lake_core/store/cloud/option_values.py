"""Checks the values of storage options."""

from __future__ import annotations

from collections.abc import Mapping, Set

from lake_core.errors import StoreError


def text(name: str, value: object) -> str:
    """Return an option's value, which must be a text. Raises StoreError, which does not repeat it."""
    if not isinstance(value, str):
        raise StoreError(f"the storage option {name} must be a text, not a {type(value).__name__}")
    return value


def line(name: str, value: object) -> str:
    """Return an option's value, which must be a text of one line. Raises StoreError, which does not repeat it."""
    whole = text(name, value)
    if any(character in whole for character in "\r\n\0"):
        raise StoreError(f"the storage option {name} must not hold a line break: remove it")
    return whole


def flag(name: str, value: object) -> bool:
    """Return an option's value, which must be True or False. Raises StoreError, which does not repeat it."""
    if not isinstance(value, bool):
        raise StoreError(f"the storage option {name} must be True or False, not a {type(value).__name__}")
    return value


def seconds(name: str, value: object) -> float:
    """Return an option's value, which must be a number of seconds. Raises StoreError, which does not repeat it."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
        raise StoreError(f"the storage option {name} must be a number of seconds above 0")
    return float(value)


def mapping(name: str, value: object) -> Mapping[str, object]:
    """Return an option's value, which must be a mapping. Raises StoreError, which does not repeat it."""
    if not isinstance(value, Mapping):
        raise StoreError(f"the storage option {name} must be a mapping, not a {type(value).__name__}")
    return value


def canonical(
    service: str,
    options: Mapping[str, object],
    aliases: Mapping[str, str],
    supported: Set[str],
    ignored: Set[str] = frozenset(),
) -> dict[str, object]:
    """Return the options that have a value, each under one name.

    Args:
        service: The name of the service in messages.
        options: The storage options.
        aliases: Other names of options, and the names that are returned for them.
        supported: The names that are returned.
        ignored: Names that are accepted but left out.

    Raises:
        StoreError: A name is unknown, or two names mean the same. The message contains no value.
    """
    values: dict[str, object] = {}
    name_by_meaning: dict[str, str] = {}
    for name, value in options.items():
        meaning = aliases.get(name, name)
        if meaning in name_by_meaning:
            raise StoreError(
                f"the storage_options {name_by_meaning[meaning]} and {name} mean the same: pass only one of them"
            )
        name_by_meaning[meaning] = name
        if meaning in supported:
            if value is not None:
                values[meaning] = value
        elif name not in ignored:
            raise StoreError(f"{name!r} is not an option of {service}: remove it from storage_options")
    return values


def of_fsspec(options: Mapping[str, object], aliases: Mapping[str, str], foreign: Set[str]) -> dict[str, object]:
    """Return the options under the names of fsspec, without those that only obstore has."""
    return {aliases.get(name, name): value for name, value in options.items() if aliases.get(name, name) not in foreign}
