"""Operations on a repository that this package and icechunk 2 have by the same names, with results as JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import zarr

from tests.icechunk.operations import OPERATIONS, create_base, state


class Driver:
    """The repository in a folder, opened anew for each operation, by one of the two packages."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def storage(self, path: str) -> Any:
        return self.module.local_filesystem_storage(path)

    def open(self, path: str) -> Any:
        return self.module.Repository.open(self.storage(path))

    def create(self, path: str, version: int) -> None:
        self.module.Repository.create(self.storage(path), spec_version=version)

    def base(self, path: str) -> str:
        session = self.open(path).writable_session("main")
        create_base(session)
        return str(session.commit("base", {"n": 1, "list": [1.5, None, "x"]}))

    def commit(self, path: str, operation: str, value: int, branch: str = "main", solver: str | None = None) -> str:
        session = self.open(path).writable_session(branch)
        OPERATIONS[operation](session, "side", value)
        return str(session.commit(operation, rebase_with=self._solver(solver) if solver else None))

    def commits(self, path: str, count: int, first: int) -> list[str]:
        """Write a node each in many commits that rebase over those of others."""
        ids = []
        for number in range(first, first + count):
            session = self.open(path).writable_session("main")
            zarr.create_group(session.store, path=f"n{number}")
            ids.append(str(session.commit(f"n{number}", rebase_with=self.module.ConflictDetector())))
        return ids

    def amend(self, path: str, operation: str, value: int) -> str:
        session = self.open(path).writable_session("main")
        OPERATIONS[operation](session, "side", value)
        return str(session.amend(f"amended: {operation}", metadata={"amended": True}))

    def move(self, path: str, moves: list[list[str]]) -> str:
        session = self.open(path).rearrange_session("main")
        for old, new in moves:
            session.move(old, new)
        return str(session.commit("moved"))

    def flush(self, path: str, operation: str) -> str:
        session = self.open(path).writable_session("main")
        OPERATIONS[operation](session, "side", 7)
        return str(session.flush("detached"))

    def call(self, path: str, name: str, *arguments: Any) -> Any:
        result = getattr(self.open(path), name)(*arguments)
        return sorted(result) if isinstance(result, set) else result if isinstance(result, str | dict) else None

    def set_config(self, path: str, threshold: int, updates: int) -> None:
        repository = self.open(path)
        config = repository.config
        config.inline_chunk_threshold_bytes = threshold
        config.num_updates_per_repo_info_file = updates
        self.module.Repository.open(self.storage(path), config=config).save_config()

    def set_status(self, path: str, availability: str, reason: str | None) -> None:
        kind = getattr(self.module.RepoAvailability, availability)
        self.open(path).set_status(self.module.RepoStatus(kind, limited_availability_reason=reason))

    def expire(self, path: str, before: float | None, branches: bool, tags: bool) -> list[str]:
        time = datetime.now(UTC) if before is None else datetime.fromtimestamp(before, UTC)
        repository = self.open(path)
        return sorted(repository.expire_snapshots(time, delete_expired_branches=branches, delete_expired_tags=tags))

    def collect(self, path: str) -> dict[str, int]:
        summary = self.open(path).garbage_collect(datetime.now(UTC) + timedelta(hours=1))
        names = ("chunks_deleted", "manifests_deleted", "snapshots_deleted", "transaction_logs_deleted")
        return {name: getattr(summary, name) for name in names}

    def upgrade(self, path: str) -> None:
        self.module.upgrade_icechunk_repository(self.open(path), dry_run=False)

    def state(self, path: str, branch: str = "main", snapshot: str | None = None) -> dict[str, Any]:
        repository = self.open(path)
        session = repository.readonly_session(snapshot_id=snapshot) if snapshot else repository.readonly_session(branch)
        return state(session)

    def diff(self, path: str, older: str, newer: str) -> dict[str, Any]:
        found = self.open(path).diff(from_snapshot_id=older, to_snapshot_id=newer)
        kinds = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays", "updated_groups", "updated_arrays")
        chunks = {path: sorted(map(list, indexes)) for path, indexes in found.updated_chunks.items()}
        moved = [list(move) for move in found.moved_nodes]
        return {**{kind: sorted(getattr(found, kind)) for kind in kinds}, "chunks": chunks, "moved": moved}

    def describe(self, path: str) -> dict[str, Any]:
        """Return all that a repository of version 2 is, but for its data."""
        repository = self.open(path)
        status = repository.status
        return {
            "branches": {name: repository.lookup_branch(name) for name in repository.list_branches()},
            "tags": {name: repository.lookup_tag(name) for name in repository.list_tags()},
            "history": {
                name: [
                    [each.id, each.parent_id, each.message, each.metadata, each.written_at.isoformat()]
                    for each in repository.ancestry(branch=name)
                ]
                for name in repository.list_branches()
            },
            "log": [
                [type(update.kind).__name__.rpartition("_")[2], update.updated_at.isoformat()]
                for update in repository.ops_log()
            ],
            "status": [status.availability.value, status.limited_availability_reason]
            if hasattr(status.availability, "value")
            else [int(status.availability), status.limited_availability_reason],
            "metadata": repository.metadata,
            "flags": sorted([flag.id, flag.setting] for flag in repository.feature_flags()),
            "threshold": repository.config.inline_chunk_threshold_bytes,
        }

    def conflicts(self, path: str, base: str, ours: Any, theirs: Any, solver: str) -> dict[str, Any]:
        """Return the conflicts of two changes, each the name of an operation or a list of moves, or the state."""
        repository = self.open(path)
        branch = f"b{abs(hash((str(ours), str(theirs), solver)))}"
        repository.create_branch(branch, base)
        session = self._changed(repository, branch, ours, 100)
        if session.has_uncommitted_changes:
            other = self._changed(repository, branch, theirs, 200)
            if other.has_uncommitted_changes:
                other.commit("theirs")
            try:
                session.commit("ours", rebase_with=self._solver(solver))
            except self.module.RebaseFailedError as error:
                return {"conflicts": sorted(map(_listed, error.conflicts))}
        return {"state": state(repository.readonly_session(branch))}

    def _changed(self, repository: Any, branch: str, change: Any, value: int) -> Any:
        if isinstance(change, str):
            session = repository.writable_session(branch)
            OPERATIONS[change](session, "side", value)
            return session
        session = repository.rearrange_session(branch)
        for old, new in change:
            session.move(old, new)
        return session

    def _solver(self, name: str) -> Any:
        return getattr(self.module, name)()


def _listed(conflict: Any) -> list[Any]:
    kind = conflict.conflict_type
    name = kind.name if isinstance(getattr(kind, "name", None), str) else str(kind)
    chunks = conflict.conflicted_chunks
    plain = name.replace("_", "").replace(" ", "").rpartition(".")[2].lower()
    return [plain, conflict.path, *([] if chunks is None else [sorted(map(list, chunks))])]
