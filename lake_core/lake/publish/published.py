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
    """The id of the commit, or of the branch's head if the session changed nothing."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """The final version of each dataset that the session changed."""
    session: str = ""
    skipped: Sequence[str] = ()
    """The datasets whose changes the branch already has, by their transaction identifiers."""
    resolved: Mapping[str, str] = field(default_factory=dict)
    """The datasets and keys whose conflicts a merge's strategy resolved, with the kinds of the conflicts."""
    is_checked_out: bool = True
    """Whether main's logs are checked out.

    If not, `lake.maintenance.checkout` or the next publish completes the checkout.
    """
