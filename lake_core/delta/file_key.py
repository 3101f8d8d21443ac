"""The identity of files in a table's log (section File identity of the Delta protocol)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.action_fields import ADD_FIELDS, with_fields
from lake_core.delta.path import same_paths

_IDENTITY = [(name, kind) for name, kind in ADD_FIELDS if name in ("path", "deletionVector")]


def file_key(table: pa.Table | pa.RecordBatch) -> pa.ChunkedArray:
    """Return each file action's identity: its path, with its deletion vector's id if any (section File identity).

    Paths of one file are equal, however they are spelled.
    """
    path = same_paths(table["path"])
    if "deletionVector" not in table.column_names or table["deletionVector"].null_count == len(table):
        return path
    vector = table["deletionVector"]
    offset = pc.coalesce(pc.struct_field(vector, "offset").cast(pa.string()), scalar(""))
    parts = [path, pc.struct_field(vector, "storageType"), pc.struct_field(vector, "pathOrInlineDv"), offset]
    return pc.coalesce(pc.binary_join_element_wise(*parts, "\x00"), path)


def identity(files: pa.Table) -> pa.Table:
    """Return the columns that `file_key` reads of file actions."""
    return with_fields(files, _IDENTITY)
