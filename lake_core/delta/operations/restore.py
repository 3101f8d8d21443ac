"""RESTORE: commit the state of an earlier version as a new version.

Txn actions are restored too, so that writes that were undone can run again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.delta.clustering import DOMAIN as CLUSTERING_DOMAIN
from lake_core.delta.column_mapping import with_highest_id
from lake_core.delta.conflict import Reads
from lake_core.delta.deletion_vector import locate_vector, vector_keys
from lake_core.delta.difference import difference
from lake_core.delta.errors import DataFileMissing
from lake_core.delta.features import MANAGED, PROTECTED_BEFORE, supported_features, upgraded
from lake_core.delta.operation import Operation
from lake_core.delta.operations.rewrite import check_not_append_only, sizes
from lake_core.delta.path import data_keys, locate
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_FEW = 64


def restore(snapshot: Snapshot, target: Snapshot, now: int) -> Operation | None:
    """Plan the restore of an earlier snapshot of the same table. `now` is in milliseconds.

    Schema, properties and clustering are restored. Features that were dropped since come back, as the files and the
    definition of then may need them; those that were added stay. A table that a lake has released stays released.
    Returns None if nothing differs.

    Raises AppendOnlyTable; DataFileMissing if a file of that version was vacuumed.
    """
    check_not_append_only(snapshot)
    files = target.files(["path", "size"])
    change = difference(snapshot, target)
    removes, restored = change.removes, change.adds
    _check_present(snapshot.roots, restored, target.version)
    markers = [replace(marker, last_updated=now) for marker in change.markers]
    configuration = with_highest_id(target.metadata.configuration, snapshot.metadata.configuration)
    if PROTECTED_BEFORE in snapshot.metadata.configuration:
        configuration = {**configuration, PROTECTED_BEFORE: snapshot.metadata.configuration[PROTECTED_BEFORE]}
    metadata = replace(target.metadata, configuration=configuration)
    redefined = metadata != snapshot.metadata
    domains = [domain for domain in change.domains if domain.domain == CLUSTERING_DOMAIN]
    dropped = supported_features(target.protocol) - supported_features(snapshot.protocol) - {MANAGED}
    protocol = upgraded(snapshot.protocol, dropped if redefined or domains or len(restored) else ())
    if not (len(removes) or len(restored) or markers or redefined or domains):
        return None
    metrics = {
        "numRestoredFiles": len(restored),
        "numRemovedFiles": len(removes),
        "restoredFilesSize": sizes(restored),
        "removedFilesSize": sizes(removes),
        "tableSizeAfterRestore": sizes(files),
        "numOfFilesAfterRestore": len(files),
    }
    operation = Operation(
        "RESTORE",
        {"version": str(target.version)},
        snapshot,
        metrics,
        restored=restored,
        removes=removes,
        reads=Reads.WHOLE_TABLE,
        markers=markers,
        domains=domains,
    )
    return operation.defining(metadata, protocol)


def _check_present(roots: Sequence[ObjectStore], files: pa.Table, version: int) -> None:
    missing: list[str] = []
    for root, keys in _keys_by_root(roots, files).items():
        if len(keys) <= _FEW:
            missing += [key for key in keys if not _exists(roots[root], key)]
        else:
            present = {meta.key for meta in roots[root].list()}
            missing += [key for key in keys if key not in present]
    if missing:
        raise DataFileMissing(
            f"version {version} cannot be restored: {len(missing)} of its data files were vacuumed, such as "
            f"{missing[0]}. Restore a later version, or restore the files from a backup"
        )


def _keys_by_root(roots: Sequence[ObjectStore], files: pa.Table) -> dict[int, list[str]]:
    """Return the keys of the files and of their deletion vectors, by the number of the root that they are under."""
    if len(roots) == 1:
        return {0: [*data_keys(files["path"], roots[0]).to_pylist(), *sorted(vector_keys(files, roots[0]))]}
    keys: dict[int, list[str]] = {}
    vectors = [
        locate_vector(vector, roots)
        for vector in files["deletionVector"].drop_null().to_pylist()
        if vector["storageType"] != "i"
    ]
    for root, key in [*(locate(path, roots) for path in files["path"].to_pylist()), *sorted(set(vectors))]:
        keys.setdefault(root, []).append(key)
    return keys


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except NotFound:
        return False
    return True
