"""CLONE: a new table of the rows of another one at a version: of its files (shallow), or of copies of them (deep).

A shallow clone names the files of its source by their absolute locations, and lives as long as these do.
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
from lake_core.delta.features import CHECKPOINT_PROTECTION, MANAGED, PROTECTED_BEFORE
from lake_core.delta.operation import Operation
from lake_core.delta.operations.rewrite import sizes
from lake_core.delta.path import data_keys, encode_path, locate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_COPIES = 8
"""How many files are copied at a time."""
_OF_THE_SOURCE = ("delta.inCommitTimestampEnablement", PROTECTED_BEFORE)
"""How the names of the properties begin that say something of the source's own log."""
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
    files = source.files([name for name, _ in ADD_FIELDS])
    paths, vectors = files["path"], files["deletionVector"]
    if shallow:
        paths = [_url(*locate(path, source.roots), source.roots) for path in paths.to_pylist()]
        vectors = [_by_url(vector, source.roots) for vector in vectors.to_pylist()]
    else:
        keys = data_keys(paths, source.data_root).to_pylist()
        _copy([*keys, *vector_keys(files, source.data_root)], source.data_root, target.data_root)
        paths = [encode_path(key) for key in keys]
    columns = {"path": pa.array(paths, pa.string()), "deletionVector": _column(vectors)}
    columns["defaultRowCommitVersion"] = pc.if_else(
        files["baseRowId"].combine_chunks().is_valid(), scalar(0, pa.int64()), scalar(None, pa.int64())
    )
    for name, column in columns.items():
        files = files.set_column(files.schema.get_field_index(name), name, column)
    configuration = source.metadata.configuration
    return Operation(
        "CLONE",
        {"source": f"delta.`{source.store.url()}`", "sourceVersion": str(source.version)},
        metrics={
            "sourceTableSize": sizes(files),
            "sourceNumOfFiles": len(files),
            "numCopiedFiles": 0 if shallow else len(files),
            "copiedFilesSize": 0 if shallow else sizes(files),
        },
        restored=files,
        markers=[] if shallow else [SetTransaction.from_json(row) for row in source.transactions().to_pylist()],
        protocol=protocol_of_clone(source.protocol),
        metadata=replace(
            source.metadata,
            id=str(runtime.uuid4()),
            created_time=now,
            configuration={key: value for key, value in configuration.items() if not key.startswith(_OF_THE_SOURCE)},
        ),
        domains=source.domains,
    )


def _url(number: int, key: str, roots: Sequence[ObjectStore]) -> str:
    """Return the location of a file, as Hadoop has it: Spark compares locations of local files by their text."""
    url = f"{roots[number].url().rstrip('/')}/{key}"
    return encode_path(f"file:{url.removeprefix('file://')}" if url.startswith("file://") else url)


def _by_url(vector: Mapping[str, Any] | None, roots: Sequence[ObjectStore]) -> Mapping[str, Any] | None:
    """Return the descriptor of a deletion vector that names its file by its location."""
    if vector is None or vector["storageType"] == "i":
        return vector
    return {**vector, "storageType": "p", "pathOrInlineDv": _url(*locate_vector(vector, roots), roots)}


def _column(vectors: pa.ChunkedArray | Sequence[Mapping[str, Any] | None]) -> pa.Array | pa.ChunkedArray:
    return vectors if isinstance(vectors, pa.ChunkedArray) else pa.array(vectors, DELETION_VECTOR)


def _copy(keys: Sequence[str], source: ObjectStore, target: ObjectStore) -> None:
    with runtime.thread_pool(_COPIES) as pool:
        for _ in pool.map(lambda key: target.put(key, source.get(key)), keys):
            pass


def protocol_of_clone(protocol: Protocol) -> Protocol:
    """Return the protocol of a clone: it is in no lake, and its log holds no earlier version to protect."""
    if protocol.writer_features is None:
        return protocol
    return replace(protocol, writer_features=protocol.writer_features - _FEATURES_OF_THE_SOURCE)
