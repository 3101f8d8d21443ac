"""Expiration in repositories of version 2: expired snapshots leave the list, and no file is rewritten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake_core.icechunk.refs import MAIN

if TYPE_CHECKING:
    from lake_core.icechunk.repo_info import ListedSnapshot, RepoInfo


@dataclass(frozen=True, slots=True)
class Expiration:
    """Which snapshots expire, and what happens to branches and tags whose tip does."""

    older_than: int
    """Microseconds since the epoch. The first snapshot of a history never expires."""
    delete_branches: bool = False
    """Whether branches whose tip expires are deleted; main never is."""
    delete_tags: bool = False

    def released(self, info: RepoInfo) -> set[bytes]:
        """Return the snapshots that leave the list: the expired ones that are not the tip of a branch or tag."""
        tips = set() if self.delete_tags else set(info.tags.values())
        tips |= {info.branches[MAIN]} if self.delete_branches else set(info.branches.values())
        return self._expired(info) - tips

    def apply(self, info: RepoInfo) -> RepoInfo:
        """Return the state without expired snapshots.

        A snapshot whose parent leaves gets the first one of its history as its parent. It keeps the transaction logs of
        all between, so that the changes since then are still known.
        """
        released, expired = self.released(info), self._expired(info)
        retained = {snapshot_id: entry for snapshot_id, entry in info.snapshots.items() if snapshot_id not in released}
        for snapshot_id, entry in retained.items():
            if entry.parent_id in released:
                retained[snapshot_id] = _on_root(info, entry)
        lost_tags = {name for name, tip in info.tags.items() if self.delete_tags and tip in expired}
        lost_branches = {
            name for name, tip in info.branches.items() if self.delete_branches and name != MAIN and tip in expired
        }
        return replace(
            info,
            snapshots=retained,
            tags={name: tip for name, tip in info.tags.items() if name not in lost_tags},
            deleted_tags=info.deleted_tags | lost_tags,
            branches={name: tip for name, tip in info.branches.items() if name not in lost_branches},
        )

    def _expired(self, info: RepoInfo) -> set[bytes]:
        return {
            snapshot_id
            for snapshot_id, entry in info.snapshots.items()
            if entry.flushed_at < self.older_than and entry.parent_id is not None
        }


def _on_root(info: RepoInfo, entry: ListedSnapshot) -> ListedSnapshot:
    """Return the entry of a snapshot with the first one of its history as its parent."""
    *between, root = list(info.ancestry(entry.snapshot_id))[1:]
    pruned = [log for each in reversed(between) for log in (*each.pruned_logs, each.snapshot_id)]
    return replace(entry, parent_id=root.snapshot_id, pruned_logs=(*pruned, *entry.pruned_logs))
