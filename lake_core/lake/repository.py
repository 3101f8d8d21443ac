"""What all parts of a lake share: its root, its refs, its tree, its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lake_core.graveler import Commit, Graveler
from lake_core.journal import Journal
from lake_core.lake.content import ContentStore
from lake_core.lake.format import LakeFormat
from lake_core.lake.lease import Turns
from lake_core.lake.refs import RefsState
from lake_core.lake.state_store import StateStore
from lake_core.lake.view import Overlay, View
from lake_core.store import ObjectStore

REFS = "_lake/refs"
CONFIG = "_lake/config"


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Repository:
    """A lake's parts, open."""

    root: ObjectStore
    format: LakeFormat
    graveler: Graveler
    journal: Journal
    """The refs."""
    settings: Journal
    """The lake's configuration."""
    clock: Callable[[], datetime]
    committer: str
    given_clock: bool = False
    """Whether the caller gave the clock: then it is trusted to tell the age of objects too."""
    turns: Turns = field(default_factory=Turns)

    @property
    def content(self) -> ContentStore:
        return ContentStore(self.root)

    def refs(self, *, refresh: bool = True) -> RefsState:
        """The refs as they are now."""
        return RefsState(self.journal.state(refresh=refresh))

    def state(self, tree: str, name: str, overlay: Overlay | None = None) -> StateStore:
        """A tree, as a store."""
        return StateStore(self.root, View(self.graveler, tree, overlay or Overlay()), self.clock, name=name)

    def commit_state(self, commit: Commit, name: str | None = None) -> StateStore:
        """A commit, as a store."""
        return self.state(commit.metarange_id, name or f"commit {commit.id[:12]}")
