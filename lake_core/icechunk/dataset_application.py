"""Applies the difference between two states of a dataset to the head of a branch of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.dataset import NOTHING, Applied, ApplyContext, DatasetConflict
from lake_core.icechunk.apply_difference import (
    AppliedSnapshot,
    SnapshotApplication,
    check_not_undone,
    is_recorded,
    raised_markers,
)
from lake_core.icechunk.config import RepositoryConfig
from lake_core.icechunk.dataset_state import MAIN_KEY, DatasetState, Settings, new_pointers
from lake_core.icechunk.difference import Difference, difference
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT
from lake_core.icechunk.repo_info import REPO_KEY
from lake_core.icechunk.repo_status import RepoAvailability
from lake_core.icechunk.snapshot import ArrayNode

if TYPE_CHECKING:
    from lake_core.icechunk.asset_manager import AssetManager


def _merged_settings(
    before: DatasetState | None, after: DatasetState, head: DatasetState, context: ApplyContext
) -> DatasetState:
    """Return the state whose settings the result has. Raises DatasetConflict if both sides changed them."""
    old = Settings(RepositoryConfig()) if before is None else before.settings()
    ours, theirs = after.settings(), head.settings()
    if ours in (old, theirs):
        return head
    if theirs != old:
        raise DatasetConflict(f"its configuration was changed on {context.onto} too", kind="ConfigChanged")
    return after


def applied_difference(
    assets: AssetManager,
    before: DatasetState | None,
    after: DatasetState,
    head: DatasetState | None,
    context: ApplyContext,
) -> Applied:
    """Apply the difference between two states to the head of main. Raises DatasetConflict."""
    if _is_read_only(head) and not (_is_read_only(before) and not _is_read_only(after)):
        raise DatasetConflict(
            f"its status on {context.onto} is read-only: set it to online there first", kind="ReadOnly"
        )
    overwrites = context.recreated or context.replaces
    settings = after if head is None or overwrites else _merged_settings(before, after, head, context)
    application = SnapshotApplication(
        assets, settings.repository_config(), context.now, _message(context), context.onto, context.dry_run
    )
    base = None if before is None else before.snapshot
    if head is None:
        applied = application.create(after.snapshot)
    elif overwrites:
        applied = application.replace(head.snapshot, after.snapshot)
    elif is_recorded(assets, base, after.snapshot, head.snapshot, context):
        raised = raised_markers(assets, base, after.snapshot)
        return Applied.skip(None, [(app_id, marker.version) for app_id, marker in raised.items()])
    else:
        if not (context.by_writes or context.in_session):
            check_not_undone(assets, base, after.snapshot, head.snapshot)
        first = assets.snapshot(INITIAL_SNAPSHOT) if before is None else before.snapshot
        change = application.change(first, after.snapshot, head.snapshot, shares_groups=before is None)
        is_same_version = head.info is not None or assets.layout.spec_version == 1
        if change is None and is_same_version and settings.settings() == head.settings():
            return Applied({}, None, NOTHING)
        applied = change or application.replace(head.snapshot, head.snapshot)  # only the configuration changed
    puts = _puts(assets, applied, head, settings, context)
    return Applied(puts, None, "WRITE", _summary(applied.difference), applied.references)


def _is_read_only(state: DatasetState | None) -> bool:
    info = None if state is None else state.info
    return info is not None and info.status.availability is RepoAvailability.read_only


def _puts(
    assets: AssetManager,
    applied: AppliedSnapshot,
    head: DatasetState | None,
    settings: DatasetState,
    context: ApplyContext,
) -> dict[str, bytes]:
    if context.dry_run:
        return {REPO_KEY if assets.layout.spec_version > 1 else MAIN_KEY: b""}
    return new_pointers(assets, head, settings, assets.snapshot(applied.snapshot_id), context.now)


def dropped(assets: AssetManager, before: DatasetState | None, head: DatasetState, context: ApplyContext) -> Applied:
    """Write an empty snapshot on top of the head, so that plain readers see that its arrays are gone.

    What takes back the creation of a repository that others have written to only erases what was written then.
    """
    message = "Taken out" if context.undoes else "Dropped"
    application = SnapshotApplication(
        assets, head.repository_config(), context.now, message, context.onto, context.dry_run
    )
    is_changed = before is not None and not difference(assets, before.snapshot, head.snapshot).is_empty()
    if before is not None and context.undoes and is_changed:
        taken = application.take_out(before.snapshot, head.snapshot)
        if taken is None:
            return Applied({}, None, NOTHING, is_kept=True)
        puts = _puts(assets, taken, head, head, context)
        return Applied(puts, None, "DELETE", _summary(taken.difference), taken.references, is_kept=True)
    if is_changed:
        raise DatasetConflict(f"these changes drop it, but it was changed on {context.onto}", kind="Rewritten")
    applied = application.replace(head.snapshot, assets.snapshot(INITIAL_SNAPSHOT))
    puts = _puts(assets, applied, head, head, context)
    return Applied(puts, None, "DROP", _summary(applied.difference), applied.references)


def _message(context: ApplyContext) -> str:
    return f"Session {context.session} of the lake" if context.session else f"Brought onto {context.onto}"


def _summary(changes: Difference) -> dict[str, int]:
    arrays = [isinstance(node, ArrayNode) for node in changes.created.values()]
    return {
        "arrays_added": sum(arrays),
        "arrays_removed": sum(isinstance(node, ArrayNode) for node in changes.deleted.values()),
        "chunks_written": sum(len(chunks.written) for chunks in changes.chunks.values()),
        "chunks_erased": sum(len(chunks.erased) for chunks in changes.chunks.values()),
    }
