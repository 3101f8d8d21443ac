"""Marking of the objects that a lake's refs, retained history and sessions reach, for collection and `verify`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lake_core.graveler import Commit, Entry
from lake_core.graveler.record import split_value
from lake_core.lake.errors import RefNotFound
from lake_core.lake.refs.history import merge_base
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.lake.refs.values import instant_of
from lake_core.lake.state.content import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.addresses import Addresses
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.lake.state.state_store import StateStore

HISTORY = timedelta(days=30)
"""How long commits are retained by default, besides those that a branch, tag or session names."""


@dataclass(frozen=True, slots=True)
class RetainedState:
    """A state to keep."""

    tree: str
    name: str
    since: datetime | None
    """When it was committed, for history that a dataset's ended retention may drop.

    None for what a ref or session names.
    """


@dataclass(frozen=True, slots=True)
class Retention:
    """The commits of a lake, by what becomes of them at a cutoff."""

    kept: Mapping[str, Commit]
    """By id: those of refs and sessions, those since the cutoff, the heads at the cutoff, and merge bases."""
    dropped: frozenset[str]
    """The ids of all others."""


def divide_commits(refs: RefsState, cutoff: datetime) -> Retention:
    """Divide the commits into those to keep and the others."""
    commits = {commit.id: commit for commit in refs.commits()}
    named = {*refs.branches().values(), *refs.tags().values()}
    kept = named | {record.base for record in refs.sessions() if record.state in (OPEN, FAILED)}
    for commit in commits.values():
        if commit.creation_date >= cutoff:
            kept.add(commit.id)
            kept.update(commit.parents[:1])  # the head at the cutoff
    heads = [refs.commit(id) for id in sorted(named)]
    for number, left in enumerate(heads):
        for right in heads[number + 1 :]:
            try:
                kept.add(merge_base(refs, left, right).id)
            except RefNotFound:
                continue
    return Retention({id: commit for id, commit in commits.items() if id in kept}, frozenset(commits.keys() - kept))


def retained_states(refs: RefsState, retention: Retention) -> list[RetainedState]:
    """List the states to keep, newest commits first."""
    named = {*refs.branches().values(), *refs.tags().values()}
    states = [
        RetainedState(commit.metarange_id, commit.id, None if commit.id in named else commit.creation_date)
        for commit in sorted(retention.kept.values(), key=_age, reverse=True)
    ]
    for record in refs.sessions():
        if record.state in (OPEN, FAILED):
            trees = dict.fromkeys(
                [record.tree, *(tree for batch in record.batches for tree in (batch.before, batch.after))]
            )
            states += [RetainedState(tree, record.id, None) for tree in trees]
    return states


def _age(commit: Commit) -> tuple[int, datetime]:
    return commit.generation, commit.creation_date


@dataclass(slots=True)
class ReachableLog:
    """The longest log of a dataset among the live states, of which others are beginnings."""

    view: DatasetView
    version: int
    since: int
    """The oldest version of it that is live."""
    marked: int | None = None
    """The version from which on its objects are marked."""


@dataclass(slots=True)
class Reachability:
    """The keys, below the lake's root, that live states reach. States are marked once."""

    repository: Repository
    keys: set[str] = field(default_factory=set)
    references: dict[str, set[tuple[int, str, int]]] = field(default_factory=dict)
    """Size, etag and time (in nanoseconds) of the objects that were brought in, as the tree has them, by key."""
    external: dict[str, Entry] = field(default_factory=dict)
    """Entries of objects outside of the lake, by their URLs."""
    _trees: set[str] = field(default_factory=set)
    _ranges: set[str] = field(default_factory=set)
    _values: set[bytes] = field(default_factory=set)
    _logs: dict[str, list[ReachableLog]] = field(default_factory=dict)
    _pointers: set[tuple[str, ...]] = field(default_factory=set)
    """Paths of datasets that count no versions, with the etags of pointers whose objects are marked."""

    def add(self, states: Iterable[RetainedState], refs: RefsState, now: datetime) -> None:
        """Mark what states reach. Raises what a dataset that cannot be read raises: nothing may be collected then."""
        for state in states:
            self.add_state(state, refs, now)
        for log in self.logs():
            self.add_log(log)

    def add_state(self, retained: RetainedState, refs: RefsState, now: datetime) -> None:
        """Mark a state's tree, and record its datasets' logs."""
        ended = {
            path: instant_of(f"retention/{path}", value, "before") for path, value in refs.under("retention/").items()
        }
        state = self.repository.state(retained.tree, retained.name)
        if retained.tree not in self._trees:
            self._trees.add(retained.tree)
            self._add_tree(retained.tree)
        for path, record in state.registered().items():
            before = ended.get(path)
            if before is None or retained.since is None or retained.since >= before:
                self._note_log(state, record)
        if retained.tree == refs.commit(refs.branch(self.repository.format.branch)).metarange_id:
            self._note_readers(state, now)

    def logs(self) -> list[ReachableLog]:
        """List the logs recorded so far."""
        return [log for logs in self._logs.values() for log in logs]

    def add_log(self, log: ReachableLog) -> None:
        """Mark the objects that a log's live versions reach."""
        if log.marked is None or log.since < log.marked:
            prefix = log.view.record.path
            self.keys.update(f"{prefix}/{key}" for key in log.view.format.reachable(log.view, log.since))
            log.marked = log.since

    def _add_tree(self, tree: str) -> None:
        graveler, addresses = self.repository.graveler, self.repository.content.addresses
        self.keys.update(f"_lakefs/{id}" for id in graveler.names(tree))
        for each in graveler.ranges(tree):
            if each.id not in self._ranges:
                self._ranges.add(each.id)
                # Most records of a range are in its earlier versions too.
                new = set(graveler.reader.columns(each.id).values).difference(self._values)
                self._values |= new
                for value in new:
                    self._add_entry(Entry.decode(split_value(value)[1]), addresses)

    def _add_entry(self, entry: Entry, addresses: Addresses) -> None:
        key = addresses.key(entry)
        if key is None:
            self.external.setdefault(entry.address, entry)
            return
        self.keys.add(key)
        if key and digest_of(key) is None:
            self.references.setdefault(key, set()).add((entry.size, entry.etag, entry.last_modified))

    def _note_log(self, state: StateStore, record: DatasetRecord) -> None:
        view = state.folder_of(record)
        logs = self._logs.setdefault(record.path, [])
        version = log_head(view, max((log.version for log in logs), default=None))
        if version is None:
            self._mark_pointed(view)
            return
        for log in logs:
            if version <= log.version and _entry(view, version) == _entry(log.view, version):
                log.since = min(log.since, version)
                return
        logs.append(ReachableLog(view, version, version))

    def _mark_pointed(self, view: DatasetView) -> None:
        """Mark what a dataset that counts no versions reaches, once for all states whose pointers are the same."""
        if not view.format.exists(view):
            return
        pointers = (view.record.path, *(view.head(key).etag for key in view.format.pointer_keys(view)))
        if pointers not in self._pointers:
            self._pointers.add(pointers)
            self.keys.update(f"{view.record.path}/{key}" for key in view.format.reachable(view, None))

    def _note_readers(self, state: StateStore, now: datetime) -> None:
        """Mark what readers who opened a dataset in place lately may still read: older versions, and other writers'."""
        for path, record in state.registered().items():
            view = state.folder_of(record)
            oldest = view.format.oldest_version_read(view, now)
            if not view.format.is_managed(view):
                since = view.format.oldest_version_read(view.place, now)
                self.keys.update(f"{path}/{key}" for key in view.format.reachable(view.place, since))
            for log in self._logs.get(path, ()):
                if (
                    oldest is not None
                    and log.view.record == record
                    and _entry(view, oldest) == _entry(log.view, oldest)
                ):
                    log.since = min(log.since, oldest)


def _entry(view: DatasetView, version: int) -> tuple[str | None, ...]:
    """Return the identity of a version's log entry."""
    items = [view.item(key) for key in view.format.log_keys(view, version)]
    return tuple(None if item is None else item.entry.etag for item in items)


def log_head(view: DatasetView, hint: int | None) -> int | None:
    """Find a dataset's version by looking up log keys near a guess. None for a log without entries."""

    def exists(version: int) -> bool:
        return all(view.item(key) is not None for key in view.format.log_keys(view, version))

    if hint is None:
        return view.format.version(view)
    if exists(hint):
        while exists(hint + 1):
            hint += 1
        return hint
    step, low, high = 1, hint, hint
    while not exists(low):
        if low == 0:
            return view.format.version(view)  # a log whose first entries were cleaned up
        low, high, step = max(0, low - step), low, step * 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if exists(middle) else (low, middle)
    return low
