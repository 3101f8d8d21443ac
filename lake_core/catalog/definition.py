"""What a catalog holds of a lake's tables: their definition, and the record of where they come from."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lake_core.delta.schema import StructField, StructType, edited_fields, schema_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.delta.action import Metadata

_PREFIX: Final = "lake."
LAKE, PATH, DATASET = f"{_PREFIX}id", f"{_PREFIX}path", f"{_PREFIX}dataset"
BRANCH, COMMIT, VERSION = f"{_PREFIX}branch", f"{_PREFIX}commit", f"{_PREFIX}version"
FINGERPRINT = f"{_PREFIX}definition"
"""The keys of a registered table's parameters that record where it comes from."""

_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
"""What a record holds: never what a terminal would obey."""
_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)
_FILE: Final = re.compile(r"^file:/+")
_RENDERING: Final = 1
"""Raised when a release writes the same definition to a catalog in another way, so that tables are written again."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The record on a registered table of where it comes from. Only this makes a table that of a lake."""

    lake: str
    """The id of the lake."""
    branch: str
    path: str
    dataset: str
    """The id of the dataset, which another dataset at the same path does not have."""
    commit: str
    """The head of the branch when the table was last written to the catalog."""
    version: int
    """The version of the table at that commit."""
    fingerprint: str
    """A hash of the definition that was written."""

    def parameters(self) -> dict[str, str]:
        """Return the parameters that record the origin."""
        return {
            LAKE: self.lake,
            BRANCH: self.branch,
            PATH: self.path,
            DATASET: self.dataset,
            COMMIT: self.commit,
            VERSION: str(self.version),
            FINGERPRINT: self.fingerprint,
        }

    @classmethod
    def of(cls, parameters: Mapping[str, str] | None) -> Origin | None:
        """Read the record from parameters. Return None if it is not there as a whole: the table is somebody else's."""
        keys = (LAKE, BRANCH, PATH, DATASET, COMMIT, VERSION, FINGERPRINT)
        values = {key: (parameters or {}).get(key) for key in keys}
        texts = {key: value for key, value in values.items() if isinstance(value, str) and _TEXT.fullmatch(value)}
        if len(texts) != len(keys) or not _NUMBER.fullmatch(texts[VERSION]):
            return None
        return cls(
            lake=texts[LAKE],
            branch=texts[BRANCH],
            path=texts[PATH],
            dataset=texts[DATASET],
            commit=texts[COMMIT],
            version=int(texts[VERSION]),
            fingerprint=texts[FINGERPRINT],
        )


def is_of_record(key: str) -> bool:
    """Return whether a parameter is part of the record, so that an update replaces it."""
    return key.startswith(_PREFIX)


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The definition of a table in a catalog."""

    name: str
    location: str
    """The URL of the table's folder, as the readers of the catalog open it."""
    schema: StructType
    """The columns, without the Delta protocol's own metadata of fields."""
    partition_columns: tuple[str, ...]
    description: str | None
    origin: Origin

    @property
    def schema_json(self) -> str:
        """Return the schema as Spark writes it."""
        return schema_to_json(self.schema)


def catalog_schema(metadata: Metadata) -> StructType:
    """Return a table's schema for a catalog: without ids, expressions and other metadata that belong in the log."""

    def edit(child: StructField) -> StructField:
        kept = {key: value for key, value in child.metadata.items() if key == "comment"}
        return StructField(child.name, child.type, child.nullable, kept)

    return edited_fields(metadata.schema, edit)


def fingerprint(location: str, schema: StructType, partition_columns: tuple[str, ...], description: str | None) -> str:
    """Return a hash of what a catalog shows of a table."""
    document = [_RENDERING, location, schema_to_json(schema), list(partition_columns), description]
    return hashlib.sha256(json.dumps(document, ensure_ascii=False).encode()).hexdigest()


def is_at(location: str | None, other: str) -> bool:
    """Return whether two URLs are written alike. Hadoop writes `file:/` for `file:///`."""
    return location is not None and _plain_url(location) == _plain_url(other)


def _plain_url(location: str) -> str:
    return _FILE.sub("file:/", location).rstrip("/")


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """A table that is in a catalog."""

    name: str
    location: str | None
    origin: Origin | None
    """The record of where it comes from. None for a table that no lake registered."""
    handle: object = field(default=None, compare=False, repr=False)
    """What the catalog needs to change the table in exactly this state."""
