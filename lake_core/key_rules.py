"""Rules for plain files of a lake that belong together, and the registry of the installed rules.

To a lake, plain files are independent of each other. Some formats consist of many files that are valid only together,
and that their own libraries write one by one. Such a format registers a `KeyRule` under the entry point group
`lake_core.key_rules`. It is checked whenever a change is applied to a state that others have changed in the meantime.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

from lake_core.installed import installed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

KEY_RULES = "lake_core.key_rules"
"""The entry point group in which formats register their rules: name → a class without arguments."""


class PlainKeys(Protocol):
    """The plain keys of one state."""

    def identity(self, key: str) -> bytes | None:
        """Return what identifies the object at a key; None if there is none."""
        ...

    def read(self, key: str) -> bytes | None:
        """Read the object at a key; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class PlainChange:
    """A change of plain keys, from `base` to `incoming`, that is to be brought onto `target`."""

    keys: Collection[str]
    """Those that differ between `base` and `incoming`."""
    base: PlainKeys
    incoming: PlainKeys
    target: PlainKeys
    changed_there: Callable[[str], Iterable[str]]
    """Lists the keys under a prefix that differ between `base` and `target`."""


class KeyRule(Protocol):
    """The rule of a format for its plain keys."""

    kind: str
    """Names the conflict."""
    explanation: str
    """Says what happened, for a message that has named the key: "the array was reshaped ..."."""

    def contradicted(self, change: PlainChange) -> Iterable[str]:
        """List the keys at which the two sides contradict each other, though no key was written by both."""
        ...

    def is_mixed(self, key: str, change: PlainChange) -> bool:
        """Return whether a key for which one side was chosen must not be taken on its own."""
        ...


@cache
def key_rules() -> Sequence[KeyRule]:
    """List the rules that are installed, one each a process."""
    return tuple(point.load()() for point in installed(KEY_RULES).values())
