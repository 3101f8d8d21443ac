"""What is to be brought onto a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lake_core.lake.errors import ProtectedBranch
from lake_core.lake.publish.tree_update import Strategy, TreeUpdate
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.state.state_store import StateStore


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be brought onto a branch."""

    branch: str
    base: StateStore
    theirs: StateStore
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    parents: Sequence[str] = ()
    """Commits that the new one has as parents besides the branch's head."""
    session: str | None = None
    reads: Sequence[str] = ()
    retention: Mapping[str, str] = field(default_factory=dict)
    """Datasets whose retention ends before these instants (ISO 8601)."""
    is_merge: bool = False
    """Whether a protected branch takes it."""
    make: Callable[[StateStore], TreeUpdate] | None = None
    """What to do to the target instead of applying a difference."""
    adopts: str | None = None
    """The dataset whose log in place it brings in: for that one it need not be main's yet."""
    strategy: Strategy | None = None
    """Whose side is taken of what conflicts."""
    remedy: str = ""
    """What a conflict says to do."""
    makes_commit: bool = False
    """Whether a commit is made even if nothing differs: a merge records what it has seen."""


def check_protected(refs: RefsState, change: Change) -> None:
    """Raise ProtectedBranch where the branch takes merges only, and the change is no merge."""
    pattern = refs.protected(change.branch)
    if pattern is not None and not change.is_merge:
        raise ProtectedBranch(f"branch {change.branch!r} is protected (by {pattern!r}): publish on another branch, and merge that")
