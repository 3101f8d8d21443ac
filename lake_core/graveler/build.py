"""Builds a tree from another one and changes. Only ranges that change are read and written.

The rule for where a range ends starts over after each end. A build begins at the first range that changes. As soon as
it ends a range where the old tree ended one, the ranges up to the next change stay as they are. The resulting tree
depends only on its content, not on the order or number of the changes.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.errors import AlreadyExists
from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.identity import METARANGES, RANGES, table_id
from lake_core.graveler.metarange import Metarange, RangeInfo
from lake_core.graveler.range_ends import range_ends
from lake_core.graveler.reader import Columns, RangeReader
from lake_core.graveler.record import Record, identity_of, join_value
from lake_core.graveler.result import Built
from lake_core.graveler.table_writer import WrittenTable, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from lake_core.graveler.profile import Profile

_CHUNK = 8192
_UPLOADS = 8
"""The number of ranges that are put in parallel if the store is remote."""
_KEPT = 4
"""The number of ranges of one build that stay decoded: a small change is often followed by another one nearby."""


class Build:
    """One build. Use it once: `Build(…).run(changes)`."""

    def __init__(
        self,
        reader: RangeReader,
        profile: Profile,
        base: Metarange,
        avoid: Callable[[str], bool] | None,
        properties: Mapping[str, str] | None = None,
        *,
        exact: bool = False,
    ) -> None:
        self._reader = reader
        self._profile = profile
        self._base = base
        self._avoid = avoid
        self._properties = dict(properties or {})
        self._exact = exact
        self._max_keys: list[bytes] = []
        self._values: list[bytes] = []
        self._open_keys: list[bytes] = []
        self._open_values: list[bytes] = []
        self._open_bytes = 0
        self._written: list[str] = []
        self._pool: Executor | None = None
        self._puts: deque[Future[None]] = deque()
        self._reused = self._added = self._removed = self._changed = 0

    def run(self, tree: str, changes: Iterable[tuple[bytes, Record | None]]) -> Built:
        """Apply the changes to `tree`, whose ranges are the base.

        Raises ValueError if they are not sorted, or a key occurs twice.
        """
        queue = _Changes(changes)
        if not self._reader.is_remote:
            return self._run(tree, queue)
        with runtime.thread_pool(_UPLOADS) as self._pool:
            try:
                return self._run(tree, queue)
            except BaseException:
                for put in self._puts:
                    put.cancel()
                raise

    def _run(self, tree: str, queue: _Changes) -> Built:
        base, at = self._base, 0
        while True:
            if not self._open_keys:
                until = self._first_touched(at, queue)
                self._max_keys += base.max_keys[at:until]
                self._values += base.values[at:until]
                self._reused += until - at
                at = until
            if at < len(base):
                self._enter(at, queue)
                at += 1
            elif queue.first is not None:
                self._add(queue.some(_CHUNK))
            else:
                break
        if self._open_keys:
            self._write(0, len(self._open_keys))
        # A metarange is stored only after all of its ranges.
        while self._puts:
            self._puts.popleft().result()
        if self._max_keys == list(base.max_keys) and self._values == list(base.values):
            built = tree
        elif self._values:
            table = self._named(self._max_keys, self._values, METARANGES)
            put_table(self._reader, table)
            self._reader.keep_metarange(table.id, Metarange(self._max_keys, self._values))
            built = table.id
        else:
            built = ""
        return Built(built, tuple(self._written), self._reused, self._added, self._removed, self._changed)

    def _first_touched(self, at: int, queue: _Changes) -> int:
        """Return the first remaining range that the next change affects, or the number of ranges if it affects none."""
        end = len(self._base)
        while queue.first is not None:
            key, record = queue.first
            position = bisect_left(self._base.max_keys, key, at)
            if position < end:
                return position
            if record is not None:
                # A change after the last range continues that range, unless the rule ended it.
                return end - 1 if at < end and not self._is_ended(end - 1) else end
            # There is no record to remove.
            queue.some(1)
        return end

    def _is_ended(self, at: int) -> bool:
        columns = self._reader.columns(self._base[at].id)
        ends, _ = range_ends(self._profile, columns.keys, columns.values)
        return bool(ends) and ends[-1] == len(columns.keys)

    def _enter(self, at: int, queue: _Changes) -> None:
        """Read a range and add its records, with the changes up to its end applied."""
        info = self._base[at]
        columns = self._reader.columns(info.id)
        keys, values = columns.keys, columns.values
        follows = at == 0 or info.min_key > self._base.max_keys[at - 1]
        if not keys or (keys[0], keys[-1]) != (info.min_key, info.max_key) or not follows:
            raise CorruptTable(f"the range {info.id} does not contain the keys that its metarange lists")
        out_keys: list[bytes] = []
        out_values: list[bytes] = []
        before = self._added + self._removed + self._changed
        position = 0
        for key, record in queue.up_to(self._base.max_keys[at]):
            index = bisect_left(keys, key, position)
            out_keys += keys[position:index]
            out_values += values[position:index]
            present = index < len(keys) and keys[index] == key
            position = index + present
            if record is None:
                self._removed += present
                continue
            out_keys.append(key)
            joined = join_value(record[1], record[2])
            if present and (values[index] == joined if self._exact else identity_of(values[index]) == record[1]):
                out_values.append(values[index])
                continue
            out_values.append(joined)
            if present:
                self._changed += 1
            else:
                self._added += 1
        untouched = before == self._added + self._removed + self._changed
        if (
            untouched
            and not self._open_keys
            and (at < len(self._base) - 1 or queue.first is None or self._is_ended(at))
        ):
            self._max_keys.append(self._base.max_keys[at])
            self._values.append(self._base.values[at])
            self._reused += 1
            return
        self._append(out_keys + list(keys[position:]), out_values + list(values[position:]))

    def _add(self, changes: Sequence[tuple[bytes, Record | None]]) -> None:
        """Add records after all records of the base."""
        records = [record for _, record in changes if record is not None]
        self._added += len(records)
        self._append([record[0] for record in records], [join_value(record[1], record[2]) for record in records])

    def _append(self, keys: list[bytes], values: list[bytes]) -> None:
        """Add records to the open range, and write each range that ends."""
        already_open = len(self._open_keys)
        ends, self._open_bytes = range_ends(self._profile, keys, values, self._open_bytes)
        self._open_keys += keys
        self._open_values += values
        written = 0
        for end in ends:
            self._write(written, already_open + end)
            written = already_open + end
        del self._open_keys[:written], self._open_values[:written]

    def _write(self, begin: int, end: int) -> None:
        keys, values = self._open_keys[begin:end], self._open_values[begin:end]
        table = self._named(keys, values, RANGES)
        if self._pool is not None:
            if len(self._puts) > _UPLOADS:
                self._puts.popleft().result()
            self._puts.append(self._pool.submit(put_table, self._reader, table))
        else:
            put_table(self._reader, table)
        if len(self._written) <= _KEPT:
            self._reader.keep_columns(table.id, Columns(keys, values))
        self._max_keys.append(table.max_key)
        self._values.append(RangeInfo.of(table).value())

    def _named(self, keys: Sequence[bytes], values: Sequence[bytes], properties: Mapping[str, str]) -> WrittenTable:
        table = salted(keys, values, {**self._properties, **properties}, self._avoid)
        self._written.append(table.id)
        return table


def salted(
    keys: Sequence[bytes], values: Sequence[bytes], properties: Mapping[str, str], avoid: Callable[[str], bool] | None
) -> WrittenTable:
    """Write a table whose name is not one to avoid. Its property `generation` counts up until the name is allowed."""
    name = table_id(zip(keys, values, strict=True), properties)
    generation = 0
    chosen = dict(properties)
    while avoid is not None and avoid(name):
        generation += 1
        chosen["generation"] = str(generation)
        name = table_id(zip(keys, values, strict=True), chosen)
    return write_table(keys, values, chosen, name=name)


def put_table(reader: RangeReader, table: WrittenTable) -> None:
    """Store a table under its name, if it does not exist yet."""
    with contextlib.suppress(AlreadyExists):
        reader.store.put(reader.key(table.id), table.data, if_absent=True)
    reader.put(table.id, table.data)


class _Changes:
    """The queue of changes. Raises ValueError as soon as they are not sorted."""

    def __init__(self, changes: Iterable[tuple[bytes, Record | None]]) -> None:
        self._changes = iter(changes)
        self.first: tuple[bytes, Record | None] | None = None
        self._next()

    def up_to(self, key: bytes) -> Iterator[tuple[bytes, Record | None]]:
        """Yield the changes up to this key, inclusive."""
        while self.first is not None and self.first[0] <= key:
            yield self.first
            self._next()

    def some(self, count: int) -> list[tuple[bytes, Record | None]]:
        """Take a number of changes, or all that are left."""
        taken: list[tuple[bytes, Record | None]] = []
        while self.first is not None and len(taken) < count:
            taken.append(self.first)
            self._next()
        return taken

    def _next(self) -> None:
        last = self.first
        self.first = next(self._changes, None)
        if self.first is None:
            return
        key, record = self.first
        if last is not None and key <= last[0]:
            raise ValueError(f"changes must be sorted by key, without duplicates, but {key!r} follows {last[0]!r}")
        if record is not None and record[0] != key:
            raise ValueError(f"the record of {record[0]!r} is given as the change of {key!r}")
