"""`apply`, the operation that all changes of a lake share: apply the difference between two states to a third.

A flush into a session, a publish, a merge, a revert and a cherry-pick all use it. A dataset is one unit, whose changes
become one new version. Plain files are compared one by one, by key *and* content. Only objects with unique names are
written here, if a format must; the result lists the changes of the target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake_core.dataset import SKIPPED, DatasetConflict
from lake_core.key_rules import PlainChange, key_rules
from lake_core.lake.errors import READ_CHANGED
from lake_core.lake.publish.apply_dataset import DatasetApplication
from lake_core.lake.publish.conflict_report import ConflictReport
from lake_core.lake.publish.difference import Difference, belongs_to_dataset, datasets_differ, overlap
from lake_core.lake.publish.published import SkippedWrite
from lake_core.lake.publish.split_versions import apply_versions
from lake_core.lake.publish.tree_update import TreeUpdate
from lake_core.lake.state.content import is_same

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping, Sequence
    from datetime import datetime

    from lake_core.lake.publish.apply_dataset import AppliedDataset
    from lake_core.lake.publish.difference import ItemChange
    from lake_core.lake.publish.tree_update import Strategy
    from lake_core.lake.state.content import Item
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
    undoes_since: StateStore | None = None,
    by_writes: bool = False,
    decided: Collection[str] = (),
    without: Collection[str] = (),
    replaces: Collection[str] = (),
    became: Mapping[str, str] | None = None,
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
        undoes_since: The state that the target session began with, if the difference takes back what was written into
            the session. A dataset that others have written to since it was created stays, without what was written
            into it then.
        by_writes: Whether the history has decided which writes come, as in `ApplyContext`.
        decided: Plain files whose values the history has decided.
        without: Datasets and plain files that stay as they are.
        replaces: Datasets that become what `incoming` has.
        became: The ids of datasets of the target by those that they have in `base` and `incoming`, if these were
            published into datasets that others had created as well.

    Raises Conflict, which names all datasets and keys in conflict, and what formats raise.
    """
    is_unchanged = base.view.tree == target.view.tree and not by_writes
    taken = is_unchanged and base.view.tree != incoming.view.tree and not datasets_differ(base, incoming)
    difference = Difference.between(base, incoming, on_top=taken, without=without)
    plain = {**difference.plain, **difference.replaced}
    report = ConflictReport(commit, target.name, strategy)
    application = DatasetApplication(
        base,
        incoming,
        target,
        now,
        session,
        dry_run=dry_run,
        replaced=difference.replaced.keys(),
        by_writes=by_writes,
        in_session=in_session,
        undoes_since=undoes_since,
        became=became or {},
    )
    undecided = {key: pair for key, pair in plain.items() if key not in decided}
    items = _apply_plain(undecided, target, base.datasets(), report)
    _apply_key_rules(plain.keys(), application, report)
    applied = dict(_apply_datasets(difference.formats, application, report, replaces))
    for path in difference.hidden:
        message = (
            f"plain files would come back at {path!r}, where there is a dataset now: copy them from an older commit"
        )
        report.add_dataset(path, DatasetConflict(message, kind="InsideDataset"))
    changed = {path: each for path, each in applied.items() if each.update.operation != SKIPPED}
    for each in changed.values():
        items |= each.items
    if reads and (items or taken):  # reads of a session without writes need no check
        for key in overlap(reads, base, target):
            report.add_key(key, READ_CHANGED)
    report.check()
    return TreeUpdate(
        items=items,
        onto=incoming.view.tree if taken else target.view.tree,
        datasets={path: each.update for path, each in changed.items()},
        references=[key for each in changed.values() for key in each.references],
        skipped=tuple(SkippedWrite(path, *txn) for path, each in applied.items() for txn in each.recorded),
        resolved=report.resolved,
        taken=taken,
    )


def _apply_plain(
    changed: Mapping[str, ItemChange], target: StateStore, dropped: Container[str], report: ConflictReport
) -> dict[str, Item | None]:
    """Return the changes of plain files, and report those that conflict with the target.

    `dropped`: the datasets of which plain files can only take the place because the same changes drop them.
    """
    items: dict[str, Item | None] = {}
    for key, current in zip(changed, target.view.get_many(list(changed)), strict=True):
        before, after = changed[key]
        if is_same(current, after):
            continue
        lies_inside = after is not None and key not in dropped and belongs_to_dataset(key, target)
        if is_same(current, before) and not lies_inside:
            items[key] = after
            continue
        kind = "InsideDataset" if is_same(current, before) else _kind(before, after, current)
        if report.strategy is None or (report.strategy == "theirs" and lies_inside):
            report.add_key(key, kind)
            continue
        report.resolved[key] = kind
        if report.strategy == "theirs":
            items[key] = after
    return items


def _apply_datasets(
    formats: Mapping[str, str], application: DatasetApplication, report: ConflictReport, replaces: Collection[str]
) -> Iterator[tuple[str, AppliedDataset]]:
    """Yield the changes of datasets, whose `formats` are by path, and report those that conflict with the target."""
    for path, format in sorted(formats.items()):
        try:
            applied = _apply_dataset(replace(application, replaces=path in replaces), path, format)
        except DatasetConflict as error:
            if report.strategy is None:
                report.add_dataset(path, error)
                continue
            report.resolved[path] = error.kind
            if report.strategy == "ours":
                continue
            try:
                applied = _take_dataset(application, path, format, error)
            except DatasetConflict as remaining:
                report.add_dataset(path, remaining)
                continue
        if applied is not None:
            yield path, applied


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


def _apply_key_rules(changed: Collection[str], application: DatasetApplication, report: ConflictReport) -> None:
    """Report what the rules of formats that consist of plain files forbid."""
    base, incoming, target = application.base, application.incoming, application.target

    def changed_there(prefix: str) -> Iterator[str]:
        differences = target.view.graveler.diff(base.view.tree, target.view.tree, prefix.encode())
        return (difference.key.decode() for difference in differences)

    change = PlainChange(changed, _PlainState(base), _PlainState(incoming), _PlainState(target), changed_there)
    for rule in key_rules():
        mixed = (key for key in report.resolved if rule.is_mixed(key, change))
        for key in (*rule.contradicted(change), *mixed):
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


def _kind(before: Item | None, after: Item | None, current: Item | None) -> str:
    if before is None:
        return "BothCreated"
    if after is None:
        return "DeletedHereChangedThere"
    return "ChangedHereDeletedThere" if current is None else "BothChanged"
