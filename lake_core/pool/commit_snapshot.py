"""Snapshots of commits: the data objects of a pool as of a commit, cached in one file.

A snapshot can hold very many data objects, so it is decoded as columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lake_core.pool.action import ADD, OF_VECTORS_AND_INDEXES, AddObject
from lake_core.pool.arrow.columns import read_encoded_columns
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import InvalidZng
from lake_core.pool.ksuid import NIL
from lake_core.pool.metadata import check_complete, name_of_type
from lake_core.pool.metadata_columns import RecordColumns
from lake_core.pool.zng.writer import encode_values

if TYPE_CHECKING:
    from collections.abc import Iterable


class CommitSnapshot(NamedTuple):
    """The content of a pool as of a commit.

    Attributes:
        objects: The data objects by their ids.
        has_others: Whether the pool has vectors or search indexes.
    """

    objects: dict[str, DataObject]
    has_others: bool


def decode_snapshot(data: bytes) -> CommitSnapshot:
    """Return the snapshot that the bytes encode. Raises InvalidZng if it is damaged, or has no data objects."""
    check_complete(data)
    objects: dict[str, DataObject] = {}
    count = 0
    has_others = False
    for column in read_encoded_columns(data):
        name = name_of_type(column.type)
        if name == ADD:
            added = DataObject.from_columns(RecordColumns(column.type, column.bodies).records("object"))
            objects.update((each.id, each) for each in added)
            count += len(added)
        elif name in OF_VECTORS_AND_INDEXES:
            has_others = True
        else:
            raise InvalidZng(f"a record of the type {name!r} is not part of a snapshot")
    # A writer that died may have left an empty snapshot.
    if not objects or len(objects) < count:
        raise InvalidZng("it has no data objects, or lists one of them twice")
    return CommitSnapshot(objects, has_others)


def encode_snapshot(objects: Iterable[DataObject]) -> bytes:
    """Return a snapshot of data objects as bytes."""
    return encode_values([AddObject(each).to_value(NIL) for each in objects])
