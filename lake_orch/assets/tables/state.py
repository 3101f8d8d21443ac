"""The state of a table after a write, from its log: sizes, rows, and the data version."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta import DeltaTable
from lake_core.delta.operations.rewrite import on_partitions_only
from lake_core.delta.scan import files_of_partitions, plan_scan
from lake_core.delta.skipping import num_records
from lake_core.delta.snapshot import Snapshot
from lake_core.expression import parse_predicate


@dataclass(frozen=True, slots=True)
class TableState:
    """A table, or a slice of it, at one version."""

    files: int
    bytes: int
    """The size of the data files."""
    rows: int | None
    """The number of rows. None if a file's statistics lack it."""
    slice_rows: int | None
    """The number of rows in the slice. None unless the slice is defined only by partition columns."""
    data_version: str
    """The data version of the slice. It changes only with the files and columns, not with every commit."""


def table_state(table: DeltaTable, where: str | None = None) -> TableState:
    """Return the state of a table, and of the slice that `where` selects. It reads the log, not the rows."""
    snapshot = table.snapshot
    files = snapshot.files([*snapshot.identity, "size", "stats"])
    slice_rows, part = None, files
    if where is not None:
        predicate = parse_predicate(where, table.schema)
        if on_partitions_only(predicate, table.metadata):
            part = files_of_partitions(snapshot, ["stats"], predicate)
            slice_rows = _rows(part)
        else:
            part = plan_scan(snapshot, [], predicate).files
    return TableState(
        len(files), int(pc.sum(files["size"]).as_py() or 0), _rows(files), slice_rows, _data_version(snapshot, part)
    )


def _rows(files: pa.Table) -> int | None:
    if not len(files):
        return 0
    counts = num_records(files["stats"])
    if counts.null_count:
        return None
    deleted = 0
    if "deletionVector" in files.column_names:
        deleted = int(pc.sum(pc.struct_field(files["deletionVector"], "cardinality")).as_py() or 0)
    return int(pc.sum(counts).as_py()) - deleted


def _data_version(snapshot: Snapshot, files: pa.Table) -> str:
    names: list[str] = files["path"].to_pylist()
    if "deletionVector" in files.column_names:
        vectors = files["deletionVector"]
        if vectors.null_count < len(vectors):
            for row, vector in enumerate(vectors.to_pylist()):
                if vector is not None:
                    names[row] += "\0" + json.dumps(vector, sort_keys=True, default=str)
    names.sort()
    columns = [(child.name, str(child.type)) for child in snapshot.metadata.arrow_schema]
    digest = hashlib.sha256(json.dumps([snapshot.metadata.id, columns]).encode())
    digest.update("\n".join(names).encode())
    return digest.hexdigest()[:32]
