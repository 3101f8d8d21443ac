"""Commits: what a change becomes on a branch, but for the entry of the refs journal that makes it one."""

from __future__ import annotations

import json
from itertools import islice

from lake_core.graveler import Commit
from lake_core.lake.errors import Collected
from lake_core.lake.publish.change import Change
from lake_core.lake.publish.tree_update import TreeUpdate, write_tree
from lake_core.lake.refs.commit_record import DATASETS_FIELD
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.repository import Repository

RESOLVED_FIELD = "resolved"
"""The field of a merge's metadata that tells of which datasets and keys its strategy took one side: JSON, path → kind of the conflict."""
_RESOLVED = 100
"""Of them, how many a commit names."""


def write_commit(repository: Repository, refs: RefsState, change: Change, head: Commit, update: TreeUpdate) -> Commit:
    """Write what a commit consists of, but for the entry that makes it one. Raises Collected."""
    pending = repository.pending_deletions(refs)
    gone = next((key for key in update.references if pending(key)), None)
    if gone is not None:
        raise Collected(f"{gone}, which this would bring back, is being collected: its commit is past the retention")
    onto = update.onto
    if update.taken and any(pending.range(name) for name in repository.graveler.names(onto)):
        # What the session built on its own may stand under names that are being collected.
        onto = repository.graveler.build("", ((record.key, record) for record in repository.graveler.scan(onto)), avoid=pending.range).tree
    tree = write_tree(repository, onto, update.items, pending)
    datasets = {path: dataset.to_json() for path, dataset in update.datasets.items()}
    metadata = dict(change.metadata)
    if datasets:
        metadata[DATASETS_FIELD] = json.dumps(datasets, separators=(",", ":"), ensure_ascii=False)
    if update.resolved:
        metadata[RESOLVED_FIELD] = json.dumps(dict(islice(update.resolved.items(), _RESOLVED)), ensure_ascii=False)
    if change.session is not None:
        metadata["session"] = change.session
    parents = [head, *(refs.commit(parent) for parent in change.parents)]
    # Ids hold whole seconds: two equal changes within one are told apart.
    metadata["at"] = repository.clock().isoformat(timespec="microseconds")
    return Commit.create(repository.committer, change.message, repository.clock(), tree, metadata=metadata, parents=parents)
