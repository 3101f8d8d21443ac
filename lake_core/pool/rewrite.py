"""Rewrites data objects without some of their values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake_core.pool.merge import merge_objects
from lake_core.pool.object_writer import write_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lake_core.pool.arrow.arrays import Mask
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.load import Loader
    from lake_core.pool.sorted_batch import SortedBatch


@dataclass(frozen=True, slots=True)
class ObjectRewriter:
    """A writer of data objects without some of their values. It writes each once, however often a commit is planned.

    Attributes:
        loader: Writes the remaining values.
        removed: Returns which values of a batch are removed.
        replacements: The data objects that replace each data object, by its id. One that loses no value replaces
            itself.
    """

    loader: Loader
    removed: Callable[[SortedBatch], Mask]
    replacements: dict[str, list[DataObject]] = field(default_factory=dict)

    def remainder(self, data_object: DataObject) -> list[DataObject] | None:
        """Return data objects with the remaining values of one; None where it keeps all of its values.

        Raises DamagedLake.
        """
        if data_object.id not in self.replacements:
            loader = self.loader
            if any(self.removed(batch).any() for batch in self._batches(data_object)):
                self.replacements[data_object.id] = list(
                    write_objects(loader.store, loader.config, self._remaining(data_object), loader.new_id)
                )
            else:
                self.replacements[data_object.id] = [data_object]
        replacements = self.replacements[data_object.id]
        return None if replacements == [data_object] else replacements

    def _batches(self, data_object: DataObject) -> Iterator[SortedBatch]:
        return merge_objects(self.loader.store, self.loader.config, [data_object])

    def _remaining(self, data_object: DataObject) -> Iterator[SortedBatch]:
        for batch in self._batches(data_object):
            yield batch.filter(~self.removed(batch))
