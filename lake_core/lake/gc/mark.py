"""Mark the objects that a lake's refs, retained history and sessions reach, for collection and `verify`.

The first of the retained states is marked completely, each other one adds its remainder. `docs/internals/gc.md` says
why no object is missed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from lake_core.dataset import Sizes, add_sizes, sized
from lake_core.errors import LakeError
from lake_core.graveler import Entry
from lake_core.graveler.entry_columns import entry_columns, relative_addresses
from lake_core.graveler.record import split_value
from lake_core.lake.gc.remainder import (
    DatasetRemainder,
    Remainder,
    RemainderReader,
    Trees,
    log_entry,
    log_head,
    stored_size,
)
from lake_core.lake.gc.remainder_memo import Pair, RemainderMemo
from lake_core.lake.gc.remainder_task import compute_remainders
from lake_core.lake.state.content import digest_of
from lake_core.runner import Runner, run_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lake_core.lake.gc.retention import RetainedState, Retention
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.lake.state.state_store import StateStore

_LOG = logging.getLogger(__name__)
_NO_DATASETS: Mapping[str, DatasetRemainder] = {}
"""Shared, because there is one for nearly each commit."""
_RANGE_MEMORY = 32 << 20
"""The size of the cache of ranges. It is small, because trees are read one by one and each is similar to the last."""


@dataclass(slots=True)
class Reachability:
    """The keys, below the lake's root, that live states reach. States are marked once."""

    repository: Repository
    run: Runner = run_in_turn
    """Calls the tasks that compute remainders."""
    keys: set[str] = field(default_factory=set)
    sizes: Sizes | None = None
    """The sizes that trees and datasets record, by key. Collection does without."""
    formats: dict[str, set[str]] = field(default_factory=dict)
    """The formats of the datasets by path. A dataset may have been created in the place of one of another format."""
    references: dict[str, set[tuple[int, str, int]]] = field(default_factory=dict)
    """Size, etag and time (in nanoseconds) of the imported objects, as in the tree, by key."""
    external: dict[str, Entry] = field(default_factory=dict)
    """Entries of objects outside of the lake, by their URLs."""
    _trees: set[str] = field(default_factory=set)
    _pairs: dict[Pair, Mapping[str, DatasetRemainder]] = field(default_factory=dict)
    """The pairs that are marked.

    By dataset, the objects that were left out because no state of the pair keeps them (`Retention.keeps_files`).
    """
    _ranges: set[str] = field(default_factory=set)
    _datasets: set[tuple[str, str]] = field(default_factory=set)
    """The datasets that are marked, by path and tree."""
    _versions: dict[tuple[str, str], int] = field(default_factory=dict)
    """The version of each dataset that was found last, by path and format. The next one is probably close to it."""

    def __post_init__(self) -> None:
        self.repository = self.repository.with_range_memory(_RANGE_MEMORY)

    def add(
        self, retention: Retention, now: datetime, unreadable: Callable[[str, LakeError], None] | None = None
    ) -> None:
        """Mark what states reach.

        Args:
            retention: The states.
            now: The time, by which plain readers still need older versions.
            unreadable: Called with the name of a state, or the path of a dataset, that cannot be read. By default its
                error is raised: nothing may be collected then.
        """
        failed = unreadable or _raise
        try:
            self._add_readers(retention, now)
        except LakeError as error:
            failed(retention.trunk.states[0].name, error)
        self._add_state(retention.states[0], retention, failed)
        self._add_remainders(retention, failed)
        for state in retention.states[1:]:
            self._add_kept_last(state, retention, failed)

    # States that are marked completely

    def _add_state(
        self, retained: RetainedState, retention: Retention, failed: Callable[[str, LakeError], None]
    ) -> None:
        """Mark a state's tree, and what its datasets reach."""
        state = self.repository.state(retained.tree, retained.name)
        try:
            if retained.tree not in self._trees:
                self._add_tree(retained.tree)
                self._trees.add(retained.tree)
            registered = state.registered()
        except LakeError as error:
            failed(retained.name, error)
            return
        kept = [record for path, record in registered.items() if retention.keeps_files(retained, path)]
        self._add_datasets(state, kept, failed)

    def _add_datasets(
        self, state: StateStore, records: Sequence[DatasetRecord], failed: Callable[[str, LakeError], None]
    ) -> None:
        for record in records:
            try:
                self._add_dataset(state, record)
            except LakeError as error:
                failed(record.path, error)

    def _add_tree(self, tree: str) -> None:
        graveler = self.repository.graveler
        self.keys.update(f"{graveler.reader.folder}/{id}" for id in graveler.names(tree))
        for each in graveler.ranges(tree):
            if each.id not in self._ranges:
                values = graveler.reader.columns(each.id).values
                sizes = entry_columns(values).sizes if self.sizes is not None else repeat(None)
                for value, address, size in zip(values, relative_addresses(values), sizes, strict=False):
                    if address is not None and digest_of(address) is not None:
                        self._add_objects([(address, size)])
                    else:
                        self._add_entry(Entry.decode(split_value(value)[1]))
                self._ranges.add(each.id)

    def _add_entry(self, entry: Entry) -> None:
        key = self.repository.content.addresses.key(entry)
        if key is None:
            self.external.setdefault(entry.address, entry)
            return
        self._add_objects([(key, stored_size(entry) if key and digest_of(key) is not None else None)])
        if key and digest_of(key) is None:
            self.references.setdefault(key, set()).add((entry.size, entry.etag, entry.last_modified))

    def _add_objects(self, objects: Iterable[tuple[str, int | None]]) -> None:
        if self.sizes is None:
            self.keys.update(key for key, _ in objects)
            return
        for key, size in objects:
            self.keys.add(key)
            if size is not None:
                add_sizes(self.sizes, [(key, size)])

    def _add_files(self, path: str, format: str, keys: Iterable[str]) -> None:
        """Mark the UNIQUE objects of a dataset."""
        self.formats.setdefault(path, set()).add(format)
        # Those that come before an error are marked, so that a missing one is named.
        self._add_objects((f"{path}/{key}", size) for key, size in sized(keys))

    def _add_dataset(self, state: StateStore, record: DatasetRecord) -> None:
        """Mark what a dataset of a state reaches, once for each tree."""
        path, tree = record.path, state.view.tree
        if (path, tree) in self._datasets:
            return
        view = state.folder_of(record)
        version = log_head(view, self._versions.get((path, record.format)))
        if version is not None:
            self._versions[path, record.format] = version
        if version is not None or view.format.exists(view):
            self._add_files(path, record.format, view.format.reachable(view, version))
        self._datasets.add((path, tree))

    # States that add their remainders

    def _add_remainders(self, retention: Retention, failed: Callable[[str, LakeError], None]) -> None:
        states = retention.states
        # The oldest come first, so that new commits are in the last groups of pairs.
        pairs: dict[Pair, list[RetainedState]] = {}
        for state in reversed(states):
            if state.successor is not None and state.tree != states[state.successor].tree:
                pairs.setdefault((state.tree, states[state.successor].tree, state.is_step), []).append(state)
        reader = RemainderReader(Trees.of(self.repository))
        errors: dict[Pair, LakeError] = {}

        def compute(missing: Sequence[Pair]) -> Iterator[Remainder | None]:
            remainders = compute_remainders(self.repository.root, reader, missing, self.run)
            for pair, remainder in zip(missing, remainders, strict=True):
                if remainder is not None:
                    yield remainder
                    continue
                # Errors stay in the process that ran the task, which may be another one.
                try:
                    yield reader.remainder(*pair)
                except LakeError as error:
                    errors[pair] = error
                    yield None

        remainders: Iterable[tuple[Pair, Remainder | None]]
        if self._pairs:
            # The states were marked before with older refs. Few are new, and the memo covers all pairs.
            new = [pair for pair in pairs if pair not in self._pairs]
            for pair in pairs.keys() & self._pairs.keys():
                self._add_remainder(pair, Remainder(datasets=self._pairs[pair]), pairs[pair], retention)
            remainders = zip(new, compute(new), strict=True)
        else:
            remainders = RemainderMemo(self.repository.root).remainders(pairs, compute)
        for pair, remainder in remainders:
            if remainder is not None:
                self._add_remainder(pair, remainder, pairs[pair], retention)
        for pair, error in errors.items():
            if failed is _raise:
                raise error
            # The state or its successor cannot be read.
            for state in pairs[pair]:
                self._add_state(state, retention, failed)

    def _add_remainder(
        self, pair: Pair, remainder: Remainder, states: Sequence[RetainedState], retention: Retention
    ) -> None:
        self._add_objects(remainder.keys.items())
        for entry in remainder.entries:
            self._add_entry(entry)
        left_out = {}
        for path, dataset in remainder.datasets.items():
            if any(retention.keeps_files(state, path) for state in states):
                self.formats.setdefault(path, set()).add(dataset.format)
                self._add_objects(dataset.objects.items())
            else:
                left_out[path] = dataset
        self._pairs[pair] = left_out or _NO_DATASETS

    def _add_kept_last(
        self, state: RetainedState, retention: Retention, failed: Callable[[str, LakeError], None]
    ) -> None:
        """Mark the datasets whose files a state keeps and its successor does not: remainders leave these out."""
        assert state.successor is not None
        successor = retention.states[state.successor]
        if successor.since is None or (state.since is not None and state.since <= successor.since):
            return
        paths = [
            path
            for path in sorted(retention.ended)
            if retention.keeps_files(state, path) and not retention.keeps_files(successor, path)
        ]
        if paths:
            store = self.repository.state(state.tree, state.name)
            try:
                registered = store.registered()
            except LakeError as error:
                failed(state.name, error)
                return
            self._add_datasets(store, [registered[path] for path in paths if path in registered], failed)

    # Plain readers

    def _add_readers(self, retention: Retention, now: datetime) -> None:
        """Mark what plain readers may still read: the newest versions, some older ones, and other writers'."""
        newest = retention.trunk.states[0]
        head = self.repository.state(newest.tree, newest.name)
        for path, record in head.registered().items():
            view = head.folder_of(record)
            rules = view.format
            # Dataset by dataset, so that each is read once.
            self._add_dataset(head, record)
            oldest = rules.oldest_version_read(view, now)
            is_managed = rules.is_managed(view)
            reason = rules.incompatibility(view.checkout_store)
            if reason is not None:
                _LOG.warning("%s is kept whole: %s", path, reason)
            if not is_managed:
                since = rules.oldest_version_read(view.checkout_store, now)
                self._add_files(path, record.format, rules.reachable(view.checkout_store, since))
            # Only the lake writes a managed dataset: its remainders cover all versions since a state that keeps files.
            if oldest is not None and not (is_managed and self._is_covered(view, oldest, retention)):
                self._add_files(path, record.format, rules.reachable(view, oldest))

    def _is_covered(self, view: DatasetView, version: int, retention: Retention) -> bool:
        """Return whether remainders already mark what a version of a dataset reaches.

        They do if a state of the checked-out branch that keeps the dataset's files has this version or an earlier one.
        Only a few states are looked at, so the answer may be False although one has.
        """
        items = [view.item(key) for key in view.format.log_keys(view, version)]
        written = min((item.entry.last_modified for item in items if item is not None), default=0)
        for retained in retention.trunk.keeping(written, retention.ended.get(view.record.path)):
            state = self.repository.state(retained.tree, retained.name)
            record = state.registered().get(view.record.path)
            if record is not None and record.id == view.record.id:
                earlier = state.folder_of(record)
                first = log_head(earlier, version)
                return first is not None and first <= version and log_entry(earlier, first) == log_entry(view, first)
        return False


def _raise(name: str, error: LakeError) -> None:
    raise error
