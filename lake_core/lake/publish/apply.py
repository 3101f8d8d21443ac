"""`apply`, the operation that all changes of a lake share: apply the difference between two states to a third.

A flush into a session, a publish, a merge, a revert and a cherry-pick all use it. A dataset is one unit, whose changes
become one new version. Plain files are compared one by one, by key *and* content. Only objects with unique names are
written here, if a format must; the result lists the changes of the target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lake_core.dataset import SKIPPED, DatasetConflict
from lake_core.key_rules import PlainChange, key_rules
from lake_core.lake.errors import READ_CHANGED
from lake_core.lake.publish.apply_dataset import AppliedDataset, DatasetApplication
from lake_core.lake.publish.conflict_report import ConflictReport
from lake_core.lake.publish.published import SkippedWrite
from lake_core.lake.publish.split_versions import apply_versions
from lake_core.lake.publish.tree_update import DatasetUpdate, Strategy, TreeUpdate
from lake_core.lake.state.content import Item, is_same, item_of
from lake_core.lake.state.dataset_record import DATASETS, DatasetRecord, dataset_above
from lake_core.lake.state.view import View

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from lake_core.lake.state.state_store import StateStore


def apply(
    base: StateStore,
    incoming: StateStore,
    target: StateStore,
    *,
    now: datetime,
    session: str | None,
    commit: str,
    reads: Sequence[str] = (),
    strategy: Strategy | None = None,
    dry_run: bool = False,
    in_session: bool = False,
    undoes: bool = False,
    by_writes: bool = False,
    decided: Collection[str] = (),
    without: Collection[str] = (),
    replaces: Collection[str] = (),
) -> TreeUpdate:
    """Apply the difference between `base` and `incoming` to `target`. All are states of one lake.

    Args:
        base: The state that the difference begins with.
        incoming: The state that it leads to.
        target: The state to change.
        now: The time.
        session: The session that is published.
        commit: The target's commit, for messages.
        reads: The keys, and prefixes ending in "*", that a serializable session read: they must not differ between
            `base` and `target`.
        strategy: The side that wins, for each dataset or key in conflict.
        dry_run: Whether the result will not be written.
        in_session: Whether the target is a session, in which a later attempt may have replaced an earlier one.
        undoes: Whether it takes back what was written. A dataset that others have written to since it was created
            stays, without what was written into it then.
        by_writes: Whether the history has decided which writes come, as in `ApplyContext`.
        decided: Plain files whose values the history has decided.
        without: Datasets and plain files that stay as they are.
        replaces: Datasets that become what `incoming` has.

    Raises Conflict, which names all datasets and keys in conflict, and what formats raise.
    """
    is_unchanged = base.view.tree == target.view.tree and not by_writes
    taken = is_unchanged and base.view.tree != incoming.view.tree and not _datasets_differ(base, incoming)
    changed = dict(_overlaid(incoming.view, incoming.view.tree)) if taken else dict(changes_between(base, incoming))
    registered = {**base.registered(), **incoming.registered()}
    paths = {path for key in changed if (path := dataset_of(key, registered)) is not None}
    formats = {path: registered[path].format for path in paths.difference(without)}
    plain = {key: pair for key, pair in changed.items() if dataset_of(key, registered) is None and key not in without}
    replaced = _replaced_files(changed, base, incoming)
    plain |= replaced
    report = ConflictReport(commit, target.name)
    undecided = {key: pair for key, pair in plain.items() if key not in decided}
    keys = _apply_plain(undecided, target, report, strategy)
    _apply_key_rules(plain.keys(), keys.resolved.keys(), base, incoming, target, report)
    application = DatasetApplication(
        base,
        incoming,
        target,
        now,
        session,
        dry_run=dry_run,
        replaced=replaced.keys(),
        by_writes=by_writes,
        in_session=in_session,
        undoes=undoes,
    )
    datasets = _apply_datasets(formats, application, report, strategy, replaces)
    for path in _hidden_files(changed, base, incoming):
        message = (
            f"plain files would come back at {path!r}, where there is a dataset now: copy them from an older commit"
        )
        report.add_dataset(path, DatasetConflict(message, kind="InsideDataset"))
    items = {**keys.items, **datasets.items}
    if reads and (items or taken):  # reads of a session without writes need no check
        for key in overlap(reads, base, target):
            report.add_key(key, READ_CHANGED)
    report.check()
    return TreeUpdate(
        items,
        incoming.view.tree if taken else target.view.tree,
        datasets.datasets,
        datasets.references,
        datasets.skipped,
        {**keys.resolved, **datasets.resolved},
        taken=taken,
    )


def _replaced_files(
    changed: Mapping[str, tuple[Item | None, Item | None]], base: StateStore, incoming: StateStore
) -> dict[str, tuple[Item | None, Item | None]]:
    """Return the plain files of `base` that a dataset of `incoming` has replaced, as deleted."""
    before, after = base.registered(), incoming.registered()
    keys = (key for key, (old, _) in changed.items() if old is not None and not key.startswith(DATASETS))
    replaced: dict[str, tuple[Item | None, Item | None]] = {
        key: (changed[key][0], None)
        for key in keys
        if dataset_of(key, before) is None and dataset_of(key, after) is not None
    }
    for path in after.keys() - before.keys():
        # A log entry of the new dataset may have the key and the content of a plain file.
        replaced |= {key: (item, None) for key, item in base.view.list(f"{path}/")}
    return replaced


def _hidden_files(
    changed: Mapping[str, tuple[Item | None, Item | None]], base: StateStore, incoming: StateStore
) -> list[str]:
    """Return the paths of datasets of `base` where `incoming` has plain files, which the datasets would hide."""
    before, after = base.registered(), incoming.registered()
    keys = (key for key, (_, new) in changed.items() if new is not None and not key.startswith(DATASETS))
    return sorted(
        {path for key in keys if (path := dataset_of(key, before)) is not None and dataset_of(key, after) is None}
    )


def _datasets_differ(base: StateStore, incoming: StateStore) -> bool:
    """Return whether the trees, without the changes on top of them, differ in a key of a dataset."""
    paths = {**base.registered(), **incoming.registered()}
    graveler = base.view.graveler
    prefixes = [DATASETS, *(f"{path}/" for path in paths)]
    return any(
        next(graveler.diff(base.view.tree, incoming.view.tree, prefix.encode()), None) is not None
        for prefix in prefixes
    )


def changes_between(base: StateStore, incoming: StateStore) -> Iterator[tuple[str, tuple[Item | None, Item | None]]]:
    """Yield the keys that differ between two states, with their items before and after."""
    before, after = base.view, incoming.view
    yield from _overlaid(after, before.tree)
    if before.tree != after.tree:
        for difference in before.graveler.diff(before.tree, after.tree):
            key = difference.key.decode()
            if key not in after.overlay.items:
                yield (
                    key,
                    tuple(
                        None if record is None else item_of(record) for record in (difference.before, difference.after)
                    ),
                )  # type: ignore[misc]


def _overlaid(view: View, tree: str) -> Iterator[tuple[str, tuple[Item | None, Item | None]]]:
    """Yield the keys that are changed on top of a view's tree and differ from another tree."""
    keys = view.overlay.under("")
    for key, old in zip(keys, View(view.graveler, tree).get_many(keys), strict=True):
        new = view.overlay.items[key]
        if not is_same(old, new):
            yield key, (old, new)


def dataset_of(key: str, registered: Mapping[str, DatasetRecord]) -> str | None:
    """Return the dataset that a key of the tree is part of."""
    if key.startswith(DATASETS):
        return key[len(DATASETS) :]
    above = dataset_above(key, registered)
    return None if above is None else above.path


def _apply_plain(
    changed: Mapping[str, tuple[Item | None, Item | None]],
    target: StateStore,
    report: ConflictReport,
    strategy: Strategy | None,
) -> TreeUpdate:
    """Apply the changes of plain files, and report those that conflict with the target."""
    items: dict[str, Item | None] = {}
    resolved: dict[str, str] = {}
    datasets = target.datasets()
    for key, current in zip(changed, target.view.get_many(list(changed)), strict=True):
        before, after = changed[key]
        if is_same(current, after):
            continue
        lies_inside = after is not None and dataset_above(key, datasets) is not None
        if is_same(current, before) and not lies_inside:
            items[key] = after
            continue
        kind = "InsideDataset" if is_same(current, before) else _kind(before, after, current)
        if strategy is None or (strategy == "theirs" and lies_inside):
            report.add_key(key, kind)
            continue
        resolved[key] = kind
        if strategy == "theirs":
            items[key] = after
    return TreeUpdate(items, target.view.tree, resolved=resolved)


def _apply_datasets(
    formats: Mapping[str, str],
    application: DatasetApplication,
    report: ConflictReport,
    strategy: Strategy | None,
    replaces: Collection[str],
) -> TreeUpdate:
    """Apply the changes of datasets, whose `formats` are by path, and report those that conflict with the target."""
    items: dict[str, Item | None] = {}
    datasets: dict[str, DatasetUpdate] = {}
    references: list[str] = []
    skipped: list[SkippedWrite] = []
    resolved: dict[str, str] = {}
    for path, format in sorted(formats.items()):
        try:
            applied = _apply_dataset(replace(application, replaces=path in replaces), path, format)
        except DatasetConflict as error:
            if strategy is None:
                report.add_dataset(path, error)
                continue
            resolved[path] = error.kind
            if strategy == "ours":
                continue
            try:
                applied = _take_dataset(application, path, format, error)
            except DatasetConflict as remaining:
                report.add_dataset(path, remaining)
                continue
        if applied is None:
            continue
        skipped += [SkippedWrite(path, app_id, version) for app_id, version in applied.recorded]
        if applied.update.operation == SKIPPED:
            continue
        datasets[path] = applied.update
        items |= applied.items
        references += applied.references
    return TreeUpdate(items, application.target.view.tree, datasets, references, tuple(skipped), resolved)


def _apply_dataset(application: DatasetApplication, path: str, format: str) -> AppliedDataset | None:
    try:
        return application.run(path, format)
    except DatasetConflict as error:
        return apply_versions(application, path, format, error)


def _take_dataset(
    application: DatasetApplication, path: str, format: str, conflict: DatasetConflict
) -> AppliedDataset | None:
    """Make a dataset of the target the same as in `incoming`, by the difference between the two.

    Raises DatasetConflict if it cannot; this is `conflict` itself if the target released the dataset.
    """
    if application.base.datasets().get(path) is not None and application.target.registered().get(path) is None:
        raise conflict
    return replace(application, base=application.target, replaces=True).run(path, format)


def _apply_key_rules(
    changed: Collection[str],
    resolved: Collection[str],
    base: StateStore,
    incoming: StateStore,
    target: StateStore,
    report: ConflictReport,
) -> None:
    """Report what the rules of formats that consist of plain files forbid."""
    change = PlainChange(
        changed, _PlainState(base), _PlainState(incoming), _PlainState(target), partial(_changed_there, base, target)
    )
    for rule in key_rules():
        for key in rule.contradicted(change):
            report.add_key(key, rule.kind, rule.explanation)
        for key in resolved:
            if rule.is_mixed(key, change):
                report.add_key(key, rule.kind, rule.explanation)


@dataclass(frozen=True, slots=True)
class _PlainState:
    """The plain files of a state, for a `KeyRule`."""

    state: StateStore

    def identity(self, key: str) -> bytes | None:
        item = self.state.view.get(key)
        return None if item is None else item.identity

    def read(self, key: str) -> bytes | None:
        item = self.state.view.get(key)
        return None if item is None else self.state.content.get(item)


def _changed_there(base: StateStore, target: StateStore, prefix: str) -> Iterator[str]:
    differences = target.view.graveler.diff(base.view.tree, target.view.tree, prefix.encode())
    return (difference.key.decode() for difference in differences)


def _kind(before: Item | None, after: Item | None, current: Item | None) -> str:
    if before is None:
        return "BothCreated"
    if after is None:
        return "DeletedHereChangedThere"
    return "ChangedHereDeletedThere" if current is None else "BothChanged"


def overlap(reads: Sequence[str], base: StateStore, target: StateStore) -> Iterator[str]:
    """Yield the keys that were read and that differ between two states."""
    whole = {read for read in reads if not read.endswith("*")}
    prefixes = tuple(read[:-1] for read in reads if read.endswith("*"))
    for key, _ in changes_between(base, target):
        if key in whole or key.startswith(prefixes):
            yield key
