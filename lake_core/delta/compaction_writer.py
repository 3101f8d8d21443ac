"""Writing log compaction files (`x.y.compacted.json`): the actions of several commits that are still in force.

Readers read one instead of its commits. Protocol section: Log Compaction Files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.commit_actions import add_body, remove_body
from lake_core.delta.commit_file import encode_actions
from lake_core.delta.log_segment import compaction_key, list_log
from lake_core.delta.replay import live_files, tombstones, transactions
from lake_core.delta.snapshot import load_snapshot, read_entries, replay_singles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.commit_file import CommitRun
    from lake_core.delta.snapshot import Snapshot

_FEWEST_COMMITS = 2


def write_compaction(snapshot: Snapshot) -> str | None:
    """Compact the commits since the last checkpoint, and return the key of the file.

    Returns None if there are fewer than two of them, or if they change the partition columns, so that no reader could
    read the values of all files in the same way.
    """
    store = snapshot.store
    listing = list_log(store, end=snapshot.version)
    base = max((checkpoint.version for checkpoint in listing.checkpoints), default=-1)
    first = base + 1
    versions = range(first, snapshot.version + 1)
    if len(versions) < _FEWEST_COMMITS or any(version not in listing.commits for version in versions):
        return None
    before = None if base < 0 else load_snapshot(store, base).metadata
    commits = read_entries(store, [(version, version) for version in versions])
    _, _, runs, _ = replay_singles(commits, None, before)
    definitions = [run.metadata for run in runs if run.metadata is not None] + ([] if before is None else [before])
    if any(each.partition_columns != snapshot.partition_columns for each in definitions):
        return None
    key = compaction_key(first, snapshot.version)
    store.put(key, _encoded(runs))
    return key


def _encoded(runs: Sequence[CommitRun]) -> bytes:
    """Return the last action of each file, application and domain, the last protocol and the last metadata."""
    protocols = [run.protocol for run in runs if run.protocol is not None]
    definitions = [run.metadata for run in runs if run.metadata is not None]
    domains = {domain.domain: domain for run in runs for domain in run.domains}
    adds = live_files(None, runs, [name for name, _ in ADD_FIELDS], vectors=True)
    return encode_actions(
        [
            *(("protocol", protocol.to_json()) for protocol in protocols[-1:]),
            *(("metaData", metadata.to_json()) for metadata in definitions[-1:]),
            *(("txn", marker) for marker in transactions(None, runs).to_pylist()),
            *(("domainMetadata", domain.to_json()) for domain in domains.values()),
            *(("remove", remove_body(row)) for row in tombstones(None, runs).to_pylist()),
            *(("add", add_body(row)) for row in adds.to_pylist()),
        ]
    )
