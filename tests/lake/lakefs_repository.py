"""A lakeFS repository in a storage namespace, as its server leaves it behind."""

from __future__ import annotations

import datetime as dt
import json

from lake_core.graveler import LAKEFS, Commit, Entry, Graveler
from lake_core.graveler.dump import write_dumps
from lake_core.store import ObjectStore

WHEN = dt.datetime(2025, 5, 6, 7, 8, 9, tzinfo=dt.UTC)


class RepositoryOfLakeFS:
    """A storage namespace as a lakeFS server writes it: objects under random names, trees, dumps of its refs."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.trees = Graveler(store, profile=LAKEFS)
        self.commits: dict[str, Commit] = {}
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}

    def put(self, name: str, body: bytes) -> Entry:
        address = f"data/gk3s/{name}"
        self.store.put(address, body)
        return Entry(address, len(body), f"md5-of-{body!r}", 1_700_000_000_000_000_000)

    def commit(self, branch: str, changes: dict[str, Entry | None], *parents: str) -> Commit:
        before = [self.commits[id] for id in (*([self.branches[branch]] if branch in self.branches else []), *parents)]
        encoded = {key.encode(): entry for key, entry in changes.items()}
        tree = self.trees.build(
            before[0].metarange_id if before else "",
            [(key, None if entry is None else entry.record(key)) for key, entry in sorted(encoded.items())],
        ).tree
        commit = Commit.create("admin", f"change {len(self.commits)}", WHEN, tree, metadata={"k": "v"}, parents=before)
        self.commits[commit.id] = commit
        self.branches[branch] = commit.id
        return commit

    def dump(self) -> None:
        manifest = write_dumps(self.trees, self.commits.values(), self.branches, self.tags)
        self.store.put("_lakefs/refs_manifest.json", json.dumps(manifest).encode())
