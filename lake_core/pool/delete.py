"""Deletions: of records by a predicate, and of data objects by their ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.errors import DeleteConflict
from lake_core.pool.filter import Filter
from lake_core.pool.key_range import KeyRange
from lake_core.pool.rewrite import ObjectRewriter
from lake_core.pool.scan import Scan
from lake_core.pool.types import NULL, Type, under

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.pool.commit_store import CommitStore
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.load import Loader


@dataclass(frozen=True, slots=True)
class ObjectDeletion:
    """A deletion of data objects.

    Attributes:
        commits: The pool's commits.
        ids: The ids of the data objects.
    """

    commits: CommitStore
    ids: Sequence[str]

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a deletion on top of a tip. Raises DeleteConflict, DamagedLake."""
        objects = self.commits.objects(tip)
        missing = tuple(id for id in self.ids if id not in objects)
        if missing:
            raise DeleteConflict(
                f"other writers deleted or rewrote {', '.join(missing)} in the meantime; delete again",
                missing,
            )
        return [DeleteObject(id) for id in self.ids]


@dataclass(frozen=True, slots=True)
class RecordDeletion:
    """A deletion of the records for which a predicate is true.

    Attributes:
        loader: Writes the remaining records of data objects that hold deleted ones.
        where: The predicate, in Spark SQL.
    """

    loader: Loader
    where: str
    _types: dict[str, list[Type]] = field(default_factory=dict, init=False)
    _replacements: dict[str, list[DataObject]] = field(default_factory=dict, init=False)

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a deletion on top of a tip.

        Raises:
            InvalidExpression: The text is not a predicate over the fields of the records.
            EvaluationFailed: It fails for a record.
            InvalidValue: A value is not a record.
            DamagedLake: A commit or a data object cannot be read.
        """
        loader = self.loader
        objects = list(loader.branches.commits.objects(tip).values())
        in_range = Scan(loader.store, loader.config, objects, KeyRange(), where=self.where).objects
        types = self._types_of(in_range)
        if all(under(type) == NULL for type in types):
            return []
        row_filter = Filter(self.where, types, lambda: self._types_of([each for each in objects if each.count]))
        rewriter = ObjectRewriter(loader, lambda batch: row_filter.mask(batch.batch), self._replacements)
        remainders = {each.id: rewriter.remainder(each) for each in in_range}
        deletes = [DeleteObject(id) for id, objects in remainders.items() if objects is not None]
        return [*deletes, *(AddObject(each) for objects in remainders.values() for each in objects or ())]

    def _types_of(self, objects: Sequence[DataObject]) -> list[Type]:
        """Return the types of all values of data objects.

        Reads each object once. Raises DamagedLake.
        """
        for each in objects:
            if each.id not in self._types:
                self._types[each.id] = Scan(self.loader.store, self.loader.config, [each], KeyRange()).types
        return list(dict.fromkeys(type for each in objects for type in self._types[each.id]))
