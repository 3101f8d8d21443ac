"""Changes of a table's definition: properties, constraints, columns. Data files do not change.

Protocol sections: Change Metadata, Protocol Evolution, CHECK Constraints, Column Mapping.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.action_fields import ADD_FIELDS, with_fields
from lake_core.delta.clustering import clustered_by, clustering_domain
from lake_core.delta.column_mapping import MODE_PROPERTY, with_mapping
from lake_core.delta.conflict import Reads
from lake_core.delta.definition import asked_protocol
from lake_core.delta.errors import ConstraintNotFound, ConstraintViolation, InvalidProperty, SchemaMismatch
from lake_core.delta.features import (
    CLUSTERING,
    CONSTRAINT_PREFIX,
    PROTECTED_BEFORE,
    compat_version,
    is_active,
    upgraded,
    upgraded_for,
)
from lake_core.delta.identity import with_marks_of_rows
from lake_core.delta.operation import Operation
from lake_core.delta.properties import check_properties
from lake_core.delta.row_rules import GENERATION_EXPRESSION, INVARIANTS, check_rules, constraint, constraints
from lake_core.delta.row_tracking import ENABLED, OWN_PROPERTIES, materialized_columns, with_column_names
from lake_core.delta.scan import plan_scan, stream_rows
from lake_core.delta.schema import schema_from_arrow, schema_to_json, walk
from lake_core.delta.schema_evolution import (
    added,
    commented,
    dropped,
    made_nullable,
    renamed,
    reordered,
    widened,
    with_schema,
)
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.delta.action import Metadata
    from lake_core.delta.snapshot import Snapshot

_OWN_PROPERTIES = {
    OWN_PROPERTIES: "which ids its rows have",
    "delta.inCommitTimestampEnablement": "which times its versions have",
    PROTECTED_BEFORE: "which versions can be read",
}
"""How the names of the properties begin that the table sets by itself, with what hangs on them."""


def set_properties(snapshot: Snapshot, properties: Mapping[str, str]) -> Operation | None:
    """Set table properties. One that enables a feature upgrades the protocol if it must.

    `delta.feature.X` = `supported`, `delta.minReaderVersion` and `delta.minWriterVersion` only upgrade the protocol.
    Raises InvalidProperty, UnsupportedWriterFeature.
    """
    check_properties(properties)
    for key in properties:
        if key.startswith(CONSTRAINT_PREFIX):
            raise InvalidProperty(
                f"{key} is a CHECK constraint: add it with add_constraint, which checks the existing rows"
            )
        if key.startswith("delta.columnMapping.") and key != MODE_PROPERTY:
            raise InvalidProperty(
                f"{key} is set by the table itself: another value could change which columns the files are read as"
            )
        for start, kept in _OWN_PROPERTIES.items():
            if key.startswith(start):
                raise InvalidProperty(f"{key} is set by the table itself: another value could change {kept}")
    protocol, plain_properties = asked_protocol(snapshot.protocol, properties)
    metadata = snapshot.metadata
    configuration = {**metadata.configuration, **plain_properties}
    if MODE_PROPERTY in plain_properties:
        metadata, configuration = _remapped(metadata, configuration)
    tracks = plain_properties.get(ENABLED, "false").lower() == "true"
    changed = replace(metadata, configuration=with_column_names(configuration) if tracks else configuration)
    check_properties(changed.configuration)
    check_rules(changed)
    protocol = upgraded_for(protocol, snapshot.metadata, changed, plain_properties)
    if changed == snapshot.metadata and protocol == snapshot.protocol:
        return None
    parameters = {"properties": json.dumps(dict(properties), ensure_ascii=False)}
    operation = Operation("SET TBLPROPERTIES", parameters, snapshot)
    if tracks and not materialized_columns(snapshot.protocol, snapshot.metadata):
        # The rows that are there get ids as well, so that each row has one from then on.
        files = with_fields(snapshot.files([name for name, _ in ADD_FIELDS]), ADD_FIELDS)
        without = files.filter(pc.is_null(files["baseRowId"]))
        operation = replace(operation, restored=without, data_change=False, reads=Reads.WHOLE_TABLE)
    return operation.defining(changed, protocol)


def unset_properties(snapshot: Snapshot, names: Sequence[str]) -> Operation | None:
    """Remove table properties. Those that the table does not have are ignored. Raises InvalidProperty."""
    if isinstance(names, str):
        raise InvalidProperty(f"the properties to unset must be a list of names: [{names!r}]")
    for name in names:
        if name.startswith((CONSTRAINT_PREFIX, "delta.columnMapping.")) and name in snapshot.metadata.configuration:
            raise InvalidProperty(
                f"{name} cannot be unset: "
                f"{'drop_constraint does that' if 'constraints' in name else 'files depend on it'}"
            )
        for start, kept in _OWN_PROPERTIES.items():
            if name.startswith(start) and name in snapshot.metadata.configuration:
                raise InvalidProperty(f"{name} cannot be unset: {kept} would change. drop_feature does that")
    configuration = {key: value for key, value in snapshot.metadata.configuration.items() if key not in names}
    if configuration == snapshot.metadata.configuration:
        return None
    changed = replace(snapshot.metadata, configuration=configuration)
    return Operation("UNSET TBLPROPERTIES", {"properties": json.dumps(list(names))}, snapshot, metadata=changed)


def add_constraint(snapshot: Snapshot, name: str, sql: str) -> Operation:
    """Add a CHECK constraint that every row satisfies, and upgrade the protocol to at least writer version 3.

    Raises InvalidProperty for a name that is taken, InvalidExpression, ConstraintViolation, and what reading raises.
    """
    if (
        not isinstance(name, str)
        or not name.strip()
        or any(other.lower() == name.lower() for other in constraints(snapshot.metadata))
    ):
        raise InvalidProperty(f"the name of a constraint must be text that no other one of the table has, not {name!r}")
    check = constraint(name, sql, snapshot.metadata.arrow_schema)
    broken = 0
    for batch in stream_rows(plan_scan(snapshot, None, None)):
        broken += check.violations(pa.Table.from_batches([batch])).num_rows
    if broken:
        verb = "breaks" if broken == 1 else "break"
        raise ConstraintViolation(
            f"{count_of(broken, 'row')} of the table {verb} the constraint {name!r}, {sql}: "
            "update or delete such rows first"
        )
    key = f"{CONSTRAINT_PREFIX}{name.lower()}"
    changed = replace(snapshot.metadata, configuration={**snapshot.metadata.configuration, key: sql})
    protocol = upgraded(snapshot.protocol, {"checkConstraints"})
    parameters = {"name": name, "expr": sql}
    return Operation("ADD CONSTRAINT", parameters, snapshot, reads=Reads.WHOLE_TABLE).defining(changed, protocol)


def drop_constraint(snapshot: Snapshot, name: str) -> Operation:
    """Drop a CHECK constraint. Raises ConstraintNotFound."""
    key = next(
        (key for key in snapshot.metadata.configuration if key.lower() == f"{CONSTRAINT_PREFIX}{name}".lower()), None
    )
    if key is None:
        names = ", ".join(constraints(snapshot.metadata)) or "none"
        raise ConstraintNotFound(f"the constraint {name!r} does not exist; the table has {names}")
    configuration = {other: value for other, value in snapshot.metadata.configuration.items() if other != key}
    changed = replace(snapshot.metadata, configuration=configuration)
    return Operation("DROP CONSTRAINT", {"name": name}, snapshot, metadata=changed)


def sync_identity(snapshot: Snapshot, name: str) -> Operation | None:
    """Let an identity column go on after the numbers that rows have of their own.

    Raises SchemaMismatch for another column, and what reading raises.
    """
    batches = stream_rows(plan_scan(snapshot, [name], None))
    columns = (pa.chunked_array([batch.column(0)]) for batch in batches)
    changed = with_marks_of_rows(snapshot.metadata, name, columns)
    if changed == snapshot.metadata:
        return None
    operation = Operation("SYNC IDENTITY", {"column": name}, snapshot, reads=Reads.WHOLE_TABLE)
    return operation.defining(changed)


def add_columns(snapshot: Snapshot, schema: pa.Schema) -> Operation | None:
    """Add columns. To add fields to a struct, pass a struct of the same name with the new fields.

    They are null in the existing rows. Raises SchemaMismatch, UnsupportedType.
    """
    new = schema_from_arrow(schema)
    for child in walk(new):
        if GENERATION_EXPRESSION in child.metadata or INVARIANTS in child.metadata:
            raise SchemaMismatch(
                f"column {child.name!r} has a rule (generated, or an invariant) that the existing rows do not "
                "meet: create the table with the column, or add it without its field metadata"
            )
    fields = added(snapshot.metadata.schema, new)
    if fields == snapshot.metadata.schema:
        return None
    parameters = {"columns": schema_to_json(new)}
    return _redefined(snapshot, "ADD COLUMNS", parameters, with_schema(snapshot.metadata, fields))


def rename_column(snapshot: Snapshot, column: str, name: str) -> Operation | None:
    """Rename a column; needs column mapping. Raises SchemaMismatch."""
    parameters = {"oldColumnPath": column, "newColumnPath": name}
    return _redefined(snapshot, "RENAME COLUMN", parameters, renamed(snapshot.metadata, column, name))


def widen_column(snapshot: Snapshot, column: str, kind: pa.DataType) -> Operation | None:
    """Give a column a wider type; needs type widening. Raises SchemaMismatch, UnsupportedType, InvalidProperty."""
    if not is_active("typeWidening", snapshot.protocol, snapshot.metadata):
        raise SchemaMismatch(
            f"the type of column {column!r} can be changed only in a table with type widening, which older readers "
            "cannot read: call set_properties({'delta.enableTypeWidening': 'true'})"
        )
    if compat_version(snapshot.protocol, snapshot.metadata) is not None:
        raise InvalidProperty("the table is kept readable for Iceberg: with this writer its columns keep their types")
    return _redefined(snapshot, "CHANGE COLUMN", {"column": column}, widened(snapshot.metadata, column, kind))


def cluster_by(snapshot: Snapshot, names: Sequence[str]) -> Operation | None:
    """Cluster a table by other columns, or by none. Raises SchemaMismatch, InvalidProperty."""
    before = clustered_by(snapshot.metadata, snapshot.domains)
    domain = clustering_domain(snapshot.metadata, names)
    after = clustered_by(snapshot.metadata, [domain])
    if before == after:
        return None
    parameters = {"oldClusteringColumns": ",".join(before.names), "newClusteringColumns": ",".join(after.names)}
    protocol = upgraded(snapshot.protocol, {CLUSTERING})
    return Operation("CLUSTER BY", parameters, snapshot, domains=[domain]).defining(snapshot.metadata, protocol)


def drop_columns(snapshot: Snapshot, names: Sequence[str]) -> Operation | None:
    """Drop columns; needs column mapping. Raises SchemaMismatch."""
    if isinstance(names, str):
        raise SchemaMismatch(f"the columns to drop must be a list of names: [{names!r}]")
    return _redefined(snapshot, "DROP COLUMNS", {"columns": json.dumps(list(names))}, dropped(snapshot.metadata, names))


def drop_not_null(snapshot: Snapshot, column: str) -> Operation | None:
    """Allow nulls in a column. Raises SchemaMismatch."""
    return _redefined(snapshot, "CHANGE COLUMN", {"column": column}, made_nullable(snapshot.metadata, column))


def set_comments(snapshot: Snapshot, comments: Mapping[str, str | None]) -> Operation | None:
    """Set the comments of columns; None removes a comment. Raises SchemaMismatch."""
    parameters = {"columns": json.dumps(list(comments), ensure_ascii=False)}
    return _redefined(snapshot, "CHANGE COLUMNS", parameters, commented(snapshot.metadata, comments))


def reorder_columns(snapshot: Snapshot, names: Sequence[str]) -> Operation | None:
    """Move columns to the front, in this order. Raises SchemaMismatch."""
    return _redefined(
        snapshot, "CHANGE COLUMNS", {"columns": json.dumps(list(names))}, reordered(snapshot.metadata, names)
    )


def _redefined(snapshot: Snapshot, name: str, parameters: dict[str, str], metadata: Metadata) -> Operation | None:
    return None if metadata == snapshot.metadata else Operation(name, parameters, snapshot).defining(metadata)


def _remapped(metadata: Metadata, configuration: dict[str, str]) -> tuple[Metadata, dict[str, str]]:
    before, after = metadata.column_mapping.mode, configuration[MODE_PROPERTY]
    if after not in ("none", "name", "id"):
        raise InvalidProperty(f"{MODE_PROPERTY} is {after!r}, but must be 'name' (or 'id' when a table is created)")
    if before == after:
        return metadata, configuration
    if (before, after) != ("none", "name"):
        raise InvalidProperty(
            f"{MODE_PROPERTY} can change from 'none' to 'name' only, not from {before!r} to {after!r}: "
            "files depend on it"
        )
    schema, configuration = with_mapping(metadata.schema, configuration, keep_names=True)
    return replace(metadata, schema=schema, schema_string=schema_to_json(schema)), configuration
