"""A lake's commits as a lakeFS repository: whole trees, in which datasets are the files that they consist of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lake_core.graveler import Commit, Entry, Record
from lake_core.graveler.export import Exported, export_commits
from lake_core.lake.content import digest_of, item_of, reference
from lake_core.lake.repository import Repository
from lake_core.lake.state_store import StateStore
from lake_core.lake.view import RESERVED
from lake_core.store import ObjectStore


def export(
    repository: Repository, commits: Sequence[Commit], target: ObjectStore, branches: dict[str, str], tags: dict[str, str]
) -> Exported:
    """Write commits, with their data files, into another store as lakeFS lays a repository out. Raises what reading the lake raises."""
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


def _records(state: StateStore) -> Iterator[Record]:
    """A state's whole tree: plain files, and the logs and live data files of datasets, in the order of their keys."""
    records = {key.encode(): item.record(key) for key, item in state.view.list() if not key.startswith(RESERVED)}
    for path, dataset in state.datasets().items():
        view = state.folder_of(dataset)
        for inner in view.resolver.reachable(view, None):
            meta = view.place.head(inner)
            key = f"{path}/{inner}"
            records[key.encode()] = reference(key, meta.size, meta.etag, meta.last_modified).record(key)
    return iter([records[key] for key in sorted(records)])
