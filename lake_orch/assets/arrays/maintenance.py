"""Maintenance of arrays, and garbage collection of repositories outside a lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lake_orch.assets.arrays.settings import SNAPSHOT
from lake_orch.assets.maintenance import (
    HealthCheck,
    Maintenance,
    TaskContext,
    at_most,
    check_least,
    retention_of,
    rewrite_dataset,
)
from lake_pipes.metadata import COMMIT

if TYPE_CHECKING:
    from lake_core.icechunk import Repository

_MAIN = "main"
_RETENTION = "30 days"
_UNCOMMITTED = timedelta(days=8)
"""How long unreferenced objects are kept, because an open session may have written them. It is the same in a lake."""


@dataclass(frozen=True, slots=True)
class ArrayHealth:
    """The health of an Icechunk repository at the newest snapshot of main."""

    snapshot: str
    chunks: int
    """Chunks that manifests refer to."""
    manifests: int
    mergeable_manifests: int
    """Manifests that could be merged with others."""
    snapshots: int | None
    """The number of stored snapshots, of any branch. It is None in a lake, which keeps those of main's history."""


def array_health(repository: Repository) -> ArrayHealth:
    """Measure a repository. Raises the errors of reading its newest snapshot."""
    newest = repository.lookup_branch("main")
    manifests = repository.list_manifest_files(newest)
    return ArrayHealth(
        snapshot=newest,
        chunks=sum(manifest.num_chunk_refs for manifest in manifests),
        manifests=len(manifests),
        mergeable_manifests=repository.mergeable_manifests("main"),
        snapshots=None if repository.storage.versioned else sum(1 for _ in repository.storage.list("snapshots/")),
    )


def _repository(context: TaskContext) -> Repository:
    repository: Repository = context.dataset()
    return repository


def snapshot_expiry(context: TaskContext) -> dict[str, Any]:
    """Remove snapshots past the retention from the history.

    In a lake this only ends the retention: its garbage collection deletes.
    """
    repository, dry_run = _repository(context), context.config.dry_run
    older_than = datetime.now(UTC) - retention_of(context.target, _RETENTION)
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
    before = array_health(_repository(context))
    due = before.mergeable_manifests >= context.target.max_mergeable_manifests
    if context.config.dry_run or not due:
        return {**_manifests(before), "lake/due": due}
    from lake_core.icechunk import ConflictError  # needs the extra `arrays`

    message = f"Rewrite manifests of {context.target.path}"
    _, commit = rewrite_dataset(
        context, message, lambda repository: repository.rewrite_manifests(message, branch=_MAIN), ConflictError
    )
    after = _manifests(array_health(_repository(context)))
    return {**after, "lake/manifests_before": before.manifests, "lake/due": due} | ({COMMIT: commit} if commit else {})


def _manifests(health: ArrayHealth) -> dict[str, Any]:
    return {
        "lake/manifests": health.manifests,
        "lake/mergeable_manifests": health.mergeable_manifests,
        SNAPSHOT: health.snapshot,
    }


def collect_repository(context: TaskContext) -> dict[str, Any]:
    """Delete objects that no branch or tag of a repository outside a lake reaches."""
    summary = _repository(context).garbage_collect(datetime.now(UTC) - _UNCOMMITTED, dry_run=context.config.dry_run)
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


def _measured(health: ArrayHealth) -> Mapping[str, Any]:
    return {
        SNAPSHOT: health.snapshot,
        "lake/num_chunks": health.chunks,
        "lake/manifests": health.manifests,
        "lake/mergeable_manifests": health.mergeable_manifests,
        **({} if health.snapshots is None else {"lake/snapshots": health.snapshots}),
    }


def _check(target: Any) -> None:
    retention_of(target, _RETENTION)
    check_least(target, "max_mergeable_manifests", 1)


ARRAYS = Maintenance(
    datasets="arrays",
    kind="icechunk",
    settings=frozenset({"retention", "max_mergeable_manifests"}),
    tasks={"snapshot_expiry": snapshot_expiry, "manifest_rewrite": manifest_rewrite},
    default_tasks=("manifest_rewrite", "snapshot_expiry"),
    measure=lambda repository, _: array_health(repository),
    metadata=_measured,
    checks=(
        HealthCheck(
            "mergeable_manifests",
            "run manifest_rewrite",
            lambda limits, _: f"Manifests that could be merged with others. Warns above {limits.mergeable_manifests:,}",
            at_most("mergeable_manifests"),
        ),
        HealthCheck(
            "snapshots",
            "run snapshot_expiry, then garbage_collection",
            lambda limits, _: (
                "Snapshots that are stored; none are counted in a lake, which keeps its history. "
                f"Warns above {limits.snapshots:,}"
            ),
            at_most("snapshots"),
        ),
    ),
    description="What the arrays {path} need, measured from their newest snapshot.",
    link="lake/arrays",
    check=_check,
    collect=collect_repository,
)
