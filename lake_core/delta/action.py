"""The actions of a commit as values.

File actions (add, remove) are many, so they are rows of Arrow tables instead: see `action_fields`.

Protocol sections: Change Metadata, Protocol Evolution, Transaction Identifiers, Domain Metadata.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from lake_core.delta.column_mapping import MODE_PROPERTY, ColumnMapping
from lake_core.delta.errors import MalformedAction, MalformedMetadata, MalformedProtocol
from lake_core.delta.schema import PrimitiveType, StructType, schema_from_json, structs
from lake_core.json_numbers import loads

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_Plain = TypeVar("_Plain", str, int)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_NO_COLUMNS = '{"type":"struct","fields":[]}'

NEWEST_READER = 3
"""The highest reader version that is supported."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The features that a client must implement to read and to write the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    """Listed reader features; None below reader version 3."""
    writer_features: frozenset[str] | None = None
    """Listed writer features; None below writer version 7."""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Protocol:
        """Parse a protocol action. Raises MalformedProtocol if versions and feature lists contradict each other."""
        reader, writer = body.get("minReaderVersion"), body.get("minWriterVersion")
        if type(reader) is not int or type(writer) is not int or reader < 0 or writer < 0:  # a bool is an int too
            raise MalformedProtocol("the protocol action has no whole number as minReaderVersion or minWriterVersion")
        reader_features, writer_features = _features(body, "readerFeatures"), _features(body, "writerFeatures")
        if reader <= NEWEST_READER:  # a later one is refused by its number, and may list features by other rules
            _check_lists(reader, writer, reader_features, writer_features)
        return cls(
            reader,
            writer,
            None if reader_features is None else frozenset(reader_features),
            None if writer_features is None else frozenset(writer_features),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `protocol` action; absent feature lists are omitted."""
        body: dict[str, Any] = {
            "minReaderVersion": self.min_reader_version,
            "minWriterVersion": self.min_writer_version,
        }
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
    """The schema exactly as in the log, so that unknown parts of it are kept."""
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
        """Return the table's columns in Arrow, under their logical names."""
        return self.schema.to_arrow()

    @property
    def column_mapping(self) -> ColumnMapping:
        """Return the column mapping: how data files and the log name the columns."""
        return ColumnMapping(self.configuration.get(MODE_PROPERTY, "none"), self.schema)

    @property
    def partition_keys(self) -> dict[str, str]:
        """Return the partition columns, each with its name in `partitionValues`."""
        mapping = self.column_mapping
        return {name: mapping.physical_path((name,))[0] for name in self.partition_columns}

    @classmethod
    def from_json(cls, body: Mapping[str, Any], *, overruled: bool = False) -> Metadata:
        """Parse a metaData action.

        With `overruled`, a later action is in force, so this one may be from before the table had columns, without a
        schema. Raises MalformedMetadata if a required field is missing or the schema cannot be parsed.
        """
        schema_string = body.get("schemaString")
        if schema_string is None and overruled:
            schema_string = _NO_COLUMNS
        if not isinstance(schema_string, str) or not isinstance(body.get("id"), str):
            raise MalformedMetadata("the metaData action lacks schemaString or id")
        schema = _parse_schema(schema_string)
        file_format = _object(body, "format")
        metadata = cls(
            id=body["id"],
            schema=schema,
            schema_string=schema_string,
            partition_columns=_partition_columns(body.get("partitionColumns"), schema),
            configuration=_texts(body, "configuration"),
            name=_optional(body, "name", str),
            description=_optional(body, "description", str),
            created_time=_optional(body, "createdTime", int),
            format_provider=_optional(file_format, "provider", str) or "parquet",
            format_options=_texts(file_format, "options"),
        )
        if metadata.format_provider.lower() != "parquet":
            raise MalformedMetadata(
                f"the data files have the format {metadata.format_provider!r}, but the protocol allows parquet only"
            )
        return metadata

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `metaData` action. Fields that are not set are omitted."""
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
    """A txn action. A writer that finds its `version` or a later one has committed already."""

    app_id: str
    version: int
    last_updated: int | None = None
    """Milliseconds since the epoch."""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SetTransaction:
        """Read the body of a `txn` action. Raises MalformedAction."""
        if not isinstance(body.get("appId"), str) or type(body.get("version")) is not int:
            raise MalformedAction("a txn action lacks appId or version")
        return cls(body["appId"], body["version"], body.get("lastUpdated"))

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `txn` action."""
        body: dict[str, Any] = {"appId": self.app_id, "version": self.version}
        if self.last_updated is not None:
            body["lastUpdated"] = self.last_updated
        return body


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """The configuration of a feature in the log. Unknown domains are kept unchanged."""

    domain: str
    configuration: str
    removed: bool = False

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DomainMetadata:
        """Read the body of a `domainMetadata` action. Raises MalformedAction."""
        if not isinstance(body.get("domain"), str):
            raise MalformedAction("a domainMetadata action lacks its domain")
        configuration = body.get("configuration")
        if configuration is not None and not isinstance(configuration, str):
            raise MalformedAction(
                f"the configuration of domain {body['domain']!r} is {str(configuration)[:80]!r}, not text"
            )
        return cls(body["domain"], configuration or "", bool(body.get("removed")))

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `domainMetadata` action."""
        return {"domain": self.domain, "configuration": self.configuration, "removed": self.removed}


def _check_lists(
    reader: int, writer: int, reader_features: list[str] | None, writer_features: list[str] | None
) -> None:
    if (reader >= 3) != (reader_features is not None):
        raise MalformedProtocol(
            f"the protocol has reader version {reader} and readerFeatures {reader_features!r}: features must "
            "be listed from version 3 on, and only then"
        )
    if writer > 7:
        return  # it binds no reader, and writing is refused by its number
    if (writer == 7) != (writer_features is not None):
        raise MalformedProtocol(
            f"the protocol has writer version {writer} and writerFeatures {writer_features!r}: features must "
            "be listed from version 7 on, and only then"
        )
    if reader >= 3 and writer < 7:
        raise MalformedProtocol(f"reader version {reader} needs writer version 7, not {writer}")
    if reader_features is not None and not set(reader_features) <= set(writer_features or ()):
        missing = sorted(set(reader_features) - set(writer_features or ()))
        raise MalformedProtocol(f"reader features {missing} are not listed among the writer features")


def _features(body: Mapping[str, Any], name: str) -> list[str] | None:
    listed = body.get(name)
    if listed is not None and not (isinstance(listed, list) and all(isinstance(feature, str) for feature in listed)):
        raise MalformedProtocol(f"{name} is {str(listed)[:80]!r}, not a list of names")
    return listed


def _parse_schema(text: str) -> StructType:
    try:
        body = loads(text)
        if _SURROGATE.search(text):
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise MalformedMetadata("the table's schemaString holds half of a surrogate pair, which is not text") from None
    except (ValueError, RecursionError) as error:
        raise MalformedMetadata(f"the table's schemaString is not JSON: {error}") from None
    schema = schema_from_json(body)
    for struct in structs(schema):
        names = struct.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise MalformedMetadata(f"the table's schema has the column {twice!r} twice")
    return schema


def _partition_columns(listed: Any, schema: StructType) -> tuple[str, ...]:
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise MalformedMetadata(f"partitionColumns is {str(listed)[:80]!r}, not a list of column names")
    if len(set(listed)) < len(listed):
        raise MalformedMetadata(f"partitionColumns names a column twice: {str(listed)[:80]}")
    types = {child.name: child.type for child in schema.fields}
    for name in listed:
        if name not in types:
            raise MalformedMetadata(f"partition column {name!r} is not in the table's schema")
        kind = types[name]
        if not isinstance(kind, PrimitiveType) or kind.name == "void":
            raise MalformedMetadata(
                f"partition column {name!r} is nested or void: only a column of a primitive type can partition"
            )
    return tuple(listed)


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise MalformedMetadata(f"{name} of the metaData action is {str(value)[:80]!r}, not an object")
    return value or {}


def _texts(body: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a map of text.

    Numbers and booleans, which some writers put there, become their JSON text. Nulls are left out.
    """
    texts = {}
    for key, value in _object(body, name).items():
        if isinstance(value, (list, dict)):
            raise MalformedMetadata(f"{key!r} in {name} of the metaData action is {str(value)[:80]!r}, not text")
        if value is not None:
            texts[key] = value if isinstance(value, str) else json.dumps(value)
    return texts


def _optional(body: Mapping[str, Any], name: str, kind: type[_Plain]) -> _Plain | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not kind or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise MalformedMetadata(
            f"{name} of the metaData action is {str(value)[:80]!r}, not {'text' if kind is str else 'a whole number'}"
        )
    return value
