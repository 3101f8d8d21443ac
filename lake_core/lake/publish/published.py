"""The result of a publish."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Published:
    """The result of publishing a session."""

    commit: str
    """The commit's id; the branch's head where the session changed nothing."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """The final version of each dataset that it changed."""
    session: str = ""
    skipped: Sequence[str] = ()
    """Datasets whose changes the branch already has, by their markers."""
    resolved: Mapping[str, str] = field(default_factory=dict)
    """The datasets and keys of which a merge's strategy took one side, with the kinds of the conflicts."""
    is_checked_out: bool = True
    """Whether main's objects are at their natural places.

    False: `lake.maintenance.checkout` completes it, as does the next publish.
    """
