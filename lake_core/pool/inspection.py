"""What a person can look at in one state of a pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.inspection import (
    Fact,
    Inspection,
    Marker,
    RowChanges,
    RowPage,
    RowRequest,
    ShapeInfo,
    Summary,
    TooMuchToShow,
)
from lake_core.pool.key_range import KeyRange
from lake_core.pool.scan import Scan
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.type_text import format_type
from lake_core.readable import count_of
from lake_core.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lake_core.pool.data_object import DataObject
    from lake_core.pool.dataset_state import DatasetState
    from lake_core.pool.pool import Pool
    from lake_core.pool.value import Value

_MOST_SHAPED = 2_000_000
"""The most records whose types are counted for a page."""
_MOST_SHAPES = 200
_DEEPEST = 1_000_000
"""The last record that is shown: those before it are read."""


class PoolInspection(Inspection[ObjectStore]):
    """A pool at its newest commit."""

    format = "pool"
    unit = "records"
    has_rows = True
    has_shapes = True

    def __init__(self, store: ObjectStore, pool: Pool, state: DatasetState) -> None:
        super().__init__(store)
        self._pool, self.state = pool, state

    def summary(self) -> Summary:
        """Return the pool's key, its size and its markers."""
        objects = self.state.objects.values()
        config = self.state.config
        return Summary(
            kind="Pool",
            version=self.state.branch_entries - 1,
            rows=sum(each.count for each in objects),
            files=len(objects),
            bytes=sum(each.size for each in objects),
            facts=[
                Fact("data objects", len(objects)),
                Fact("sorted by", ", ".join(".".join(key) for key in config.keys)),
                Fact("order", "descending" if str(config.order) == "desc" else "ascending"),
            ],
            markers=[Marker(name, marker.version, marker.last_updated) for name, marker in self.state.markers.items()],
        )

    def rows(self, request: RowRequest) -> RowPage:
        """Return records in the order of the pool's key, also as ZSON."""
        if request.offset + request.count > _DEEPEST:
            raise TooMuchToShow(f"a page shows the first {count_of(_DEEPEST, 'record')}: narrow down by a condition")
        scan = self._pool.scan(where=request.where, columns=request.columns)
        values = list(islice(_timed(scan.values(), request), request.offset, request.offset + request.count + 1))
        shown = values[: request.count]
        records = [_record(value) for value in shown]
        total = None if request.where is not None else sum(each.count for each in self.state.objects.values())
        names = list(dict.fromkeys(name for record in records for name in record))
        return RowPage(names, records, len(values) > request.count, total, [format_value(value) for value in shown])

    def shapes(self) -> Sequence[ShapeInfo]:
        """Return the types of the records with their numbers. Raises TooMuchToShow."""
        count = sum(each.count for each in self.state.objects.values())
        if count > _MOST_SHAPED:
            raise TooMuchToShow(f"the pool has {count:,} records, and shapes are counted up to {_MOST_SHAPED:,}")
        counted = sorted(self._pool.scan().shapes(), key=lambda shape: -shape.count)
        return [ShapeInfo(format_type(shape.type), shape.count) for shape in counted[:_MOST_SHAPES]]

    def row_changes(self, before: Inspection[ObjectStore] | None, key: Sequence[str], most_rows: int) -> RowChanges:
        """Return the records, as ZSON, of the data objects that differ. Records are compared as a whole."""
        old = before if isinstance(before, PoolInspection) else None
        theirs = {} if old is None else old.state.objects
        added = [each for id, each in self.state.objects.items() if id not in theirs]
        removed = [each for id, each in theirs.items() if id not in self.state.objects]
        count = sum(each.count for each in (*added, *removed))
        if count > most_rows:
            raise TooMuchToShow(
                f"the data objects that differ hold {count:,} records, and at most {most_rows:,} are compared: "
                "compare versions that are closer to one another"
            )
        new = Counter(self._texts(added))
        gone = Counter(() if old is None else old._texts(removed))
        sides = [list((new - gone).elements()), list((gone - new).elements())]
        news, olds = (pa.table({"record": pa.array(side, pa.string())}) for side in sides)
        return RowChanges(["record"], (), news, olds, olds.slice(0, 0), news.slice(0, 0))

    def _texts(self, objects: Collection[DataObject]) -> Iterator[str]:
        if objects:
            root = getattr(self.store, "data_root", self.store)
            yield from map(format_value, Scan(root, self.state.config, objects, KeyRange()).values())


def _timed(values: Iterator[Value], request: RowRequest) -> Iterator[Value]:
    """Yield values until the time of a request is over. Raises TooMuchToShow."""
    check = request.deadline()
    for number, value in enumerate(values):
        if not number % 4096:
            check()
        yield value


def _record(value: Value) -> Mapping[str, Any]:
    decoded = value.decode()
    return decoded if isinstance(decoded, Mapping) else {"this": decoded}
