"""What an asset's definition metadata says of its table, read and checked before anything is written."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa
from dagster import MetadataValue, TableColumnLineage, TableSchema

from lake_core.delta.commit_time import Instant
from lake_orch.errors import InvalidDefinition
from lake_orch.location import PATH_METADATA, table_path
from lake_orch.tables.merge_settings import MergeSettings
from lake_orch.tables.type_name import arrow_type_of

Mode: TypeAlias = Literal["overwrite", "append", "merge", "replace_where", "overwrite_partitions", "error", "ignore"]
SchemaMode: TypeAlias = Literal["none", "fill", "merge", "overwrite"]
NaiveTimestamps: TypeAlias = Literal["refuse", "utc", "ntz"]
Ownership: TypeAlias = Literal["keep", "take", "shared"]

PARTITION_EXPR = "partition_expr"
MODE = "lake/mode"
SCHEMA_MODE = "lake/schema_mode"
NAIVE_TIMESTAMPS = "lake/naive_timestamps"
OWNER = "lake/owner"
MERGE = "lake/merge"
REPLACE_WHERE = "lake/replace_where"
PARTITION_BY = "lake/partition_by"
CLUSTER_BY = "lake/cluster_by"
PROPERTIES = "lake/properties"
CONSTRAINTS = "lake/constraints"
GENERATED = "lake/generated"
SCHEMA = "lake/schema"
PREVIEW_ROWS = "lake/preview_rows"
COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"

COLUMNS = "columns"
WHERE = "lake/where"
REF = "lake/ref"
VERSION = "lake/version"
TIMESTAMP = "lake/timestamp"

_OF_OUTPUTS = (
    *(MODE, SCHEMA_MODE, NAIVE_TIMESTAMPS, OWNER, MERGE, REPLACE_WHERE, PATH_METADATA),
    *(PARTITION_BY, CLUSTER_BY, PROPERTIES, CONSTRAINTS, GENERATED, SCHEMA, PREVIEW_ROWS),
)
_OF_INPUTS = (WHERE, REF, VERSION, TIMESTAMP)

CLUSTER_PROPERTY = "lake.clusterBy"
"""The table property that keeps `lake/cluster_by` for maintenance."""


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column as the asset declares it."""

    name: str
    type: pa.DataType
    nullable: bool = True
    comment: str | None = None
    unique: bool = False
    other: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """One table, and how it is written."""

    path: str
    mode: Mode = "overwrite"
    schema_mode: Literal["fill", "merge", "overwrite"] | None = None
    naive_timestamps: NaiveTimestamps = "refuse"
    ownership: Ownership = "keep"
    """Whether the asset makes another's table its own, or shares it."""
    merge: MergeSettings | None = None
    replace_where: str | None = None
    partition_expr: Any = None
    partition_by: tuple[str, ...] | None = None
    """None where nothing is said: those of the partitions then."""
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    constraints: Mapping[str, str] = field(default_factory=dict)
    generated: Mapping[str, str] = field(default_factory=dict)
    schema: pa.Schema | None = None
    """What the rows are brought into."""
    columns: tuple[DeclaredColumn, ...] = ()
    column_lineage: TableColumnLineage | None = None
    preview_rows: int | None = None

    @classmethod
    def parse(
        cls,
        asset_key: Sequence[str] | None,
        metadata: Mapping[str, Any],
        what: str,
        *,
        mode: Mode = "overwrite",
        schema_mode: SchemaMode = "none",
        naive_timestamps: NaiveTimestamps = "refuse",
    ) -> TableSettings:
        """Read an output's definition metadata; the options hold where it says nothing. Raises InvalidDefinition."""
        told = plain_metadata(metadata)
        _check_known(told, _OF_OUTPUTS, what)
        mode = _mode(told, mode, what)
        if mode == "merge" and schema_mode == "fill":
            schema_mode = "none"  # a default for other modes
        settings = cls(
            path=table_path(asset_key, told),
            mode=mode,
            schema_mode=_schema_mode(told, schema_mode, what),
            naive_timestamps=_naive_timestamps(told, naive_timestamps, what),
            ownership=_ownership(told, what),
            merge=MergeSettings.parse(told[MERGE], f"{MERGE} of {what}") if MERGE in told else None,
            replace_where=_text(told, REPLACE_WHERE, what),
            partition_expr=told.get(PARTITION_EXPR),
            partition_by=_names(told, PARTITION_BY, what) if PARTITION_BY in told else None,
            cluster_by=_names(told, CLUSTER_BY, what),
            properties=_texts(told, PROPERTIES, what),
            constraints=_texts(told, CONSTRAINTS, what),
            generated=_texts(told, GENERATED, what),
            schema=_schema(told, what),
            columns=_columns(told, what),
            column_lineage=_lineage(told, what),
            preview_rows=_preview_rows(told, what),
        )
        settings._check(what)
        return settings

    def _check(self, what: str) -> None:
        if (self.mode == "merge") != (self.merge is not None):
            raise InvalidDefinition(
                f"{MODE} of {what} is {self.mode!r}, and {MERGE} says "
                + (
                    "how rows match: use mode 'merge', or leave one of them out"
                    if self.merge
                    else "nothing: give it the keys, such as ['id']"
                )
            )
        if (self.mode == "replace_where") != (self.replace_where is not None):
            raise InvalidDefinition(
                f"{MODE} of {what} is {self.mode!r}, and {REPLACE_WHERE} "
                + ("says what to replace: use mode 'replace_where'" if self.replace_where else "is missing: give the SQL that selects rows")
            )
        if self.schema_mode == "overwrite" and self.mode != "overwrite":
            raise InvalidDefinition(
                f"{SCHEMA_MODE} 'overwrite' of {what} replaces the whole table: it goes with mode 'overwrite' alone, or use 'merge'"
            )
        if self.schema_mode == "fill" and self.mode == "merge":
            raise InvalidDefinition(
                f"{SCHEMA_MODE} 'fill' of {what} goes with whole rows, and a merge would set values that are there to null: leave it out, "
                f"and give the clauses of {MERGE} the columns that they set"
            )
        twice = {column.name.lower() for column in self.columns}
        if len(twice) < len(self.columns):
            raise InvalidDefinition(f"{COLUMN_SCHEMA} of {what} names a column twice")

    @property
    def declared(self) -> pa.Schema | None:
        """The columns that rows are known to have before there are any: those of `lake/schema`, else of the column schema."""
        if self.schema is not None:
            return self.schema
        return pa.schema([pa.field(column.name, column.type) for column in self.columns]) if self.columns else None


@dataclass(frozen=True, slots=True)
class InputSettings:
    """What is read of a table, and of which state of it."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    ref: str | None = None
    version: int | None = None
    timestamp: Instant | None = None

    @classmethod
    def parse(cls, metadata: Mapping[str, Any], what: str) -> InputSettings:
        """Read an input's metadata. Raises InvalidDefinition."""
        told = plain_metadata(metadata)
        _check_known(told, _OF_INPUTS, what)
        version = told.get(VERSION)
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise InvalidDefinition(f"{VERSION} of {what} is {version!r}: use a whole number")
        if version is not None and TIMESTAMP in told:
            raise InvalidDefinition(f"{what} asks for a version and a timestamp: leave one of them out")
        columns = None
        if told.get(COLUMNS) is not None:
            if isinstance(told[COLUMNS], str):
                raise InvalidDefinition(f"metadata {COLUMNS!r} of {what} is {told[COLUMNS]!r}: use a list of column names")
            columns = _names(told, COLUMNS, what)
        return cls(columns, _text(told, WHERE, what), _text(told, REF, what), version, told.get(TIMESTAMP))

    @property
    def moment(self) -> dict[str, Any]:
        """The options of `DeltaTable.open` that choose a version."""
        told = {"version": self.version, "timestamp": self.timestamp}
        return {name: value for name, value in told.items() if value is not None}


def append_schema_mode(metadata: Mapping[str, Any], what: str) -> Literal["none", "fill", "merge"]:
    """Read what metadata says of columns that rows to append and their table do not share. Raises InvalidDefinition."""
    mode = _schema_mode(plain_metadata(metadata), "none", what)
    if mode == "overwrite":
        raise InvalidDefinition(f"{SCHEMA_MODE} of {what} is 'overwrite', and its rows are added to those that are there: use 'merge'")
    return mode or "none"


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without Dagster's wrappers (`MetadataValue.text("…")`)."""
    return {name: value.value if isinstance(value, MetadataValue) else value for name, value in metadata.items()}


def _check_known(told: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    """Other names are other people's; but one that is nearly ours was meant to be."""
    for name in told:
        if name.startswith("lake/") and name not in (*_OF_OUTPUTS, *_OF_INPUTS):
            near = difflib.get_close_matches(name, known, 1, 0.85)
            if near:
                raise InvalidDefinition(f"{what} has the metadata {name!r}, which does nothing: {near[0]!r} is meant")


def _mode(told: Mapping[str, Any], default: Mode, what: str) -> Mode:
    implied: Mode = "merge" if MERGE in told else "replace_where" if REPLACE_WHERE in told else default
    found = told.get(MODE, implied)
    for mode in get_args(Mode):
        if found == mode:
            return mode  # type: ignore[no-any-return]
    raise InvalidDefinition(f"{MODE} of {what} is {found!r}: use one of {', '.join(get_args(Mode))}")


def _schema_mode(told: Mapping[str, Any], default: SchemaMode, what: str) -> Literal["fill", "merge", "overwrite"] | None:
    mode = told.get(SCHEMA_MODE, default)
    if mode not in get_args(SchemaMode):
        raise InvalidDefinition(f"{SCHEMA_MODE} of {what} is {mode!r}: use one of {', '.join(get_args(SchemaMode))}")
    return None if mode == "none" else mode


def _naive_timestamps(told: Mapping[str, Any], default: NaiveTimestamps, what: str) -> NaiveTimestamps:
    value = told.get(NAIVE_TIMESTAMPS, default)
    for known in get_args(NaiveTimestamps):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise InvalidDefinition(f"{NAIVE_TIMESTAMPS} of {what} is {value!r}: use one of {', '.join(get_args(NaiveTimestamps))}")


def _ownership(told: Mapping[str, Any], what: str) -> Ownership:
    value = told.get(OWNER, "keep")
    for known in get_args(Ownership):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise InvalidDefinition(f"{OWNER} of {what} is {value!r}: use one of {', '.join(get_args(Ownership))}")


def ownership_of(metadata: Mapping[str, Any], what: str) -> Ownership:
    """Read what an asset's definition says of a table that another made. Raises InvalidDefinition."""
    return _ownership(plain_metadata(metadata), what)


def _text(told: Mapping[str, Any], name: str, what: str) -> str | None:
    value = told.get(name)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise InvalidDefinition(f"{name} of {what} is {value!r}: use text")
    return value


def _names(told: Mapping[str, Any], name: str, what: str) -> tuple[str, ...]:
    value = told.get(name, ())
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) and one for one in names):
        raise InvalidDefinition(f"{name} of {what} is {value!r}: use a list of column names")
    return tuple(names)


def _texts(told: Mapping[str, Any], name: str, what: str) -> dict[str, str]:
    value = told.get(name, {})
    if not isinstance(value, Mapping) or not all(isinstance(text, str) and text for pair in value.items() for text in pair):
        raise InvalidDefinition(f"{name} of {what} is {value!r}: use a dict of texts by name")
    return dict(value)


def _schema(told: Mapping[str, Any], what: str) -> pa.Schema | None:
    value = told.get(SCHEMA)
    if value is not None and not isinstance(value, pa.Schema):
        raise InvalidDefinition(f"{SCHEMA} of {what} is a {type(value).__name__}: use a pyarrow.Schema")
    return value


def _columns(told: Mapping[str, Any], what: str) -> tuple[DeclaredColumn, ...]:
    value = told.get(COLUMN_SCHEMA)
    if value is None:
        return ()
    if not isinstance(value, TableSchema):
        raise InvalidDefinition(f"{COLUMN_SCHEMA} of {what} is a {type(value).__name__}: use a dagster.TableSchema")
    columns = []
    for column in value.columns:
        try:
            kind = arrow_type_of(column.type)
        except ValueError as error:
            raise InvalidDefinition(f"column {column.name!r} in {COLUMN_SCHEMA} of {what}: {error}") from None
        rules = column.constraints
        columns.append(
            DeclaredColumn(column.name, kind, rules.nullable, column.description, rules.unique, tuple(rules.other), dict(column.tags or {}))
        )
    return tuple(columns)


def _preview_rows(told: Mapping[str, Any], what: str) -> int | None:
    value = told.get(PREVIEW_ROWS)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 50):
        raise InvalidDefinition(f"{PREVIEW_ROWS} of {what} is {value!r}: use a whole number from 0 to 50")
    return value


def _lineage(told: Mapping[str, Any], what: str) -> TableColumnLineage | None:
    value = told.get(COLUMN_LINEAGE)
    if value is not None and not isinstance(value, TableColumnLineage):
        raise InvalidDefinition(f"{COLUMN_LINEAGE} of {what} is a {type(value).__name__}: use a dagster.TableColumnLineage")
    return value
