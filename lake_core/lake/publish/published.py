"""The result of a publish."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class SkippedWrite:
    """A write that a branch already had, by its transaction identifier, so that it was left out."""

    path: str
    """The dataset."""
    application: str
    version: int

    def __str__(self) -> str:
        return f"{self.path}: version {self.version} of application {self.application!r}"


@dataclass(frozen=True, slots=True)
class Published:
    """The result of publishing a session."""

    commit: str
    """The id of the commit, or of the branch's head if the session changed nothing."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """The final version of each dataset that the session changed."""
    session: str = ""
    skipped: Sequence[SkippedWrite] = ()
    """The writes that the branch already has, by their transaction identifiers."""
    resolved: Mapping[str, str] = field(default_factory=dict)
    """The datasets and keys whose conflicts a merge's strategy resolved, with the kinds of the conflicts."""
    undone: Sequence[str] = ()
    """The commits that were undone, because they conflict and only rearrange rows: compactions."""
    is_checked_out: bool = True
    """Whether main's logs are checked out.

    If not, `lake.maintenance.checkout` or the next publish completes the checkout.
    """
