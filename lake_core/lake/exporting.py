"""A lake's commits as a lakeFS repository: whole trees, in which datasets are the files that they consist of."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from lake_core.graveler.export import Exported, export_commits
from lake_core.lake.errors import FolderInUse
from lake_core.lake.lake_format import FORMAT_KEY
from lake_core.lake.state.content import digest_of, item_of, reference
from lake_core.lake.state.view import RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.graveler import Commit, Entry, Record
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore
    from lake_core.store import ObjectStore

_MARKER = "_lakefs/lake-orch-export.json"
"""The marker that names the exported lake. It is written first, so that an interrupted export can be repeated."""
_EXPORTED = re.compile(
    rf"_lakefs/(?:[0-9a-f]{{64}}|refs_manifest\.json)|data/[0-9a-f]{{4}}/[0-9a-f]{{64}}|{re.escape(_MARKER)}"
)


def export(
    repository: Repository,
    commits: Sequence[Commit],
    target: ObjectStore,
    branches: dict[str, str],
    tags: dict[str, str],
) -> Exported:
    """Write commits, with their data files, into another store as lakeFS lays a repository out.

    Raises FolderInUse for a store that holds a lake, or more than an earlier export of this one, and what reading the
    lake raises.
    """
    _take(target, repository.format.id)
    content = repository.content

    def read(entry: Entry) -> bytes:
        if digest_of(entry.address) is not None or entry.metadata:
            return content.get(item_of(entry.record(b"")))
        return bytes(repository.root.get(entry.address))

    return export_commits(
        commits,
        target,
        records=lambda commit: _records(repository.commit_state(commit)),
        read=read,
        branches=branches,
        tags=tags,
    )


def _take(target: ObjectStore, lake: str) -> None:
    """Mark an empty target as this lake's export; go on with an earlier one."""
    if target.exists(FORMAT_KEY):
        raise FolderInUse(f"{target.url()} is a lake: export into an empty folder")
    marker = json.dumps({"lake": lake}).encode()
    is_ours = target.exists(_MARKER) and bytes(target.get(_MARKER)) == marker
    other = next((meta.key for meta in target.list() if not is_ours or not _EXPORTED.fullmatch(meta.key)), None)
    if other is not None:
        raise FolderInUse(
            f"{target.url()} holds {other!r}, which is not from an earlier export of this lake: "
            "export into an empty folder"
        )
    if not is_ours:
        target.put(_MARKER, marker)


def _records(state: StateStore) -> Iterator[Record]:
    """List a state's whole tree: plain files, and the logs and live data files of datasets, in key order."""
    records = {key.encode(): item.record(key) for key, item in state.view.list() if not key.startswith(RESERVED)}
    for path, dataset in state.datasets().items():
        view = state.folder_of(dataset)
        for inner in view.format.reachable(view, None):
            meta = view.place.head(inner)
            key = f"{path}/{inner}"
            records[key.encode()] = reference(key, meta.size, meta.etag, meta.last_modified).record(key)
    return iter([records[key] for key in sorted(records)])
