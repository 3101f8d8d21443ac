"""Rewrites data objects without some of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lake_core.pool.arrow.bodies import Mask
from lake_core.pool.data_object import DataObject
from lake_core.pool.load import Loader
from lake_core.pool.merge import merge_objects
from lake_core.pool.object_writer import write_objects
from lake_core.pool.sorted_batch import SortedBatch


@dataclass(frozen=True, slots=True)
class ObjectRewriter:
    """Writes data objects anew without some of their values: each once, however often a commit is planned.

    Attributes:
        loader: Writes the values that stay.
        goes: Returns which values of a batch go.
        kept: What was written instead of each data object, by its id.
    """

    loader: Loader
    goes: Callable[[SortedBatch], Mask]
    kept: dict[str, list[DataObject]] = field(default_factory=dict)

    def rest(self, data_object: DataObject) -> list[DataObject] | None:
        """Return data objects with the values of one that stay; None where all of them do. Raises DamagedLake."""
        if data_object.id not in self.kept:
            loader = self.loader
            if any(self.goes(batch).any() for batch in self._batches(data_object)):
                self.kept[data_object.id] = list(write_objects(loader.store, loader.config, self._stays(data_object), loader.new_id))
            else:
                self.kept[data_object.id] = [data_object]
        kept = self.kept[data_object.id]
        return None if kept == [data_object] else kept

    def _batches(self, data_object: DataObject) -> Iterator[SortedBatch]:
        return merge_objects(self.loader.store, self.loader.config, [data_object])

    def _stays(self, data_object: DataObject) -> Iterator[SortedBatch]:
        for batch in self._batches(data_object):
            yield batch.filter(~self.goes(batch))
