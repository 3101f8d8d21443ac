"""The single actions of a commit as values. File actions (add, remove) are bulk: they live in Arrow tables, see `action_fields`.

Protocol sections: Change Metadata, Protocol Evolution, Transaction Identifiers, Domain Metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lake_core.delta.column_mapping import MODE_PROPERTY, ColumnMapping
from lake_core.delta.errors import MalformedAction, MalformedMetadata, MalformedProtocol
from lake_core.delta.schema import StructType, schema_from_json


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a client must implement to read and to write the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    """Listed reader features; None below reader version 3."""
    writer_features: frozenset[str] | None = None
    """Listed writer features; None below writer version 7."""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Protocol:
        """Raises MalformedProtocol where versions and feature lists contradict one another."""
        reader, writer = body.get("minReaderVersion"), body.get("minWriterVersion")
        if not isinstance(reader, int) or not isinstance(writer, int):
            raise MalformedProtocol("the protocol action lacks minReaderVersion or minWriterVersion")
        reader_features, writer_features = body.get("readerFeatures"), body.get("writerFeatures")
        if (reader >= 3) != (reader_features is not None):
            raise MalformedProtocol(f"reader version {reader} with readerFeatures {reader_features!r}: listed exactly from version 3 on")
        if (writer >= 7) != (writer_features is not None):
            raise MalformedProtocol(f"writer version {writer} with writerFeatures {writer_features!r}: listed exactly from version 7 on")
        if reader >= 3 and writer < 7:
            raise MalformedProtocol(f"reader version {reader} needs writer version 7, not {writer}")
        if reader_features is not None and not set(reader_features) <= set(writer_features or ()):
            missing = sorted(set(reader_features) - set(writer_features or ()))
            raise MalformedProtocol(f"reader features {missing} are not listed among the writer features")
        return cls(
            reader,
            writer,
            None if reader_features is None else frozenset(reader_features),
            None if writer_features is None else frozenset(writer_features),
        )

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"minReaderVersion": self.min_reader_version, "minWriterVersion": self.min_writer_version}
        if self.reader_features is not None:
            body["readerFeatures"] = sorted(self.reader_features)
        if self.writer_features is not None:
            body["writerFeatures"] = sorted(self.writer_features)
        return body


@dataclass(frozen=True, slots=True)
class Metadata:
    """A table's identity, schema, partitioning and properties."""

    id: str
    schema: StructType
    schema_string: str
    """The schema as the log spells it; kept to the byte, so unknown parts of it survive."""
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    created_time: int | None = None
    """Milliseconds since the epoch."""
    format_provider: str = "parquet"
    format_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The table's columns in Arrow, under their own names."""
        return self.schema.to_arrow()

    @property
    def column_mapping(self) -> ColumnMapping:
        """How data files and the log name the columns."""
        return ColumnMapping(self.configuration.get(MODE_PROPERTY, "none"), self.schema)

    @property
    def partition_keys(self) -> dict[str, str]:
        """The partition columns, with the name under which `partitionValues` holds each."""
        mapping = self.column_mapping
        return {name: mapping.physical_path((name,))[0] for name in self.partition_columns}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Metadata:
        """Raises MalformedMetadata where a required field is missing or the schema does not parse."""
        schema_string = body.get("schemaString")
        if not isinstance(schema_string, str) or not isinstance(body.get("id"), str):
            raise MalformedMetadata("the metaData action lacks schemaString or id")
        try:
            schema = schema_from_json(json.loads(schema_string))
        except (json.JSONDecodeError, RecursionError) as error:
            raise MalformedMetadata(f"the table's schemaString is not JSON: {error}") from None
        file_format = body.get("format") or {}
        metadata = cls(
            id=body["id"],
            schema=schema,
            schema_string=schema_string,
            partition_columns=tuple(body.get("partitionColumns") or ()),
            configuration={key: value for key, value in (body.get("configuration") or {}).items() if value is not None},
            name=body.get("name"),
            description=body.get("description"),
            created_time=body.get("createdTime"),
            format_provider=file_format.get("provider") or "parquet",
            format_options=dict(file_format.get("options") or {}),
        )
        names = set(schema.names)
        for column in metadata.partition_columns:
            if column not in names:
                raise MalformedMetadata(f"partition column {column!r} is not in the table's schema")
        if metadata.format_provider.lower() != "parquet":
            raise MalformedMetadata(f"data files of format {metadata.format_provider!r}: only parquet is part of the protocol")
        return metadata

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"id": self.id}
        if self.name is not None:
            body["name"] = self.name
        if self.description is not None:
            body["description"] = self.description
        body |= {
            "format": {"provider": self.format_provider, "options": dict(self.format_options)},
            "schemaString": self.schema_string,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
        }
        if self.created_time is not None:
            body["createdTime"] = self.created_time
        return body


@dataclass(frozen=True, slots=True)
class SetTransaction:
    """An application's own progress marker: a writer that finds `version` or a later one has nothing left to do."""

    app_id: str
    version: int
    last_updated: int | None = None
    """Milliseconds since the epoch."""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SetTransaction:
        if not isinstance(body.get("appId"), str) or not isinstance(body.get("version"), int):
            raise MalformedAction("a txn action lacks appId or version")
        return cls(body["appId"], body["version"], body.get("lastUpdated"))

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"appId": self.app_id, "version": self.version}
        if self.last_updated is not None:
            body["lastUpdated"] = self.last_updated
        return body


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """Named configuration that a feature keeps in the log. Unknown domains are carried along untouched."""

    domain: str
    configuration: str
    removed: bool = False

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DomainMetadata:
        if not isinstance(body.get("domain"), str):
            raise MalformedAction("a domainMetadata action lacks its domain")
        return cls(body["domain"], body.get("configuration") or "", bool(body.get("removed")))

    def to_json(self) -> dict[str, Any]:
        return {"domain": self.domain, "configuration": self.configuration, "removed": self.removed}
