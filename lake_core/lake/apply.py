"""The one operation of a lake: the net difference of two states is brought onto a third.

A write into a session, publishing a session, merging a branch, revert and cherry-pick are all this. Where a resolver knows the format,
a dataset is one unit, and becomes one new version; plain keys are compared one by one, by key *and* identity. Nothing is written here
but what resolvers must write under unique names: the result is what would change in the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from lake_core.dataset import ApplyContext, DatasetConflict, KeyClass
from lake_core.graveler import Record
from lake_core.lake.content import Item, item_of, new_item
from lake_core.lake.errors import Conflict, Contradiction
from lake_core.lake.state_store import StateStore
from lake_core.lake.view import DATASETS, DatasetRecord, View, dataset_above
from lake_core.lake.zarr_arrays import grid_differs, reshaped_arrays
from lake_core.readable import count_of

NAMED = 20
"""Datasets and keys that an error spells out."""

Strategy: TypeAlias = Literal["ours", "theirs"]
"""Whose side is taken of each dataset and key that conflicts: the target's, or that of what is brought onto it."""

_EXPLANATIONS = {
    "BothCreated": "it was created on both sides",
    "BothChanged": "it was changed on both sides",
    "DeletedHereChangedThere": "it is deleted here, and was changed there",
    "ChangedHereDeletedThere": "it is changed here, and was deleted there",
    "InsideDataset": "it lies in a folder that is a dataset there",
    "ArrayReshaped": "the array was reshaped or taken away on one side, and written on the other",
    "ReadChanged": "it was read here, and changed there",
}


@dataclass(frozen=True, slots=True)
class Touched:
    """What was done to a dataset."""

    format: str
    version: int | None
    operation: str
    summary: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """What changes in the target."""

    items: Mapping[str, Item | None]
    """By key; None deletes."""
    onto: str
    """The tree that the items change: the target's, or where nothing happened there meanwhile, the other side's own."""
    datasets: Mapping[str, Touched]
    """The datasets that change, by path."""
    references: Sequence[str]
    """The keys, in place, of the unique objects that datasets reach now and did not before."""
    skipped: Sequence[str] = ()
    """Datasets of which the target had everything already, by their markers."""

    resolved: Mapping[str, str] = field(default_factory=dict)
    """The datasets and keys that conflicted, and of which a strategy took one side; with the kinds of the conflicts."""

    taken: bool = False
    """Whether it is the other side's own tree, which differs from the target's already."""

    def __bool__(self) -> bool:
        return bool(self.items) or self.taken


def apply(
    base: StateStore,
    theirs: StateStore,
    target: StateStore,
    *,
    now: datetime,
    session: str | None,
    commit: str,
    reads: Sequence[str] = (),
    strategy: Strategy | None = None,
    dry_run: bool = False,
) -> Applied:
    """Bring what differs between `base` and `theirs` onto `target`, all of one lake. `commit`: the target's, for messages.

    `reads`: keys, and prefixes ending in "*", that must not differ between `base` and `target`: what a serializable session read.
    `strategy`: of a dataset or key that conflicts one side is taken whole. `dry_run`: the result is not to be written.
    Raises Conflict naming all datasets and keys that contradict what the target has, and what resolvers raise.
    """
    taken = base.view.tree == target.view.tree != theirs.view.tree and not _datasets_differ(base, theirs)
    changed = dict(_overlaid(theirs.view, theirs.view.tree)) if taken else dict(_changes(base, theirs))
    registered = {**base.registered(), **theirs.registered()}
    paths = sorted({path for key in changed if (path := _path_of(key, registered)) is not None})
    plain = {key: pair for key, pair in changed.items() if _path_of(key, registered) is None}
    found = _Findings(commit, target.name)
    resolved: dict[str, str] = {}
    effort = _Effort(now, session, dry_run)
    items: dict[str, Item | None] = {}
    datasets: dict[str, Touched] = {}
    references: list[str] = []
    skipped: list[str] = []
    _apply_plain(plain, target, items, found, strategy, resolved)
    for key in reshaped_arrays(plain.keys(), base, theirs, target):
        found.add_key(key, "ArrayReshaped")
    for key in resolved:
        if grid_differs(key, base, theirs, target):
            found.add_key(key, "ArrayReshaped")  # one side's shape and the other side's chunks make no array
    for path in paths:
        try:
            done = _apply_dataset(path, registered[path], base, theirs, target, effort, items, references)
        except DatasetConflict as error:
            if strategy is None:
                found.add_dataset(path, error)
                continue
            resolved[path] = error.kind
            if strategy == "ours":
                continue
            try:
                done = _take_dataset(path, registered[path], base, theirs, target, effort, items, references, error)
            except DatasetConflict as remaining:
                found.add_dataset(path, remaining)
                continue
        if done is not None and done.operation == "SKIPPED":
            skipped.append(path)
        elif done is not None:
            datasets[path] = done
    if reads and (items or taken):  # who wrote nothing has nothing that could be wrong by now
        for key in _overlap(reads, base, target):
            found.add_key(key, "ReadChanged")
    found.check()
    return Applied(items, theirs.view.tree if taken else target.view.tree, datasets, references, tuple(skipped), resolved, taken)


def _datasets_differ(base: StateStore, theirs: StateStore) -> bool:
    """Whether the trees, what lies on top of them aside, differ in anything that belongs to a dataset."""
    paths = {**base.registered(), **theirs.registered()}
    graveler = base.view.graveler
    prefixes = [DATASETS, *(f"{path}/" for path in paths)]
    return any(next(graveler.diff(base.view.tree, theirs.view.tree, prefix.encode()), None) is not None for prefix in prefixes)


def _changes(base: StateStore, theirs: StateStore) -> Iterator[tuple[str, tuple[Item | None, Item | None]]]:
    """The keys that differ between two states, with what stands there before and after."""
    before, after = base.view, theirs.view
    yield from _overlaid(after, before.tree)
    if before.tree != after.tree:
        for difference in before.graveler.diff(before.tree, after.tree):
            key = difference.key.decode()
            if key not in after.overlay.items:
                yield key, tuple(None if record is None else item_of(record) for record in (difference.before, difference.after))  # type: ignore[misc]


def _overlaid(view: View, tree: str) -> Iterator[tuple[str, tuple[Item | None, Item | None]]]:
    """The keys that are changed on top of a view's tree and differ from another tree."""
    keys = view.overlay.under("")
    for key, old in zip(keys, View(view.graveler, tree).get_many(keys), strict=True):
        new = view.overlay.items[key]
        if not same(old, new):
            yield key, (old, new)


def same(one: Item | None, other: Item | None) -> bool:
    """Whether the same stands at a key: nothing, or objects of one identity."""
    if one is None or other is None:
        return one is other
    return one.identity == other.identity


def _path_of(key: str, registered: Mapping[str, DatasetRecord]) -> str | None:
    """The dataset that a key of the tree is part of."""
    if key.startswith(DATASETS):
        return key[len(DATASETS) :]
    above = dataset_above(key, registered)
    return None if above is None else above.path


def _apply_plain(
    changed: Mapping[str, tuple[Item | None, Item | None]],
    target: StateStore,
    items: dict[str, Item | None],
    found: _Findings,
    strategy: Strategy | None,
    resolved: dict[str, str],
) -> None:
    keys = list(changed)
    datasets = target.datasets()
    for key, there in zip(keys, target.view.get_many(keys), strict=True):
        before, after = changed[key]
        if same(there, after):
            continue
        inside = dataset_above(key, datasets)
        lies_inside = after is not None and inside is not None
        if same(there, before) and not lies_inside:
            items[key] = after
            continue
        kind = "InsideDataset" if same(there, before) else _kind(before, after, there)
        if strategy is None or (strategy == "theirs" and lies_inside):
            found.add_key(key, kind)
            continue
        resolved[key] = kind
        if strategy == "theirs":
            items[key] = after


def _kind(before: Item | None, after: Item | None, there: Item | None) -> str:
    if before is None:
        return "BothCreated"
    if after is None:
        return "DeletedHereChangedThere"
    return "ChangedHereDeletedThere" if there is None else "BothChanged"


@dataclass(frozen=True, slots=True)
class _Effort:
    """What one application is made for, the same for all datasets."""

    now: datetime
    session: str | None
    dry_run: bool


def _take_dataset(
    path: str,
    record: DatasetRecord,
    base: StateStore,
    theirs: StateStore,
    target: StateStore,
    effort: _Effort,
    items: dict[str, Item | None],
    references: list[str],
    conflict: DatasetConflict,
) -> Touched | None:
    """Bring what differs between the target and `theirs` onto the target, so that the dataset becomes theirs.

    Raises DatasetConflict where it cannot: `conflict` itself for a dataset that the target released.
    """
    if base.datasets().get(path) is not None and target.registered().get(path) is None:
        raise conflict
    return _apply_dataset(path, record, target, theirs, target, effort, items, references, replaces=True)


def _apply_dataset(
    path: str,
    record: DatasetRecord,
    base: StateStore,
    theirs: StateStore,
    target: StateStore,
    effort: _Effort,
    items: dict[str, Item | None],
    references: list[str],
    *,
    replaces: bool = False,
) -> Touched | None:
    now = effort.now
    before, after, head = (state.datasets().get(path) for state in (base, theirs, target))
    standing = target.registered().get(path)
    dropped = standing is not None and standing.dropped
    for side in (before, after, head):
        if side is not None and side.format != record.format:
            raise DatasetConflict(f"it is a {side.format} dataset on one side and a {record.format} one on the other", kind="OtherFormat")
    if after is None and (head is None or before is None):
        return None  # gone on both sides, or created and dropped by one
    if after is None and head is not None and head.imported:
        raise DatasetConflict(
            "it was brought in from outside: to take it out of the lake is to release it, `lake release`", kind="Imported"
        )
    again = before is None and after is not None and head is None and dropped
    onto = standing if again else head
    store = None if onto is None else target.folder_of(onto)
    if after is not None and head is None:
        _check_clear(path, after, target)
    side = after or head
    assert side is not None
    view = (theirs if after is not None else target).folder_of(side)
    if before is None and onto is None and side.imported:
        items |= dict(theirs.view.list(f"{path}/")) | {side.key: side.item(now)}
        return Touched(record.format, view.resolver.version(view), "IMPORT")
    context = ApplyContext(
        now, view.place, session=effort.session, onto=target.name, recreated=again, replaces=replaces, dry_run=effort.dry_run
    )
    done = view.resolver.apply(
        None if before is None else base.folder_of(before),
        None if after is None else theirs.folder_of(after),
        store,
        context,
    )
    if not done.puts and (after is None) == (head is None):
        return Touched(record.format, done.version, "SKIPPED") if done.operation == "SKIPPED" else None
    for key, data in done.puts.items():
        assert view.resolver.key_class(key) in (KeyClass.LOG, KeyClass.POINTER)
        items[f"{path}/{key}"] = new_item(data, now)
    references += [f"{path}/{key}" for key in done.references]
    if after is None:
        assert head is not None
        items[head.key] = DatasetRecord(path, head.format, head.id, dropped=True).item(now)
    elif head is None:
        items[after.key] = after.item(now)
    return Touched(record.format, done.version, done.operation, done.summary)


def _check_clear(path: str, record: DatasetRecord, target: StateStore) -> None:
    """Raises DatasetConflict where the target has other things at, above or below a dataset that is to be created there."""
    datasets = target.datasets()
    nested = dataset_above(path, datasets) or next((other for key, other in datasets.items() if key.startswith(f"{path}/")), None)
    if nested is not None:
        raise DatasetConflict(f"{target.name} has the dataset {nested.path!r} by now, and datasets do not nest", kind="Nested")
    plain = None if target.registered().get(path) is not None else next(target.view.list(f"{path}/"), None)
    if plain is not None or target.view.get(path) is not None:
        raise DatasetConflict(f"{target.name} has plain files at {path!r} by now", kind="InsideDataset")


def _overlap(reads: Sequence[str], base: StateStore, target: StateStore) -> Iterator[str]:
    """The keys that were read and differ between two states."""
    whole = {read for read in reads if not read.endswith("*")}
    prefixes = tuple(read[:-1] for read in reads if read.endswith("*"))
    for key, _ in _changes(base, target):
        if key in whole or key.startswith(prefixes):
            yield key


class _Findings:
    """The conflicts found, for one error that names them all."""

    def __init__(self, commit: str, onto: str) -> None:
        self._commit, self._onto = commit, onto
        self._kinds: dict[str, str] = {}
        self._datasets: dict[str, str] = {}
        self._keys: list[str] = []

    def add_key(self, key: str, kind: str) -> None:
        if key not in self._kinds:
            self._keys.append(key)
            self._kinds[key] = kind

    def add_dataset(self, path: str, error: DatasetConflict) -> None:
        self._kinds[path] = error.kind
        self._datasets[path] = str(error)

    def check(self) -> None:
        if not self._kinds:
            return
        named = [*self._datasets, *self._keys][:NAMED]
        contradictions = [
            Contradiction(path, self._kinds[path], self._datasets.get(path) or _EXPLANATIONS.get(self._kinds[path], self._kinds[path]))
            for path in named
        ]
        raise Conflict(
            explained(self._onto, self._commit, contradictions, len(self._kinds)),
            contradictions=contradictions,
            datasets=list(self._datasets),
            keys=self._keys,
            kinds=self._kinds,
            commit=self._commit,
        )


def explained(onto: str, commit: str, contradictions: Sequence[Contradiction], count: int) -> str:
    """Say what of the target contradicts a change. `count`: of all places, of which `contradictions` are the first."""
    rest = count - len(contradictions)
    reasons = "; ".join(str(each) for each in contradictions) + (f"; and {count_of(rest, 'more place')}" if rest else "")
    return f"{onto} (commit {commit[:12]}) contradicts this in {count_of(count, 'place')}. {reasons}"


def sorted_changes(items: Mapping[str, Item | None]) -> Iterator[tuple[bytes, Record | None]]:
    """Changes as the tree takes them: in the order of their keys, as records."""
    encoded = sorted((key.encode(), key) for key in items)
    return ((name, None if (item := items[key]) is None else item.record(key)) for name, key in encoded)
