"""What collection means for the list of snapshots of version 2, and for the backups of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.icechunk.ops_log import OVERWRITTEN
from lake_core.icechunk.repo_info_file import decode_repo_info
from lake_core.icechunk.update import GCRan, UpdateType

if TYPE_CHECKING:
    from collections.abc import Set
    from datetime import datetime

    from lake_core.icechunk.repo_info import RepoInfo
    from lake_core.icechunk.repository_layout import RepositoryLayout
    from lake_core.store import ObjectStore


def kept_tips(info: RepoInfo, before: int) -> list[bytes]:
    """Return the snapshots whose histories are kept: those of branches and tags, and newer ones without any.

    `before`: microseconds since the epoch.
    """
    tips = [*info.tags.values(), *info.branches.values()]
    return [*tips, *(each.snapshot_id for each in info.snapshots.values() if each.flushed_at >= before)]


def pruned_logs(info: RepoInfo, tips: list[bytes]) -> set[bytes]:
    """Return the transaction logs of expired snapshots that histories still name."""
    return {log for entry in info.reachable(tips) for log in entry.pruned_logs}


def release(layout: RepositoryLayout, marked: Set[bytes], before: int) -> bool:
    """Take the snapshots that are garbage off the list. Return False if others than the marked ones are kept now."""

    def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType] | None:
        kept = {entry.snapshot_id: entry for entry in info.reachable(kept_tips(info, before))}
        return (replace(info, snapshots=kept), GCRan()) if kept.keys() <= marked else None

    return layout.update(change) is not None


def trimmed_backups(store: ObjectStore, info: RepoInfo, before: datetime) -> list[str]:
    """Return the keys of the backups written before a time that the operations log does not need."""
    needed: set[str] = set()
    # Another writer may let the log go on in any backup that it names, so those in which these go on are needed, too.
    unseen = [*(update.backup for update in info.updates), info.before_updates]
    while unseen:
        name = unseen.pop()
        if name is None or name in needed:
            continue
        needed.add(name)
        path = OVERWRITTEN + name
        if store.exists(path):
            unseen.append(decode_repo_info(store.get(path), path).before_updates)
    return [
        meta.key
        for meta in store.list(OVERWRITTEN + "repo.")
        if meta.last_modified < before and meta.key.removeprefix(OVERWRITTEN) not in needed
    ]
