"""Data objects: sorted values in one file, with a seek index in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.pool.metadata import Record, id_value, named_record
from lake_core.pool.types import INT64, UINT64
from lake_core.pool.value import Value

if TYPE_CHECKING:
    from lake_core.pool.metadata_columns import RecordColumns


@dataclass(frozen=True, slots=True)
class DataObject:
    """The description of a data object in a commit.

    Attributes:
        id: Its id, and the name of its files.
        min: The smallest key of its values.
        max: The largest.
        count: How many values it holds.
        size: How many bytes its file has.
    """

    id: str
    min: Value
    max: Value
    count: int
    size: int

    @classmethod
    def from_record(cls, record: Record) -> DataObject:
        """Return the data object of a record of metadata. Raises InvalidZng."""
        return cls(
            record.ksuid("id"),
            record.field("min"),
            record.field("max"),
            record.integer("count"),
            record.integer("size"),
        )

    @classmethod
    def from_columns(cls, records: RecordColumns) -> list[DataObject]:
        """Return the data objects of records of metadata. Raises InvalidZng."""
        keys = (records.values("min"), records.values("max"))
        return list(map(cls, records.ksuids("id"), *keys, records.integers("count"), records.integers("size")))

    def to_value(self) -> Value:
        """Return it as a record of metadata."""
        return named_record(
            "data.Object",
            {
                "id": id_value(self.id),
                "min": self.min,
                "max": self.max,
                "count": Value.of(UINT64, self.count),
                "size": Value.of(INT64, self.size),
            },
        )


def data_key(pool_id: str, object_id: str) -> str:
    """Return the key of a data object's values."""
    return f"{pool_id}/data/{object_id}.zng"


def seek_index_key(pool_id: str, object_id: str) -> str:
    """Return the key of a data object's seek index."""
    return f"{pool_id}/data/{object_id}-seek.zng"
