"""The remainders that earlier runs of collection and `verify` computed, kept in the lake.

A file covers some pairs of trees. Its name is the SHA-256 of these pairs and of everything else that their remainders
depend on, so a file cannot be stale. A run computes a file that is missing or damaged again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from lake_core.dataset import AtLeast, Sizes, format_releases
from lake_core.errors import StoreError
from lake_core.graveler import Entry
from lake_core.graveler.errors import CorruptTable
from lake_core.lake.gc.checked_file import read_checked, write_checked
from lake_core.lake.gc.remainder import DatasetRemainder, Remainder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lake_core.store import ObjectStore

FOLDER = "_lake/gc/marks"
_FORMAT = 3
_GROUP = 512
"""The number of pairs that a file covers on average."""

Pair: TypeAlias = tuple[str, str, bool]
"""A tree, its successor, and whether that is the next state. See `RemainderReader.remainder`."""


class RemainderMemo:
    """The stored remainders of a lake."""

    def __init__(self, root: ObjectStore) -> None:
        self._root = root
        # Another release may compute other remainders of the same trees, and a copy of the lake has other URLs.
        self._scope = json.dumps([_FORMAT, root.url(), sorted(format_releases().items())])

    def remainders(
        self, pairs: Iterable[Pair], compute: Callable[[Sequence[Pair]], Iterable[Remainder | None]]
    ) -> Iterator[tuple[Pair, Remainder | None]]:
        """Yield the remainder of each pair, in groups.

        Remainders that are not stored are computed and stored. `compute` yields those of given pairs, in order, and
        None for those that it cannot compute.
        """
        groups = [(self._name(group), group) for group in _groups(pairs)]
        stored = {meta.key for meta in self._root.list(f"{FOLDER}/")}
        outdated = stored.difference(name for name, _ in groups)
        known: dict[Pair, Remainder] = {}
        if any(name not in stored for name, _ in groups):
            # Most pairs of a new group were in a group before.
            known = {pair: each for key in outdated for pair, each in (self._read(key) or {}).items()}
        new = [pair for name, group in groups if name not in stored for pair in group if pair not in known]
        # Those of all new groups in one call, which computes many of them at once.
        computed = zip(new, compute(new), strict=True)
        for name, group in groups:
            remainders: Mapping[Pair, Remainder | None] | None = self._read(name) if name in stored else None
            if remainders is None or remainders.keys() != set(group):
                missing = [pair for pair in group if pair not in known]
                # A group that is stored, but damaged, is not among the new ones.
                source = zip(missing, compute(missing), strict=True) if name in stored else computed
                results = dict(islice(source, len(missing)))
                remainders = {pair: known.get(pair) or results[pair] for pair in group}
                self._write(name, remainders)
            yield from remainders.items()
        if outdated:
            with suppress(StoreError):
                self._root.delete(sorted(outdated))

    def _name(self, pairs: Sequence[Pair]) -> str:
        return f"{FOLDER}/{hashlib.sha256(json.dumps([self._scope, pairs]).encode()).hexdigest()}"

    def _read(self, name: str) -> dict[Pair, Remainder] | None:
        """Read a file. Return None if it is missing, damaged, or of another scope."""
        body = read_checked(self._root, name)
        if body is None:
            return None
        try:
            scope, rows = json.loads(zlib.decompress(body))
            if scope != self._scope:
                return None
            return {(tree, successor, is_step): _decoded(row) for tree, successor, is_step, *row in rows}
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError, CorruptTable):
            return None

    def _write(self, name: str, remainders: Mapping[Pair, Remainder | None]) -> None:
        rows = [[*pair, *_encoded(each)] for pair, each in remainders.items() if each is not None]
        if len(rows) < len(remainders):
            return
        body = zlib.compress(json.dumps([self._scope, rows], separators=(",", ":")).encode(), 1)
        write_checked(self._root, name, body)


def _groups(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Divide pairs into runs that end at pairs with a certain hash, so that a new or removed pair changes few runs."""
    group: list[Pair] = []
    for pair in pairs:
        group.append(pair)
        if zlib.crc32("".join(pair[:2]).encode()) % _GROUP == 0:
            yield group
            group = []
    if group:
        yield group


def _encoded(remainder: Remainder) -> list[object]:
    entries = [base64.b64encode(entry.encode()).decode() for entry in remainder.entries]
    datasets = {path: [each.format, _sizes_row(each.objects)] for path, each in remainder.datasets.items()}
    return [_sizes_row(remainder.keys), entries, datasets]


def _decoded(row: Sequence[object]) -> Remainder:
    keys, entries, datasets = row
    if not isinstance(keys, dict) or not isinstance(entries, list) or not isinstance(datasets, dict):
        raise TypeError("a remainder has keys, entries and datasets")
    return Remainder(
        _sizes(keys),
        [Entry.decode(base64.b64decode(entry)) for entry in entries],
        {path: DatasetRemainder(format, _sizes(objects)) for path, (format, objects) in datasets.items()},
    )


def _sizes_row(sizes: Mapping[str, int | None]) -> Mapping[str, int | None]:
    """Return sizes for JSON. A least size is the complement of a number, which no size is."""
    return {key: ~size if isinstance(size, AtLeast) else size for key, size in sizes.items()}


def _sizes(row: Mapping[str, int | None]) -> Sizes:
    return {key: AtLeast(~size) if size is not None and size < 0 else size for key, size in row.items()}
