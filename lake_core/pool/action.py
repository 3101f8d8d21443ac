"""The actions of commits: what they add to a pool, and what they delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import InvalidZng
from lake_core.pool.metadata import Record, id_value, named_record, type_name

if TYPE_CHECKING:
    from lake_core.pool.value import Value

ADD: Final = "commits.Add"
"""The name of the type of actions that add a data object."""
_DELETE: Final = "commits.Delete"
OF_VECTORS_AND_INDEXES: Final = frozenset(
    f"commits.{verb}{what}" for verb in ("Add", "Delete") for what in ("Vector", "Index")
)
"""The type names of actions that change how fast values are found, but not the values."""


@dataclass(frozen=True, slots=True)
class AddObject:
    """The action that adds a data object."""

    object: DataObject

    def to_value(self, commit: str) -> Value:
        """Return it as a record of a commit."""
        return named_record(ADD, {"commit": id_value(commit), "object": self.object.to_value()})


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """The action that deletes a data object."""

    id: str

    def to_value(self, commit: str) -> Value:
        """Return it as a record of a commit."""
        return named_record(_DELETE, {"commit": id_value(commit), "id": id_value(self.id)})


Action: TypeAlias = AddObject | DeleteObject


def action_of(value: Value) -> Action | None:
    """Return the action that a record of a commit describes; None for one about vectors or search indexes.

    Raises InvalidZng.
    """
    record = Record(value)
    name = type_name(value)
    if name == ADD:
        return AddObject(DataObject.from_record(record.record("object")))
    if name == _DELETE:
        return DeleteObject(record.ksuid("id"))
    if name in OF_VECTORS_AND_INDEXES:
        return None
    raise InvalidZng(f"a record has the unknown type {name!r}")
