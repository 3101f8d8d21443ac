"""The difference between two states of a pool for a reader: records and data objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from lake_core.dataset import DatasetComparison
from lake_core.pool.key_range import KeyRange
from lake_core.pool.scan import Scan

if TYPE_CHECKING:
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.dataset_state import DatasetState
    from lake_core.pool.value import Value
    from lake_core.store import ObjectStore


def compare(
    before: DatasetState | None, after: DatasetState | None, data_root: ObjectStore, *, sample: int, most_rows: int
) -> DatasetComparison:
    """Return the difference between two states, each of which is None if the pool does not exist.

    Args:
        before: The earlier state.
        after: The later one.
        data_root: The store of the data objects: the folder of the dataset.
        sample: How many of the records that were added and removed are shown.
        most_rows: The largest number of records that are read. Where the data objects that differ hold more, all of
            their records are counted, including those that were only copied.
    """
    old, new = ({} if state is None else state.objects for state in (before, after))
    removed = [each for id, each in old.items() if id not in new]
    added = [each for id, each in new.items() if id not in old]
    counts = [sum(each.count for each in objects) for objects in (added, removed)]
    exact = not added or not removed
    samples: Sequence[Sequence[Mapping[str, Any]]] = [(), ()]
    if not exact and sum(counts) <= most_rows:
        values = [Counter(_values(state, data_root, objects)) for state, objects in ((after, added), (before, removed))]
        sides = [values[0] - values[1], values[1] - values[0]]
        counts, exact = [side.total() for side in sides], True
        samples = [[_row(value) for value in islice(side.elements(), sample)] for side in sides]
    elif sample:
        samples = [
            [_row(value) for value in islice(_values(state, data_root, objects), sample)]
            for state, objects in ((after, added), (before, removed))
        ]
    return DatasetComparison(
        before=_version(before),
        after=_version(after),
        rows_added=counts[0],
        rows_removed=counts[1],
        rows_exact=exact,
        files_added=len(added),
        files_removed=len(removed),
        sample_added=samples[0],
        sample_removed=samples[1],
    )


def _version(state: DatasetState | None) -> int | None:
    return None if state is None else state.branch_entries - 1


def _values(state: DatasetState | None, data_root: ObjectStore, objects: Collection[DataObject]) -> Iterator[Value]:
    if state is None or not objects:
        return iter(())
    return Scan(data_root, state.config, objects, KeyRange()).values()


def _row(value: Value) -> Mapping[str, Any]:
    decoded = value.decode()
    return decoded if isinstance(decoded, Mapping) else {"this": decoded}
