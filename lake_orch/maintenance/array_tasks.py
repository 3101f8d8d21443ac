"""Maintenance tasks of arrays, and garbage collection of repositories outside a lake."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from lake_orch.assets.arrays.settings import SNAPSHOT
from lake_orch.maintenance.health import ArrayHealth, array_health
from lake_orch.maintenance.tasks import Task, TaskContext, rewrite_in_lake, until_undisturbed
from lake_pipes.metadata import COMMIT

_MAIN = "main"
_UNCOMMITTED = timedelta(days=8)
"""How long unreferenced objects are kept, because an open session may have written them. It is the same in a lake."""


def snapshot_expiry(context: TaskContext) -> dict[str, Any]:
    """Remove snapshots past the retention from the history.

    In a lake this only ends the retention: its garbage collection deletes.
    """
    repository, dry_run = context.repository(), context.config.dry_run
    older_than = datetime.now(UTC) - context.target.snapshot_retention
    metadata: dict[str, Any] = {"lake/older_than": older_than.isoformat(timespec="seconds")}
    if not context.lake.is_lake():
        newest = repository.lookup_branch(_MAIN)
        # The newest snapshot is kept at any age.
        expired = repository.expire_snapshots(older_than, dry_run=dry_run) - {newest}
        return {**metadata, "lake/expired_snapshots": len(expired), "lake/due": bool(expired), SNAPSHOT: newest}
    if not dry_run:
        with context.lake.open().session(
            context.branch, message=f"Expire snapshots of {context.target.path}"
        ) as session:
            session.icechunk(context.target.path).expire_snapshots(older_than)
    return {**metadata, SNAPSHOT: repository.lookup_branch(_MAIN)}


def manifest_rewrite(context: TaskContext) -> dict[str, Any]:
    """Merge small manifests if there are many. Readers open every manifest that lists their chunks."""
    before = array_health(context.repository())
    due = before.mergeable_manifests >= context.target.max_mergeable_manifests
    if context.config.dry_run or not due:
        return {**_manifests(before), "lake/due": due}
    commit = _rewrite(context)
    after = _manifests(array_health(context.repository()))
    return {**after, "lake/manifests_before": before.manifests, "lake/due": due} | ({COMMIT: commit} if commit else {})


def _rewrite(context: TaskContext) -> str | None:
    """Rewrite manifests in a separate commit. Concurrent commits take precedence."""
    from lake_core.icechunk import ConflictError  # needs the extra `arrays`

    message = f"Rewrite manifests of {context.target.path}"
    if context.lake.is_lake():
        _, commit = rewrite_in_lake(
            context,
            message,
            lambda session: session.icechunk(context.target.path).rewrite_manifests(message, branch=_MAIN),
        )
        return commit
    until_undisturbed(lambda: context.repository().rewrite_manifests(message, branch=_MAIN), ConflictError)
    return None


def _manifests(health: ArrayHealth) -> dict[str, Any]:
    return {
        "lake/manifests": health.manifests,
        "lake/mergeable_manifests": health.mergeable_manifests,
        SNAPSHOT: health.snapshot,
    }


ARRAY_TASKS: Mapping[str, Task] = {"snapshot_expiry": snapshot_expiry, "manifest_rewrite": manifest_rewrite}


def collect_repository(context: TaskContext) -> dict[str, int] | None:
    """Delete objects that no branch or tag of a repository outside a lake reaches."""
    from lake_core.icechunk.errors import RepositoryNotFound  # needs the extra `arrays`

    try:
        repository = context.repository()
    except RepositoryNotFound:
        # Its asset is not materialized yet.
        return None
    summary = repository.garbage_collect(datetime.now(UTC) - _UNCOMMITTED, dry_run=context.config.dry_run)
    counts = (
        summary.chunks_deleted,
        summary.manifests_deleted,
        summary.snapshots_deleted,
        summary.transaction_logs_deleted,
    )
    return {
        "lake/reclaimed_files": sum(counts),
        "lake/reclaimed_bytes": summary.bytes_deleted,
        "lake/reclaimed_snapshots": summary.snapshots_deleted,
    }
