"""CLONE: a new table of the rows of another one at a version: of its files (shallow), or of copies of them (deep).

A shallow clone names the files of its source by their absolute locations, and lives as long as these do. It may be made
to follow its source, one commit for each new state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core import runtime
from lake_core.arrow_scalar import scalar
from lake_core.delta.action import Protocol, SetTransaction
from lake_core.delta.action_fields import ADD_FIELDS, DELETION_VECTOR
from lake_core.delta.deletion_vector import locate_vector, vector_keys
from lake_core.delta.difference import changed_domains
from lake_core.delta.features import (
    CHECKPOINT_PROTECTION,
    MANAGED,
    PROTECTED_BEFORE,
    check_writable,
    supported_features,
    upgraded,
)
from lake_core.delta.file_key import file_key
from lake_core.delta.operation import Operation
from lake_core.delta.operations.rewrite import sizes
from lake_core.delta.path import data_keys, encode_path, locate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.delta.action import Metadata
    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_ADD = [name for name, _ in ADD_FIELDS]
_COPIES = 8
"""How many files are copied at a time."""
_OF_ITS_LOG = ("delta.inCommitTimestampEnablement", PROTECTED_BEFORE)
"""How the names of the properties begin that say something of a table's own log."""
_FEATURES_OF_THE_SOURCE = frozenset({MANAGED, CHECKPOINT_PROTECTION})
"""Features of the source's place in a lake, and of its own log."""


def clone(source: Snapshot, target: ObjectStore, now: int, *, shallow: bool) -> Operation:
    """Plan the first commit of a clone. A deep one copies the files before that, and records the same txn actions.

    Args:
        source: The table at the version to clone.
        target: The store of the new table.
        now: Milliseconds since the epoch.
        shallow: Whether the clone names the source's files.

    Raises:
        PathOutsideTable: The source of a deep clone names files of another table: clone that one.
    """
    if shallow:
        files = _located(source, [root.url() for root in source.roots])
    else:
        files = source.files(_ADD)
        keys = data_keys(files["path"], source.data_root).to_pylist()
        _copy([*keys, *vector_keys(files, source.data_root)], source.data_root, target.data_root)
        files = _with(files, "path", pa.array([encode_path(key) for key in keys], pa.string()))
        files = _with(files, "deletionVector", _copied_vectors(files, source.data_root, target.data_root))
    return Operation(
        "CLONE",
        _parameters(source),
        metrics={
            "sourceTableSize": sizes(files),
            "sourceNumOfFiles": len(files),
            "numCopiedFiles": 0 if shallow else len(files),
            "copiedFilesSize": 0 if shallow else sizes(files),
        },
        restored=_written_at(0, files),
        markers=[] if shallow else [SetTransaction.from_json(row) for row in source.transactions().to_pylist()],
        protocol=protocol_of_clone(source.protocol),
        metadata=_metadata(source, None, now),
        domains=source.domains,
    )


def follow(current: Snapshot | None, source: Snapshot, locations: Sequence[str], now: int) -> Operation:
    """Plan the commit after which a shallow clone is as its source: files, definition, domains, but no txn actions.

    The source may be another table than before. The protocol keeps the features that the clone once had: its older
    versions need them. It gets the feature of a lake's tables, so that nobody else writes to the clone.

    Args:
        current: The clone; None to create it.
        source: The table at the version to show.
        locations: The URL of each root of the source's files, as the readers of the clone open it.
        now: Milliseconds since the epoch.

    Raises:
        PathOutsideTable: The source names files that are under none of its roots.
        UnsupportedWriterFeature: The source has a feature that this writer does not support.
    """
    protocol = protocol_of_clone(source.protocol)
    check_writable(protocol, source.metadata, source.store)
    protocol = upgraded(protocol, {MANAGED})
    files = _located(source, locations)
    if current is None:
        adds, metadata = _written_at(0, files), _metadata(source, None, now)
        return Operation(
            "CLONE", _parameters(source), restored=adds, protocol=protocol, metadata=metadata, domains=source.domains
        )
    before = current.files(_ADD)
    adds = files.filter(pc.invert(pc.is_in(_state_key(files), value_set=_state_key(before))))
    removes = before.filter(pc.invert(pc.is_in(file_key(before), value_set=file_key(files))))
    metadata, protocol = _metadata(source, current, now), upgraded(current.protocol, supported_features(protocol))
    return Operation(
        "CLONE",
        _parameters(source),
        current,
        restored=_written_at(current.version + 1, adds, before),
        removes=removes,
        protocol=protocol if protocol != current.protocol else None,
        metadata=metadata if metadata != current.metadata else None,
        domains=changed_domains(current, source),
    )


def empty(current: Snapshot) -> Operation:
    """Plan the commit after which a clone has no rows, because its source is gone."""
    return Operation("DROP TABLE", {}, current, removes=current.files(_ADD))


def _parameters(source: Snapshot) -> dict[str, str]:
    return {"source": f"delta.`{source.store.url()}`", "sourceVersion": str(source.version)}


def _metadata(source: Snapshot, current: Snapshot | None, now: int) -> Metadata:
    """Return the definition of a clone: that of its source, but what says something of the source's own log."""
    kept = {key: value for key, value in source.metadata.configuration.items() if not key.startswith(_OF_ITS_LOG)}
    if current is None:
        return replace(source.metadata, id=str(runtime.uuid4()), created_time=now, configuration=kept)
    own = {key: value for key, value in current.metadata.configuration.items() if key.startswith(_OF_ITS_LOG)}
    id, created_time = current.metadata.id, current.metadata.created_time
    return replace(source.metadata, id=id, created_time=created_time, configuration={**kept, **own})


def _located(source: Snapshot, locations: Sequence[str]) -> pa.Table:
    """Return the files of a table by their absolute locations. `locations`: the URL of each of its roots."""
    files = source.files(_ADD)
    paths = [_url(*locate(path, source.roots), locations) for path in files["path"].to_pylist()]
    vectors = [_by_url(vector, source.roots, locations) for vector in files["deletionVector"].to_pylist()]
    files = _with(files, "path", pa.array(paths, pa.string()))
    return _with(files, "deletionVector", pa.array(vectors, DELETION_VECTOR))


def _written_at(version: int, files: pa.Table, before: pa.Table | None = None) -> pa.Table:
    """Return files whose rows are, if they have ids, of this version of the clone, or of that which they were of."""
    versions = pc.if_else(files["baseRowId"].is_valid(), scalar(version, pa.int64()), scalar(None, pa.int64()))
    if before is not None:
        then = before["defaultRowCommitVersion"].take(pc.index_in(files["path"], value_set=before["path"]))
        versions = pc.if_else(files["baseRowId"].is_valid(), pc.coalesce(then, versions), versions)
    return _with(files, "defaultRowCommitVersion", versions)


def _state_key(files: pa.Table) -> pa.ChunkedArray:
    """Return what differs if an add action says something new of its rows: the file, its vector, its row ids."""
    return pc.binary_join_element_wise(
        file_key(files), pc.coalesce(files["baseRowId"].cast(pa.string()), scalar("")), "\x00"
    )


def _with(files: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return files.set_column(files.schema.get_field_index(name), name, column)


def _url(number: int, key: str, locations: Sequence[str]) -> str:
    """Return the location of a file, as Hadoop has it: Spark compares locations of local files by their text."""
    url = f"{locations[number].rstrip('/')}/{key}"
    return encode_path(f"file:{url.removeprefix('file://')}" if url.startswith("file://") else url)


def _by_url(
    vector: Mapping[str, Any] | None, roots: Sequence[ObjectStore], locations: Sequence[str]
) -> Mapping[str, Any] | None:
    """Return the descriptor of a deletion vector that names its file by its location. That must have a scheme."""
    if vector is None or vector["storageType"] == "i":
        return vector
    url = _url(*locate_vector(vector, roots), locations)
    return {**vector, "storageType": "p", "pathOrInlineDv": f"file:{url}" if url.startswith("/") else url}


def _copied_vectors(files: pa.Table, source: ObjectStore, target: ObjectStore) -> pa.ChunkedArray | pa.Array:
    """Return the deletion vectors of copied files. Those that are named by their locations are in the new place."""
    vectors = files["deletionVector"]
    by_location = pc.equal(pc.struct_field(vectors, ["storageType"]), scalar("p"))
    if not pc.any(by_location).as_py():
        return vectors
    moved = [
        _by_url(vector, [source], [target.url()]) if is_moved else vector
        for vector, is_moved in zip(vectors.to_pylist(), by_location.to_pylist(), strict=True)
    ]
    return pa.array(moved, DELETION_VECTOR)


def _copy(keys: Sequence[str], source: ObjectStore, target: ObjectStore) -> None:
    with runtime.thread_pool(_COPIES) as pool:
        for _ in pool.map(lambda key: target.put(key, source.get(key)), keys):
            pass


def protocol_of_clone(protocol: Protocol) -> Protocol:
    """Return the protocol of a clone: it is in no lake, and its log holds no earlier version to protect."""
    if protocol.writer_features is None:
        return protocol
    return replace(protocol, writer_features=protocol.writer_features - _FEATURES_OF_THE_SOURCE)
