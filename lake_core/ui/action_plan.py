"""What an action will do, as its page says before it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lake_core.lake.errors import (
    Collected,
    Conflict,
    ContentGone,
    Diverged,
    NothingToApply,
    ProtectedBranch,
    SessionClosed,
)
from lake_core.readable import count_of
from lake_core.ui.commit import changes_of
from lake_core.ui.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.errors import LakeError
    from lake_core.lake.publish.preview import ChangePreview
    from lake_core.ui.visit import Revision, Visit

_MOST_LISTED = 20
"""Datasets and files whose names a sentence lists."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an action will do."""

    title: str
    button: str
    will: Sequence[str]
    """Sentences, in order."""
    fields: Mapping[str, str]
    """What the form sends along."""
    seen: str
    """The state that the page showed, by its ids."""
    back: str
    """Where to go instead."""
    inputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Fields to fill in: label and value by name."""
    choices: Sequence[tuple[str, bool]] = ()
    """Datasets and files to choose from, each with whether it is chosen at first."""
    choose: str = ""
    """What choosing one means."""
    looks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Fields with which the page can be shown for something else: label and value by name."""
    is_dangerous: bool = False
    problem: str = ""
    """Why it cannot be done; empty if it can."""
    preview: ChangePreview | None = None
    """What would change on the branch."""
    branch: str = ""
    """The branch that would change."""
    refusal: LakeError | None = None
    """What the lake raises if it is done; a conflict is shown with what conflicts."""
    sides: tuple[str, str] | None = None
    """The two refs whose difference shows a conflict."""
    details: Mapping[str, Any] | None = None
    """What differs, as a page of a comparison shows it."""
    differs: str = ""
    """Between what it differs."""

    @property
    def conflict(self) -> Conflict | None:
        """Return what conflicts, so that it cannot be done."""
        return self.refusal if isinstance(self.refusal, Conflict) else None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would change on a branch, or why nothing can."""

    preview: ChangePreview | None = None
    refusal: LakeError | None = None
    """What the lake raises if it is done."""

    @property
    def problem(self) -> str:
        """Return why nothing can change; empty if it can."""
        if isinstance(self.refusal, Conflict):
            return f"{self.refusal.summary}."
        return "" if self.refusal is None else str(self.refusal)

    @property
    def changes_nothing(self) -> bool:
        """Return whether it is known that no dataset and no file changes."""
        return self.preview is not None and not self.preview.datasets and not self.preview.keys

    def sentences(self, branch: str) -> Sequence[str]:
        """Return what changes on the branch."""
        preview = self.preview
        if preview is None:
            return []
        if self.changes_nothing:
            return [f"No dataset and no file of {branch} changes: it has all of this already."]
        parts = ((preview.datasets, "dataset"), (preview.keys, "file"))
        counts = [count_of(len(names), kind) for names, kind in parts if names]
        names = [*preview.datasets, *preview.keys]
        verb = "changes" if len(names) == 1 else "change"
        return [f"{' and '.join(counts)} of {branch} {verb}, in one commit{_listed(names)}."]


def outlook_of(preview: Callable[[], ChangePreview]) -> Outlook:
    """Ask the lake what would change. Raises RefNotFound, and what else means that the question makes no sense."""
    try:
        return Outlook(preview())
    except (Conflict, NothingToApply, ProtectedBranch, SessionClosed, ContentGone, Collected, Diverged) as error:
        return Outlook(refusal=error)


def value(visit: Visit, name: str, default: str = "") -> str:
    """Return a value of the form, or of the address if no form was sent."""
    return (visit.form.get(name, default) if visit.is_order else visit.get(name, default)).strip() or default


def needed(visit: Visit, name: str) -> str:
    """Return a value that must be there. Raises InvalidRequest."""
    text = value(visit, name)
    if not text:
        raise InvalidRequest(f"{name} is missing")
    return text


def differences(visit: Visit, before: str, after: str) -> Mapping[str, Any]:
    """Return the first page of what differs between two refs."""
    old, new = visit.revision(before), visit.revision(after)
    return changes_of(visit, old, new, 1) | {"before": old.pin, "after": new.pin}


def commit_at(visit: Visit, name: str, default: str = "") -> Revision:
    """Return the commit that a value names. Raises InvalidRequest for a session."""
    text = value(visit, name, default) if default else needed(visit, name)
    revision = visit.revision(text)
    if revision.session is not None:
        raise InvalidRequest(f"{text!r} is a session: name a commit, a branch or a tag")
    return revision


def _listed(names: Sequence[str]) -> str:
    """Return the first names after a colon; nothing if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return ": " + ", ".join(sorted(names)[:_MOST_LISTED]) + more
