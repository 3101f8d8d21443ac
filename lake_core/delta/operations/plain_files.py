"""Data files without traces of a feature: all rows are written anew by a definition that no longer needs it.

Protocol sections: Column Mapping, Type Widening.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lake_core.delta.clustering import clustered_by, clustering_domain
from lake_core.delta.column_mapping import edited_metadata, without_mapping
from lake_core.delta.conflict import Reads
from lake_core.delta.data_file import DataFileWriter
from lake_core.delta.errors import FeatureInUse
from lake_core.delta.file_layout import file_layout
from lake_core.delta.operation import Operation
from lake_core.delta.scan import Scan, open_data_files, with_tracked_rows
from lake_core.delta.schema import walk
from lake_core.delta.schema_evolution import TYPE_CHANGES, with_schema
from lake_core.runner import run_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.delta.action import Metadata
    from lake_core.delta.data_file import AddFile
    from lake_core.delta.snapshot import Snapshot

COLUMN_MAPPING: Final = "columnMapping"
WITH_TRACES: Final = frozenset({COLUMN_MAPPING, "typeWidening", "typeWidening-preview"})
"""The features of which nothing is left once the data files are written anew."""
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""What other clients refuse in the names of columns of tables without column mapping."""


def without_traces(metadata: Metadata, feature: str) -> Metadata:
    """Return a definition by which files have no traces of a feature. Raises FeatureInUse for a name that needs it."""
    if feature != COLUMN_MAPPING:
        return with_schema(metadata, edited_metadata(metadata.schema, _without_type_changes))
    for child in walk(metadata.schema):
        if _NOT_IN_NAMES & set(child.name):
            raise FeatureInUse(f"the name of column {child.name!r} needs column mapping: rename the column first")
    return with_schema(metadata, without_mapping(metadata.schema))


def _without_type_changes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != TYPE_CHANGES}


def write_plain(snapshot: Snapshot, metadata: Metadata, feature: str, now: int) -> Operation | None:
    """Write the rows of all data files by another definition, file by file, and plan the commit that replaces them.

    Return None if the definition is the table's own, so that no file has traces. Raises what reading and writing raise.
    """
    if metadata == snapshot.metadata:
        return None
    schema, names = snapshot.metadata.arrow_schema, snapshot.metadata.partition_keys
    files = snapshot.files([*snapshot.identity, "partitionValues", "size", "stats"])
    opened = open_data_files(with_tracked_rows(Scan(snapshot, schema, None, files, schema)))
    layout = file_layout(snapshot.protocol, metadata)

    def written(number: int) -> list[AddFile]:
        values = dict(files["partitionValues"][number].as_py())
        writer = DataFileWriter(snapshot.data_root, metadata, now, layout=layout)
        return writer.write_one(
            opened.batches(number), {key: values[names[name]] for name, key in metadata.partition_keys.items()}
        )

    clustered = clustered_by(snapshot.metadata, snapshot.domains)
    operation = Operation(
        "REMOVE COLUMN MAPPING" if feature == COLUMN_MAPPING else "REORG",
        {},
        snapshot,
        {"numRewrittenFiles": len(files)},
        adds=[add for adds in run_here(written, len(files)) for add in adds],
        removes=files,
        read_files=files,
        reads=Reads.WHOLE_TABLE,
        data_change=False,
        domains=[clustering_domain(metadata, clustered.names)] if clustered else [],
    )
    return operation.defining(metadata)
