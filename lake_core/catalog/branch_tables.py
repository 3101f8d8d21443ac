"""Plain Delta tables of a branch other than main, for engines that read folders.

The data files of all branches are in the same folders, but only main's logs are. So each table of a branch gets a log
elsewhere: a shallow clone in `_lake/branches/<branch>/<location>/<path>`, which names the files by their URLs. Each
sync adds one commit, with what differs. A clone records the entry of the refs journal that it shows, as a txn action,
so that a sync which was held up never takes it back; of two syncs at once, the later one starts again. The log of a
table that the branch no longer has stays, and shows no rows. The logs of a branch that was deleted are removed once
each schema has dropped its tables.

A sync that removes the logs of a branch while it is created again may damage them. The sync that follows makes them
anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lake_core import runtime
from lake_core.backoff import Backoff
from lake_core.catalog.errors import CatalogChanged
from lake_core.clock import now_ms
from lake_core.delta.action import SetTransaction
from lake_core.delta.commit_actions import commit_info, encode_operation
from lake_core.delta.commit_file import encode_actions, read_commit_info
from lake_core.delta.commit_range import log_etag
from lake_core.delta.errors import (
    CorruptCheckpoint,
    CorruptCommit,
    LogGap,
    MissingMetadata,
    MissingProtocol,
    TableNotFound,
)
from lake_core.delta.log_segment import LAST_CHECKPOINT, commit_key
from lake_core.delta.operations.clone import empty, follow
from lake_core.delta.snapshot import load_snapshot
from lake_core.delta.table import DeltaTable
from lake_core.delta.transaction import Committed
from lake_core.errors import AlreadyExists
from lake_core.store import FolderStore

if TYPE_CHECKING:
    from lake_core.delta.snapshot import Snapshot
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore
    from lake_core.store import ObjectStore

_FOLDER: Final = "_lake/branches"
_SCHEMAS: Final = "_lake_schemas"
"""The folder of the records of the schemas that show a branch. No table's path begins like that."""
_LOG: Final = "/_delta_log/"
_TRIES: Final = 10
_BACKOFF: Final = Backoff(0.05, 2.0)
_DAMAGED: Final = (LogGap, CorruptCommit, CorruptCheckpoint, MissingProtocol, MissingMetadata)


def published_branches(root: ObjectStore) -> list[str]:
    """List the branches of which there are folders, also those that were deleted."""
    return [re.sub("~([a-z])", lambda match: match[1].upper(), name) for name in root.list_folders(f"{_FOLDER}/")]


@dataclass(frozen=True, slots=True)
class BranchTables:
    """The tables of a branch in folders that plain engines read."""

    repository: Repository
    branch: str
    location: str
    """The URL of the lake as the readers open it. Tables for other readers are in other folders."""

    @property
    def folder(self) -> str:
        """Return the folder of the tables in the lake. Folders of branches also differ where letter case does not."""
        branch = re.sub("[A-Z]", lambda match: f"~{match[0].lower()}", self.branch)
        return f"{_FOLDER}/{branch}/{hashlib.sha256(self.location.encode()).hexdigest()[:12]}"

    @property
    def url(self) -> str:
        """Return the URL of the folder as the readers open it. Below it the tables have the same paths as in main."""
        return f"{self.location}/{self.folder}"

    def join(self, kind: str, schema: str) -> None:
        """Record that a schema of a kind of catalog shows these tables."""
        if not self.has_joined(kind, schema):
            record = {"branch": self.branch, "location": self.location, "catalog": kind, "schema": schema}
            self.repository.root.put(self._record(kind, schema), json.dumps(record).encode())

    def has_joined(self, kind: str, schema: str) -> bool:
        """Return whether a schema is recorded."""
        return self.repository.root.exists(self._record(kind, schema))

    def leave(self, kind: str, schema: str) -> None:
        """Forget a schema that has dropped the tables of a deleted branch. The last one removes the logs."""
        root = self.repository.root
        root.delete([self._record(kind, schema)])
        keys = [meta.key for meta in root.list(f"{self.folder}/")]
        is_last = not any(key.startswith(f"{self.folder}/{_SCHEMAS}/") for key in keys)
        if is_last and self.branch not in self.repository.refs().branches():
            root.delete([key for key in keys if _LOG in key])

    def _record(self, kind: str, schema: str) -> str:
        name = hashlib.sha256(json.dumps([kind, schema]).encode()).hexdigest()[:32]
        return f"{self.folder}/{_SCHEMAS}/{name}.json"

    def publish(self, path: str, refs: RefsState, state: StateStore, *, moved: bool = False) -> bool:
        """Make the clone of a table show a state of the branch: no rows if the state has no such table.

        Args:
            path: The table's path in the lake.
            refs: The refs.
            state: The branch as of these refs.
            moved: Whether the refs may be older than those that were published, because the lake was restored.

        Returns:
            Whether the clone was behind, or shows a later state than this one.

        Raises:
            DeltaError: The table cannot be read, or cannot be cloned.
            CatalogChanged: Other syncs were faster at each try.
        """
        store = FolderStore(self.repository.root, f"{self.folder}/{path}")
        etag = ""
        if path in state.datasets():
            source = state.dataset(path, "delta")
            etag = log_etag(source, source.format.version(source) or 0) or ""
        application = f"lake {self.repository.format.id} branch {self.branch}"
        for tries in range(1, _TRIES + 1):
            current = self._current(store)
            if current is None and not etag:
                return False
            if current is not None:
                shown = current.transaction_version(application)
                if shown is not None and shown > refs.number and not moved:
                    return True
                info = read_commit_info(current.version, store.get(commit_key(current.version)))
                if info.get("lakeLog") == etag:
                    return False
            now = now_ms(self.repository.clock)
            if etag:
                # DuckDB reads local files outside of the table's folder only if they are named without a scheme.
                files = f"{self.location.removeprefix('file://')}/{path}"
                operation = follow(current, state.delta(path).snapshot, [files], now)
            else:
                assert current is not None
                operation = empty(current)
            operation = replace(operation, transaction=SetTransaction(application, refs.number))
            info = commit_info(operation, current, store, str(runtime.uuid4()), now)
            info |= {"lakeBranch": self.branch, "lakeCommit": refs.branch(self.branch), "lakeLog": etag}
            body = encode_actions([("commitInfo", info)]) + encode_operation(operation, current, now)
            version = 0 if current is None else current.version + 1
            try:
                store.put(commit_key(version), body, if_absent=True)
            except AlreadyExists:
                _BACKOFF.wait(tries)
                continue
            snapshot = load_snapshot(store, 0) if current is None else current.advanced([(version, body)])
            DeltaTable.at(snapshot, self.repository.clock).follow_up(Committed(snapshot, version), adds_are_new=False)
            return True
        raise CatalogChanged(f"other syncs wrote {store.url()} at each of {_TRIES} tries: run the sync again")

    def _current(self, store: ObjectStore) -> Snapshot | None:
        """Return the clone as it is. What is left of a log of which a part was removed is removed, too."""
        left = [LAST_CHECKPOINT]
        with suppress(TableNotFound, *_DAMAGED):
            try:
                return load_snapshot(store)
            except _DAMAGED:
                left = [meta.key for meta in store.list("_delta_log/")]
            return load_snapshot(store)  # another sync may have begun a new log before the listing
        store.delete(left)
        return None
