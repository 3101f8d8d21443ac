"""Checks the values of storage options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

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
    for meaning, (name, value) in by_meaning(options, lambda name: aliases.get(name, name)).items():
        if meaning in supported:
            if value is not None:
                values[meaning] = value
        elif name not in ignored:
            raise StoreError(f"{name!r} is not an option of {service}: remove it from storage_options")
    return values


def by_meaning(options: Mapping[str, object], meaning_of: Callable[[str], str]) -> dict[str, tuple[str, object]]:
    """Return the name and the value of each option by its meaning. Raises StoreError where two mean the same."""
    named: dict[str, tuple[str, object]] = {}
    for name, value in options.items():
        first, _ = named.setdefault(meaning_of(name), (name, value))
        if first != name:
            raise StoreError(f"the storage_options {first} and {name} mean the same: pass only one of them")
    return named


def of_fsspec(options: Mapping[str, object], aliases: Mapping[str, str], foreign: Set[str]) -> dict[str, object]:
    """Return the options under the names of fsspec, without those that only obstore has."""
    return {aliases.get(name, name): value for name, value in options.items() if aliases.get(name, name) not in foreign}
