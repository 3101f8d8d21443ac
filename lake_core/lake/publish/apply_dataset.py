"""Application of the changes of a dataset. There are five cases; each becomes one new version of the target."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from lake_core.dataset import NOTHING, SKIPPED, Applied, ApplyContext, DatasetConflict
from lake_core.lake.publish.tree_update import DatasetUpdate
from lake_core.lake.state.content import Item, is_same, new_item
from lake_core.lake.state.dataset_record import DatasetRecord, dataset_above

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.lake.state.state_store import StateStore
    from lake_core.txn import Txn


@dataclass(frozen=True, slots=True)
class Created:
    """One side created the dataset, and the target never had one at the path."""

    record: DatasetRecord


@dataclass(frozen=True, slots=True)
class Imported:
    """One side imported the dataset from the lake's folder. Its log is used unchanged."""

    record: DatasetRecord


@dataclass(frozen=True, slots=True)
class Recreated:
    """One side created the dataset where the target has dropped one, whose log continues."""

    record: DatasetRecord
    dropped: DatasetRecord


@dataclass(frozen=True, slots=True)
class Dropped:
    """One side dropped the dataset, and the target has it."""

    before: DatasetRecord
    head: DatasetRecord


@dataclass(frozen=True, slots=True)
class Changed:
    """One side has the dataset, and the target has it or had it once."""

    before: DatasetRecord | None
    record: DatasetRecord
    head: DatasetRecord | None


DatasetCase: TypeAlias = Created | Imported | Recreated | Dropped | Changed


@dataclass(frozen=True, slots=True)
class AppliedDataset:
    """The changes of an application to the target."""

    update: DatasetUpdate
    items: Mapping[str, Item | None] = field(default_factory=dict)
    references: Sequence[str] = ()
    """The keys, in the lake's folder, of the unique objects that the dataset reaches now and did not before."""
    recorded: Sequence[Txn] = ()
    """The transaction identifiers of the writes that the target has already."""


@dataclass(frozen=True, slots=True)
class DatasetApplication:
    """Applies the differences between `base` and `incoming` in single datasets to `target`."""

    base: StateStore
    incoming: StateStore
    target: StateStore
    now: datetime
    session: str | None = None
    replaces: bool = False
    """Whether a dataset becomes what `incoming` has, whatever the target has."""
    dry_run: bool = False
    replaced: Collection[str] = ()
    """The plain files that datasets replace."""
    by_writes: bool = False
    """Whether the history has decided which writes come, as in `ApplyContext`."""
    in_session: bool = False
    """Whether the target is a session."""
    undoes_since: StateStore | None = None
    """The state that the target session began with, if the difference takes back what was written into the session."""
    became: Mapping[str, str] = field(default_factory=dict)
    """The ids of datasets of the target by those that they have in the difference, as in `apply`."""

    def run(self, path: str, format: str) -> AppliedDataset | None:
        """Apply the changes of a dataset. Return None if there are none.

        Raises DatasetConflict, and what its format raises.
        """
        match self._case(path, format):
            case None:
                return None
            case Imported(record):
                return self._import(record)
            case Created(record):
                self._check_clear(record)
                return self._registered(record, self._apply(None, record, None))
            case Recreated(record, dropped):
                self._check_clear(record)
                return self._registered(record, self._apply(None, record, dropped, recreated=True))
            case Dropped(before, head):
                return self._drop(before, head)
            case Changed(before, record, None):
                self._check_clear(record)
                return self._registered(record, self._apply(before, record, None))
            case Changed(before, record, DatasetRecord() as head):
                self._check_not_recreated(before, record, head)
                applied = self._apply(before, record, head)
                is_recreated = before is not None and before.id == head.id != record.id and not self.replaces
                return self._registered(record, applied) if is_recreated else self._change(record, applied)
        raise AssertionError("every case is above")

    def _case(self, path: str, format: str) -> DatasetCase | None:
        """Return the case of the change. Raises DatasetConflict if the formats differ."""
        before, after, head = (state.datasets().get(path) for state in (self.base, self.incoming, self.target))
        # A dropped dataset keeps its path for its format, because its log goes on.
        kept = None if after is None else self.target.registered().get(path)
        for side in (before, after, head, kept):
            if side is not None and side.format != format:
                raise DatasetConflict(
                    f"it is a {side.format} dataset on one side and a {format} one on the other", kind="OtherFormat"
                )
        if after is None:
            return None if before is None or head is None else Dropped(before, head)
        if before is not None or head is not None:
            return Changed(before, after, head)
        if kept is not None:
            return Recreated(after, kept)
        return Imported(after) if after.imported else Created(after)

    def _check_not_recreated(self, before: DatasetRecord | None, record: DatasetRecord, head: DatasetRecord) -> None:
        """Raise DatasetConflict if one side created the dataset again, and the other changed the one before."""
        if self.replaces:
            return
        then, onto = self.base.registered().get(record.path), self.target.name
        if before is None:
            if then is not None and then.id == record.id != head.id:
                raise DatasetConflict(
                    f"what was dropped would come back, but another one was created on {onto}", kind="Recreated"
                )
        elif before.id != record.id and not self._is_unchanged(record.path):
            raise DatasetConflict(
                f"these changes drop it and create it again, but it was changed on {onto}", kind="Recreated"
            )
        elif before.id == record.id and not self.by_writes and head.id != self.became.get(before.id, before.id):
            raise DatasetConflict(f"it was dropped and created again on {onto}", kind="Recreated")

    def _is_unchanged(self, path: str) -> bool:
        """Return whether the target has a dataset as `base` has it. Its log may have got versions that cancel out."""
        old, new = (dict(state.view.list(f"{path}/")) for state in (self.base, self.target))
        if old.keys() == new.keys() and all(is_same(old[key], new[key]) for key in old):
            return True
        before, head = (state.folder_of(state.datasets()[path]) for state in (self.base, self.target))
        context = replace(self._context(head), session=None, dry_run=True)  # the versions are those of a branch
        try:
            applied = head.format.apply(before, head, before, context)
        except DatasetConflict:
            return False  # it cannot be applied, so there is something
        return applied.operation == NOTHING and not applied.puts

    def _import(self, record: DatasetRecord) -> AppliedDataset:
        self._check_clear(record)
        view = self.incoming.folder_of(record)
        log = dict(self.incoming.view.list(f"{record.path}/"))
        update = DatasetUpdate(record.format, view.format.version(view), "IMPORT")
        references = [f"{record.path}/{key}" for key in view.format.reachable(view, update.version)]
        return AppliedDataset(update, log | {record.key: record.item(self.now)}, references)

    def _drop(self, before: DatasetRecord, head: DatasetRecord) -> AppliedDataset:
        if head.imported:
            raise DatasetConflict(
                "it was imported from outside the lake: run `lake release` to take it out of the lake",
                kind="Imported",
            )
        view = self.target.folder_of(head)
        applied = view.format.apply(self.base.folder_of(before), None, view, self._context(view))
        if applied.is_kept:
            return self._changed(head, applied)
        if self.undoes_since is not None and head.path not in self.undoes_since.registered():
            return self._forgotten(head, applied)
        return self._registered(DatasetRecord(head.path, head.format, head.id, dropped=True), applied)

    def _forgotten(self, head: DatasetRecord, applied: Applied) -> AppliedDataset:
        """Leave no trace of a dataset that the session alone has had: nobody can have read it, or have dropped it."""
        keys = (key for key, _ in self.target.view.list(f"{head.path}/"))
        update = DatasetUpdate(head.format, applied.version, applied.operation, applied.summary)
        return AppliedDataset(update, dict.fromkeys((*keys, head.key)))

    def _change(self, record: DatasetRecord, applied: Applied) -> AppliedDataset | None:
        if applied.puts:
            return self._changed(record, applied)
        return (
            AppliedDataset(DatasetUpdate(record.format, applied.version, SKIPPED), recorded=applied.recorded)
            if applied.operation == SKIPPED
            else None
        )

    def _apply(
        self,
        before: DatasetRecord | None,
        record: DatasetRecord,
        onto: DatasetRecord | None,
        *,
        recreated: bool = False,
    ) -> Applied:
        view = self.incoming.folder_of(record)
        base = None if before is None else self.base.folder_of(before)
        # One object where nothing was published in between, so that a format reads the state once.
        is_same = onto == before and self.base.view.is_tree_of(self.target.view)
        target = base if is_same else None if onto is None else self.target.folder_of(onto)
        return view.format.apply(base, view, target, self._context(view, recreated=recreated))

    def _is_dropped_beside(self, path: str) -> bool:
        """Return whether the target dropped a dataset since `base`."""
        then, now = (state.registered().get(path) for state in (self.base, self.target))
        if then is None or now is None or not then.dropped:
            return now is not None
        old, new = self.base.folder_of(then), self.target.folder_of(now)
        return old.format.version(old) != new.format.version(new)

    def _context(self, view: DatasetView, *, recreated: bool = False) -> ApplyContext:
        return ApplyContext(
            self.now,
            view.checkout_store,
            session=self.session,
            onto=self.target.name,
            recreated=recreated,
            dropped_beside=recreated and self._is_dropped_beside(view.record.path),
            replaces=self.replaces,
            dry_run=self.dry_run,
            in_session=self.in_session,
            undoes=self.undoes_since is not None,
            by_writes=self.by_writes,
        )

    def _registered(self, record: DatasetRecord, applied: Applied) -> AppliedDataset:
        changed = self._changed(record, applied)
        return replace(changed, items={**changed.items, record.key: record.item(self.now)})

    def _changed(self, record: DatasetRecord, applied: Applied) -> AppliedDataset:
        items = {f"{record.path}/{key}": new_item(data, self.now) for key, data in applied.puts.items()}
        update = DatasetUpdate(record.format, applied.version, applied.operation, applied.summary)
        references = [f"{record.path}/{key}" for key in applied.references]
        return AppliedDataset(update, items, references, applied.recorded)

    def _check_clear(self, record: DatasetRecord) -> None:
        """Raise DatasetConflict if the target has other files at, above or below the dataset to create."""
        path, target = record.path, self.target
        datasets = target.datasets()
        nested = dataset_above(path, datasets) or next(
            (other for key, other in datasets.items() if key.startswith(f"{path}/")), None
        )
        if nested is not None:
            raise DatasetConflict(
                f"{target.name} has the dataset {nested.path!r} now, and datasets cannot be nested", kind="Nested"
            )
        files = (key for key, _ in target.view.list(f"{path}/") if key not in self.replaced)
        plain = None if target.registered().get(path) is not None else next(files, None)
        if plain is not None or target.view.get(path) is not None:
            raise DatasetConflict(f"{target.name} has plain files at {path!r} now", kind="InsideDataset")
