"""Expiration: old snapshots are removed from the history. Their objects stay until they are collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.errors import NotFound, PreconditionFailed, StoreUnavailable
from lake_core.icechunk.ancestry import reachable
from lake_core.icechunk.errors import ConflictError, DamagedObject, MissingObject, RefNotFound
from lake_core.icechunk.folders import SNAPSHOTS
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.layout_v1 import LayoutV1
from lake_core.icechunk.refs import MAIN, Ref, RefKind
from lake_core.icechunk.snapshot_file import decode_snapshot, with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.icechunk.asset_manager import AssetManager

_TRIES = 10
"""How many times a snapshot is rewritten while other clients rewrite it too."""


@dataclass(slots=True)
class _Header:
    """The part of a snapshot that expiration needs."""

    flushed_at: int
    parent_id: bytes | None


def expire(
    assets: AssetManager,
    older_than: int,
    *,
    delete_expired_branches: bool = False,
    delete_expired_tags: bool = False,
    dry_run: bool = False,
) -> set[bytes]:
    """Remove snapshots that were written before a time from the history of every tag and branch.

    Each history is cut by one write, so after a crash each one is either cut or unchanged.

    Args:
        assets: The files of the repository.
        older_than: Microseconds since the epoch.
        delete_expired_branches: Whether branches whose tip is expired are deleted; main never is.
        delete_expired_tags: Whether tags that name an expired snapshot are deleted.
        dry_run: Whether nothing is written.

    Returns:
        The ids of the snapshots that were removed from the history of a ref, and of expired tips. Other refs may still
        reach them.

    Raises:
        DamagedObject: A ref or a snapshot cannot be read. Nothing was written.
        ConflictError: A branch that was to be deleted has moved in the meantime.
    """
    layout = LayoutV1(assets.store)
    tips = layout.list_refs()
    headers = {
        snapshot.snapshot_id: _Header(snapshot.flushed_at, snapshot.parent_id)
        for snapshot in reachable(assets, [tip.snapshot_id for tip in tips])
    }
    released: set[bytes] = set()
    for tip in tips:
        released |= _cut(assets, headers, tip.snapshot_id, older_than, dry_run=dry_run)
        if not dry_run and headers[tip.snapshot_id].flushed_at < older_than:
            _delete_ref(layout, tip, branches=delete_expired_branches, tags=delete_expired_tags)
    return released


def _cut(
    assets: AssetManager, headers: Mapping[bytes, _Header], tip: bytes, older_than: int, *, dry_run: bool
) -> set[bytes]:
    """Make the root the parent of the oldest snapshot that is kept, or of the tip if none is.

    Return the removed or expired snapshots.
    """
    history = [tip]
    while (parent := headers[history[-1]].parent_id) is not None:
        history.append(parent)
    kept = [number for number, snapshot_id in enumerate(history) if headers[snapshot_id].flushed_at >= older_than]
    oldest, root = (kept[-1] if kept else 0), history[-1]
    if len(history) - oldest <= 2:
        return set()
    if not dry_run:
        _adopt(assets, history[oldest], root)
    headers[history[oldest]].parent_id = root
    return set(history[oldest + bool(kept) : -1])


def _adopt(assets: AssetManager, snapshot_id: bytes, parent_id: bytes) -> None:
    """Change the parent of a snapshot in place."""
    path = SNAPSHOTS + encode_id(snapshot_id)
    for _ in range(_TRIES):
        try:
            data = assets.store.get(path)
        except NotFound:
            raise MissingObject(path, "a branch or tag reaches it, but it does not exist") from None
        if decode_snapshot(data, path).parent_id == parent_id:
            break
        try:
            assets.store.put(path, with_parent(data, path, parent_id, assets.compression_level), if_match=data.etag)
        except (PreconditionFailed, StoreUnavailable):
            # Another client rewrote it, or the outcome is unknown: the object that is there now decides.
            continue
        break
    else:
        raise DamagedObject(
            path, f"it was rewritten {_TRIES} times by others, or could not be: expire the snapshots again"
        )
    assets.forget_snapshot(snapshot_id)


def _delete_ref(layout: LayoutV1, tip: Ref, *, branches: bool, tags: bool) -> None:
    if not (tags if tip.kind is RefKind.TAG else branches and tip.name != MAIN):
        return
    try:
        now = layout.lookup(tip.kind, tip.name)
        if now.snapshot_id != tip.snapshot_id:
            raise ConflictError(
                f"the {tip.kind.value} {tip.name} moved while its old snapshots were expired, and was not "
                "deleted: expire the snapshots again",
                expected_parent=encode_id(tip.snapshot_id),
                actual_parent=encode_id(now.snapshot_id),
            )
        if tip.kind is RefKind.TAG:
            layout.delete_tag(tip.name)
        else:
            layout.delete_branch(tip.name)
    except RefNotFound:
        return
