"""What all parts of a lake share: its root, its refs, its tree, its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

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
TREES = "_lakefs"
"""The folder of ranges and metaranges, named as a lakeFS repository's is."""


Clock: TypeAlias = Callable[[], "datetime | float"]
"""Tells the time: an aware datetime, or seconds since the epoch as `time.time` does."""


@dataclass(frozen=True, slots=True)
class Aware:
    """A clock that was given, telling aware datetimes."""

    given: Clock

    def __call__(self) -> datetime:
        now = self.given()
        if not isinstance(now, datetime):
            return datetime.fromtimestamp(now, UTC)
        if now.tzinfo is None:
            raise ValueError("the clock returned a datetime without a time zone")
        return now


def aware(clock: Clock | None) -> Callable[[], datetime]:
    """A clock that tells aware datetimes; the system's for None."""
    return _now if clock is None else Aware(clock)


def _now() -> datetime:
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
    lists: dict[str, frozenset[str]] = field(default_factory=dict)
    """The lists of condemned keys that were read, by where they stand; they never change."""

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
