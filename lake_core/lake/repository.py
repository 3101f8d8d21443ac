"""The parts of an open lake: its root, its refs, its tree, its clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake_core.graveler import Graveler
from lake_core.lake.refs.lease import LeaseConfig
from lake_core.lake.refs.pending_deletions import DeletionLists, PendingDeletions
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.state.addresses import ConfiguredAddresses
from lake_core.lake.state.content import ContentStore, RecentContent
from lake_core.lake.state.state_store import StateStore
from lake_core.lake.state.state_tree import StateTree
from lake_core.lake.state.view import Overlay, View
from lake_core.store.scratch import ScratchStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lake_core.graveler import Commit
    from lake_core.journal import Journal
    from lake_core.lake.lake_format import LakeFormat
    from lake_core.store import ObjectStore

REFS = "_lake/refs"
CONFIG = "_lake/config"
TREES = "_lakefs"
"""The folder of ranges and metaranges, named as a lakeFS repository's is."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The parts of an open lake."""

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
    """Whether the caller passed the clock. Then it also measures the age of objects."""
    lease_config: LeaseConfig = field(default_factory=LeaseConfig)
    deletion_lists: DeletionLists = field(init=False)
    recent_content: RecentContent = field(default_factory=RecentContent)
    undisturbed: set[str] = field(default_factory=set)
    """Branches whose last publish through this handle met no other publisher."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "deletion_lists", DeletionLists(self.root))

    @property
    def content(self) -> ContentStore:
        """Return the content-addressed objects of the lake."""
        return ContentStore(self.root, ConfiguredAddresses(self.root, self.settings), self.recent_content)

    def with_range_memory(self, memory_bytes: int) -> Repository:
        """Return the same lake with its own cache of decoded ranges, of at most this size."""
        reader = self.graveler.reader
        graveler = Graveler(
            reader.store,
            profile=self.graveler.profile,
            cache=reader.cache,
            folder=reader.folder,
            memory_bytes=memory_bytes,
        )
        return replace(self, graveler=graveler)

    def for_preview(self) -> Repository:
        """Return the same lake, whose new objects stay in memory: several changes may build on one another there."""
        return replace(self, root=ScratchStore(self.root), recent_content=RecentContent())

    def refs(self, *, refresh: bool = True) -> RefsState:
        """Read the newest refs."""
        return RefsState(self.journal.state(refresh=refresh))

    def pending_deletions(self, refs: RefsState) -> PendingDeletions:
        """Return the keys that collections may be deleting as of these refs. Raises DamagedLake."""
        return self.deletion_lists.pending(refs)

    def state(
        self, tree: str, name: str, overlay: Overlay | None = None, *, on_read: Callable[[str], None] | None = None
    ) -> StateStore:
        """Return a tree as a store. `on_read` is called with each key, or prefix ending in "*", that is read."""
        view = View(self.graveler, tree, overlay or Overlay())
        return StateStore(StateTree(self.root, view, self.clock, name=name, content=self.content, on_read=on_read))

    def commit_state(
        self, commit: Commit, name: str | None = None, *, on_read: Callable[[str], None] | None = None
    ) -> StateStore:
        """Return a commit as a store. `on_read` is as in `state`."""
        return self.state(commit.metarange_id, name or f"commit {commit.id[:12]}", on_read=on_read)
