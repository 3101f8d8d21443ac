"""Trees of value records over an object store: lookup, listing, building, difference and merge."""

from __future__ import annotations

import builtins
from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING

from lake_core.graveler.cache import RangeCache
from lake_core.graveler.diff import after_prefix, differences
from lake_core.graveler.merge import Resolve, Strategy, settled
from lake_core.graveler.profile import SMALL_RANGES, Profile
from lake_core.graveler.reader import RangeReader, is_remote
from lake_core.graveler.record import Record, fill, split_value
from lake_core.graveler.result import Built, RecordDifference, ThreeWay, TreeMerge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lake_core.graveler.metarange import RangeInfo
    from lake_core.store import ObjectStore

_BATCH = 4096
_FIRST_BATCH = 16
_FEW = 32
"""Up to so many keys of a range are looked up one by one. That decodes the range only if the memory has room for it."""


class Graveler:
    """The trees in a store. A tree is named by its metarange's id; "" is the empty tree. Trees never change.

    Files are at `<folder>/<id>`. `cache` is a local folder. The default is one in the user's cache folder, or none if
    the store itself is local. `memory_bytes` limits how much is kept decoded in memory. A `Graveler` can be used from
    many threads, and can be pickled. All methods raise NotFound if a file of the tree is missing, CorruptTable if a
    file is damaged, and the errors of the store.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        profile: Profile = SMALL_RANGES,
        cache: RangeCache | None = None,
        folder: str = "_lakefs",
        memory_bytes: int = 512 << 20,
    ) -> None:
        if cache is None and is_remote(store):
            cache = RangeCache()
        self.store = store
        self.profile = profile
        self.reader = RangeReader(store, cache, folder, memory_bytes=memory_bytes)

    def get(self, tree: str, key: bytes) -> Record | None:
        """Return the record of a key. If its range is not decoded yet, only the index and one block are decoded."""
        metarange = self.reader.metarange(tree)
        at = bisect_left(metarange.max_keys, key)
        if at == len(metarange):
            return None
        value = self.reader.find(metarange.ids[at].decode(), key)
        return None if value is None else Record(key, *split_value(value))

    def get_many(self, tree: str, keys: Sequence[bytes]) -> builtins.list[Record | None]:
        """Return the records of many keys, in the order given. Each range is looked up once for all of its keys."""
        metarange = self.reader.metarange(tree)
        records: list[Record | None] = [None] * len(keys)
        ends = metarange.max_keys
        by_range: dict[int, builtins.list[int]] = {}
        for index, key in enumerate(keys):
            by_range.setdefault(bisect_left(ends, key), []).append(index)
        for at, indexes in by_range.items():
            if at == len(metarange):
                continue
            name = metarange.ids[at].decode()
            if len(indexes) <= _FEW:
                for index in indexes:
                    value = self.reader.find(name, keys[index])
                    if value is not None:
                        records[index] = Record(keys[index], *split_value(value))
                continue
            fill(records, indexes, keys, self.reader.columns(name).by_key)
        return records

    def scan(self, tree: str, prefix: bytes = b"", start_after: bytes = b"") -> Iterator[Record]:
        """Yield the records with keys that start with `prefix` and sort after `start_after` (b"": all), in order.

        Ranges without such keys are not read.
        """
        for keys, values in self.scan_columns(tree, prefix, start_after):
            for key, value in zip(keys, values, strict=True):
                yield Record(key, *split_value(value))

    def scan_columns(
        self, tree: str, prefix: bytes = b"", start_after: bytes = b""
    ) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        """Yield the keys and joined values of the records that `scan` yields, in slices.

        The first slices are small, for callers that stop early.
        """
        metarange = self.reader.metarange(tree)
        start = max(prefix, start_after + b"\0" if start_after else b"")
        stop_key = after_prefix(prefix) if prefix else None
        size = _FIRST_BATCH
        for at in range(bisect_left(metarange.max_keys, start), len(metarange)):
            if stop_key is not None and metarange[at].min_key >= stop_key:
                return
            columns = self.reader.columns(metarange.ids[at].decode())
            keys, values = columns.keys, columns.values
            begin = bisect_left(keys, start)
            end = len(keys) if stop_key is None else bisect_left(keys, stop_key, begin)
            while begin < end:
                stop = min(begin + size, end)
                yield keys[begin:stop], values[begin:stop]
                begin, size = stop, min(4 * size, _BATCH)
            if end < len(keys):
                return

    def list(
        self, tree: str, prefix: bytes = b"", start_after: bytes = b"", delimiter: bytes = b""
    ) -> Iterator[Record | bytes]:
        """List as `scan` does, but yield keys that have a delimiter after the prefix as their common prefix (bytes).

        A lakeFS server lists a folder in this way (lakeFS data model: listing).

        The records below a common prefix are not read. Only records and prefixes that sort after `start_after` are
        yielded. To continue a listing, pass its last record's key, or its last prefix.
        """
        if not delimiter:
            yield from self.scan(tree, prefix, start_after)
            return
        metarange = self.reader.metarange(tree)
        start = max(prefix, start_after + b"\0" if start_after else b"")
        if start_after.startswith(prefix) and (common := _common_prefix(start_after, prefix, delimiter)) is not None:
            # That prefix itself does not sort after `start_after`.
            skipped = after_prefix(common)
            if skipped is None:
                return
            start = skipped
        at, keys, values, index = -1, [], [], 0  # type: int, Sequence[bytes], Sequence[bytes], int
        while True:
            position = bisect_left(metarange.max_keys, start, max(at, 0))
            if position == len(metarange):
                return
            if position != at:
                at, index = position, 0
                if metarange[at].min_key > start and not metarange[at].min_key.startswith(prefix):
                    return
                columns = self.reader.columns(metarange.ids[at].decode())
                keys, values = columns.keys, columns.values
            index = bisect_left(keys, start, index)
            while index < len(keys):
                key = keys[index]
                if not key.startswith(prefix):
                    return
                common = _common_prefix(key, prefix, delimiter)
                if common is not None:
                    yield common
                    next_start = after_prefix(common)
                    if next_start is None:
                        return
                    start = next_start
                    break
                yield Record(key, *split_value(values[index]))
                index += 1
            else:
                start = metarange.max_keys[at] + b"\0"

    def ranges(self, tree: str) -> Sequence[RangeInfo]:
        """Return the ranges of a tree in order."""
        return self.reader.metarange(tree)

    def names(self, tree: str) -> set[str]:
        """Return the ids of all files of a tree: its metarange and its ranges."""
        if not tree:
            return set()
        return {tree, *(name.decode() for name in self.reader.metarange(tree).ids)}

    def build(
        self,
        tree: str,
        changes: Iterable[tuple[bytes, Record | None]],
        *,
        avoid: Callable[[str], bool] | None = None,
        properties: Mapping[str, str] | None = None,
        exact: bool = False,
    ) -> Built:
        """Apply changes to a tree. All files are stored when this returns.

        Args:
            tree: The tree to change.
            changes: (key, its new record, or None to remove it), sorted by key, each key once. If the existing record
                has the same identity, it is kept.
            avoid: Returns True for ids that a new file must not have, because another process may be deleting them.
                Such a file gets an additional property, which changes its name. Ranges that do not change keep their
                names.
            properties: Written into each file. They become part of its name.
            exact: Replace an existing record of the same identity if its value differs.

        Raises:
            ValueError: The changes are not sorted. Files that were already written are left for a collector.
        """
        from lake_core.graveler.build import Build  # here, because readers do without NumPy

        base = self.reader.metarange(tree)
        return Build(self.reader, self.profile, base, avoid, properties, exact=exact).run(tree, changes)

    def diff(self, before: str, after: str, prefix: bytes = b"", *, exact: bool = False) -> Iterator[RecordDifference]:
        """Yield the keys with a prefix whose records differ, in order. Ranges that both trees have are not read.

        Records with the same identity are equal. With `exact`, they must also have the same value.
        """
        if before == after:
            return iter(())
        metaranges = self.reader.metarange(before), self.reader.metarange(after)
        return differences(self.reader, *metaranges, prefix, exact=exact)

    def changes(self, base: str, theirs: str, target: str) -> Iterator[ThreeWay]:
        """Yield the keys with records that differ between `base` and `theirs`, each with its record in `target`."""
        walk = self.diff(base, theirs)
        while batch := builtins.list(islice(walk, _BATCH)):
            records = self.get_many(target, [difference.key for difference in batch])
            for (key, before, after), record in zip(batch, records, strict=True):
                yield ThreeWay(key, before, after, record)

    def merge(
        self,
        base: str,
        ours: str,
        theirs: str,
        *,
        strategy: Strategy | None = None,
        resolve: Resolve | None = None,
        avoid: Callable[[str], bool] | None = None,
    ) -> TreeMerge:
        """Apply what `theirs` changed since `base` to `ours`.

        A key is in conflict if both sides changed it to different records. `resolve` (key, base, ours, theirs) returns
        the record to write; otherwise `strategy` names the side that wins. Without either, MergeConflict is raised with
        all such keys, and nothing is written. `avoid` as in `build`.
        """
        if ours in (base, theirs):
            return TreeMerge(theirs, ())
        if theirs == base:
            return TreeMerge(ours, ())
        apply, conflicts = settled(self.changes(base, theirs, ours), strategy, resolve)
        built = self.build(ours, apply, avoid=avoid)
        return TreeMerge(built.tree, conflicts, built)

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.store, self.profile, self.reader.cache, self.reader.folder, self.reader.memory_bytes)


def _common_prefix(key: bytes, prefix: bytes, delimiter: bytes) -> bytes | None:
    """Return the common prefix under which a listing shows a key, if it does."""
    position = key.find(delimiter, len(prefix))
    return None if position < 0 else key[: position + len(delimiter)]


def _reopen(store: ObjectStore, profile: Profile, cache: RangeCache | None, folder: str, memory_bytes: int) -> Graveler:
    return Graveler(store, profile=profile, cache=cache, folder=folder, memory_bytes=memory_bytes)
