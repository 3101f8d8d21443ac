"""The table settings in an asset's definition metadata, validated before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from lake_core.delta.commit_time import Instant
from lake_orch.assets.description import ColumnLineage, ColumnSchema
from lake_orch.assets.metadata_names import OF_OUTPUTS, MetadataNames
from lake_orch.assets.tables.merge_settings import MergeSettings
from lake_orch.definition_metadata import (
    COLUMNS,
    MODE,
    PARTITION_EXPR,
    REF,
    REPLACE_WHERE,
    TIMESTAMP,
    Ownership,
    read_choice,
    read_names,
    read_ownership,
    read_text,
    read_whole,
)
from lake_orch.errors import InvalidDefinition
from lake_orch.location import table_path
from lake_orch.spark.type_name import arrow_type_of

TableWriteMode: TypeAlias = Literal[
    "overwrite", "append", "merge", "replace_where", "overwrite_partitions", "error", "ignore"
]
SchemaModeSetting: TypeAlias = Literal["none", "fill", "merge", "overwrite"]
NaiveTimestamps: TypeAlias = Literal["refuse", "utc", "ntz"]

SCHEMA_MODE = "lake/schema_mode"
NAIVE_TIMESTAMPS = "lake/naive_timestamps"
MERGE = "lake/merge"
PARTITION_BY = "lake/partition_by"
CLUSTER_BY = "lake/cluster_by"
PROPERTIES = "lake/properties"
CONSTRAINTS = "lake/constraints"
GENERATED = "lake/generated"
SCHEMA = "lake/schema"
PREVIEW_ROWS = "lake/preview_rows"
COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"

WHERE = "lake/where"
VERSION = "lake/version"


CLUSTERING_FEATURE = "delta.feature.clustering"
"""The property that asks for tables which OPTIMIZE sorts by columns of theirs."""
CLUSTER_PROPERTY = "lake.clusterBy"
"""The table property that keeps `lake/cluster_by` for maintenance."""


NAMES = MetadataNames(
    "tables",
    output=(
        *(MODE, SCHEMA_MODE, NAIVE_TIMESTAMPS, *OF_OUTPUTS, MERGE, REPLACE_WHERE),
        *(PARTITION_BY, CLUSTER_BY, PROPERTIES, CONSTRAINTS, GENERATED, SCHEMA, PREVIEW_ROWS),
    ),
    input=(WHERE, REF, VERSION, TIMESTAMP),
    without_prefix=(COLUMNS,),
)


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column that the asset declares."""

    name: str
    type: pa.DataType
    nullable: bool = True
    comment: str | None = None
    unique: bool = False
    other: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of one table and its writes."""

    path: str
    mode: TableWriteMode = "overwrite"
    schema_mode: Literal["fill", "merge", "overwrite"] | None = None
    naive_timestamps: NaiveTimestamps = "refuse"
    ownership: Ownership = "keep"
    """How the asset handles a table that another asset wrote."""
    merge: MergeSettings | None = None
    replace_where: str | None = None
    partition_expr: Any = None
    partition_by: tuple[str, ...] | None = None
    """The partition columns of the table. If it is None, the columns that the partitions stand for are used."""
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    constraints: Mapping[str, str] = field(default_factory=dict)
    generated: Mapping[str, str] = field(default_factory=dict)
    schema: pa.Schema | None = None
    """The schema that the rows are cast to."""
    columns: tuple[DeclaredColumn, ...] = ()
    column_lineage: ColumnLineage | None = None
    preview_rows: int | None = None

    @property
    def is_clustered(self) -> bool:
        """Return whether the table itself is to be clustered, which takes the feature `clustering`."""
        return bool(self.cluster_by) and CLUSTERING_FEATURE in self.properties

    @classmethod
    def parse(
        cls,
        asset_key: Sequence[str] | None,
        metadata: Mapping[str, Any],
        subject: str,
        *,
        mode: TableWriteMode = "overwrite",
        schema_mode: SchemaModeSetting = "none",
        naive_timestamps: NaiveTimestamps = "refuse",
    ) -> TableSettings:
        """Read an output's definition metadata. The options are the defaults. Raises InvalidDefinition."""
        mode = mode_of(metadata, mode, subject)
        if mode == "merge" and schema_mode == "fill":
            # The default is meant for other modes.
            schema_mode = "none"
        settings = cls(
            path=table_path(asset_key, metadata),
            mode=mode,
            schema_mode=_schema_mode(metadata, schema_mode, subject),
            naive_timestamps=read_choice(
                metadata, NAIVE_TIMESTAMPS, naive_timestamps, get_args(NaiveTimestamps), subject
            ),
            ownership=read_ownership(metadata, subject),
            merge=MergeSettings.parse(metadata[MERGE], f"{MERGE} of {subject}") if MERGE in metadata else None,
            replace_where=read_text(metadata, REPLACE_WHERE, subject),
            partition_expr=metadata.get(PARTITION_EXPR),
            partition_by=read_names(metadata, PARTITION_BY, subject, kind="column names", allow_single=True),
            cluster_by=read_names(metadata, CLUSTER_BY, subject, kind="column names", allow_single=True) or (),
            properties=_texts(metadata, PROPERTIES, subject),
            constraints=_texts(metadata, CONSTRAINTS, subject),
            generated=_texts(metadata, GENERATED, subject),
            schema=_schema(metadata, subject),
            columns=_columns(metadata, subject),
            column_lineage=_lineage(metadata, subject),
            preview_rows=read_whole(metadata, PREVIEW_ROWS, subject, most=50),
        )
        settings._check(subject)
        return settings

    def _check(self, subject: str) -> None:
        if (self.mode == "merge") != (self.merge is not None):
            raise InvalidDefinition(
                f"{MODE} of {subject} is {self.mode!r}, and {MERGE} says "
                + (
                    "how rows match: use mode 'merge', or leave one of them out"
                    if self.merge
                    else "nothing: give it the keys, such as ['id']"
                )
            )
        if (self.mode == "replace_where") != (self.replace_where is not None):
            raise InvalidDefinition(
                f"{MODE} of {subject} is {self.mode!r}, and {REPLACE_WHERE} "
                + (
                    "says what to replace: use mode 'replace_where'"
                    if self.replace_where
                    else "is missing: give the SQL that selects rows"
                )
            )
        if self.schema_mode == "overwrite" and self.mode != "overwrite":
            raise InvalidDefinition(
                f"{SCHEMA_MODE} 'overwrite' of {subject} replaces the whole table: "
                "use it with mode 'overwrite' only, or use 'merge'"
            )
        if self.schema_mode == "fill" and self.mode == "merge":
            raise InvalidDefinition(
                f"{SCHEMA_MODE} 'fill' of {subject} is for whole rows, and a merge would set existing values to null: "
                f"leave it out, and give the clauses of {MERGE} the columns that they set"
            )
        names = {column.name.lower() for column in self.columns}
        if len(names) < len(self.columns):
            raise InvalidDefinition(f"{COLUMN_SCHEMA} of {subject} names a column twice: name each column once")

    @property
    def declared(self) -> pa.Schema | None:
        """Return the declared columns: those of `lake/schema`, else of the column schema."""
        if self.schema is not None:
            return self.schema
        return pa.schema([pa.field(column.name, column.type) for column in self.columns]) if self.columns else None


@dataclass(frozen=True, slots=True)
class InputSettings:
    """The part of a table to read, and the state to read it from."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    ref: str | None = None
    version: int | None = None
    timestamp: Instant | None = None

    @classmethod
    def parse(cls, metadata: Mapping[str, Any], subject: str) -> InputSettings:
        """Read an input's metadata. Raises InvalidDefinition."""
        version = metadata.get(VERSION)
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise InvalidDefinition(f"{VERSION} of {subject} is {version!r}: use a whole number")
        if version is not None and TIMESTAMP in metadata:
            raise InvalidDefinition(f"{subject} asks for a version and a timestamp: leave one of them out")
        columns = read_names(metadata, COLUMNS, subject, kind="column names")
        return cls(
            columns,
            read_text(metadata, WHERE, subject),
            read_text(metadata, REF, subject),
            version,
            metadata.get(TIMESTAMP),
        )

    @property
    def moment(self) -> dict[str, Any]:
        """Return the options of `DeltaTable.open` that choose a version."""
        metadata = {"version": self.version, "timestamp": self.timestamp}
        return {name: value for name, value in metadata.items() if value is not None}


def mode_of(metadata: Mapping[str, Any], default: TableWriteMode, subject: str = "the output") -> TableWriteMode:
    """Return the mode that metadata names or implies. Raises InvalidDefinition."""
    implied: TableWriteMode = (
        "merge" if MERGE in metadata else "replace_where" if REPLACE_WHERE in metadata else default
    )
    return read_choice(metadata, MODE, implied, get_args(TableWriteMode), subject)


def _schema_mode(
    metadata: Mapping[str, Any], default: SchemaModeSetting, subject: str
) -> Literal["fill", "merge", "overwrite"] | None:
    mode = read_choice(metadata, SCHEMA_MODE, default, get_args(SchemaModeSetting), subject)
    return None if mode == "none" else mode


def _texts(metadata: Mapping[str, Any], name: str, subject: str) -> dict[str, str]:
    value = metadata.get(name, {})
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) and text for pair in value.items() for text in pair
    ):
        raise InvalidDefinition(f"{name} of {subject} is {value!r}: use a dict of texts by name")
    return dict(value)


def _schema(metadata: Mapping[str, Any], subject: str) -> pa.Schema | None:
    value = metadata.get(SCHEMA)
    if value is not None and not isinstance(value, pa.Schema):
        raise InvalidDefinition(f"{SCHEMA} of {subject} is a {type(value).__name__}: use a pyarrow.Schema")
    return value


def _columns(metadata: Mapping[str, Any], subject: str) -> tuple[DeclaredColumn, ...]:
    value = metadata.get(COLUMN_SCHEMA)
    if value is None:
        return ()
    if not isinstance(value, ColumnSchema):
        raise InvalidDefinition(f"{COLUMN_SCHEMA} of {subject} is a {type(value).__name__}: use a dagster.TableSchema")
    columns = []
    for column in value.columns:
        try:
            kind = arrow_type_of(column.type)
        except ValueError as error:
            raise InvalidDefinition(f"column {column.name!r} in {COLUMN_SCHEMA} of {subject}: {error}") from None
        columns.append(
            DeclaredColumn(
                column.name,
                kind,
                column.nullable,
                column.description,
                column.unique,
                tuple(column.other),
                column.tags,
            )
        )
    return tuple(columns)


def _lineage(metadata: Mapping[str, Any], subject: str) -> ColumnLineage | None:
    value = metadata.get(COLUMN_LINEAGE)
    if value is not None and not isinstance(value, ColumnLineage):
        raise InvalidDefinition(
            f"{COLUMN_LINEAGE} of {subject} is a {type(value).__name__}: use a dagster.TableColumnLineage"
        )
    return value
