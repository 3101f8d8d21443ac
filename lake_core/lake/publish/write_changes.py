"""What the writes of a branch have changed and read, looked up in the datasets before and after each."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lake_core.lake.publish.difference import changes_between, dataset_of
from lake_core.lake.publish.replay import change_of
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.state.content import is_same

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

    from lake_core.dataset import ReadCheck
    from lake_core.lake.refs.reached import WriteSets
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.content import Item
    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.lake.state.state_store import StateStore
    from lake_core.txn import Txn


ItemChange: TypeAlias = "tuple[Item | None, Item | None]"
"""The items of a plain file before a write and after it."""


class WriteChanges:
    """Looks up what writes have changed and read, once each."""

    def __init__(self, repository: Repository, refs: RefsState, sets: WriteSets, without: Collection[str]) -> None:
        self._repository, self._refs, self._sets, self._without = repository, refs, sets, frozenset(without)
        self._checks: dict[tuple[str, str], ReadCheck | None] = {}
        self._datasets: dict[tuple[str, str], tuple[DatasetView | None, DatasetView | None]] = {}
        self._files: dict[str, Sequence[str]] = {}

    def paths(self, write: str) -> AbstractSet[str]:
        """Return the datasets that a write changed."""
        paths = self._sets.links[write].datasets
        known = changed_datasets(self._refs.commit(write)).keys() if paths is None else paths
        return known - self._without

    def files(self, write: str) -> Sequence[str]:
        """Return the plain files that a write changed, but for those to leave out."""
        if write not in self._files:
            before, after = self._states(write)
            registered = {**before.registered(), **after.registered()}
            keys = (key for key, _ in changes_between(before, after) if dataset_of(key, registered) is None)
            self._files[write] = [key for key in keys if key not in self._without]
        return self._files[write]

    def writes_of(self, keys: Sequence[str]) -> dict[str, dict[str, ItemChange]]:
        """Return the writes that changed each of some plain files, oldest first, with its items before and after."""
        touched: dict[str, dict[str, ItemChange]] = {key: {} for key in keys}
        for write in self._sets.ordered(self._sets.known - self._sets.undone.keys()):
            items = (state.view.get_many(keys) for state in self._states(write))
            for key, before, after in zip(keys, *items, strict=True):
                if not is_same(before, after):
                    touched[key][write] = before, after
        return touched

    def shared_paths(self, write: str, other: str) -> list[str]:
        """Return the datasets that both of two writes changed."""
        return sorted(self.paths(write) & self.paths(other))

    def has_read(self, write: str) -> bool:
        """Return whether a write has read anything."""
        return any(self.read_check(write, path) is not None for path in self.paths(write))

    def read_check(self, write: str, path: str) -> ReadCheck | None:
        """Return the check of what a write has read of a dataset."""
        if (write, path) not in self._checks:
            before, after = self.change(write, path)
            view = after or before
            self._checks[write, path] = None if view is None else view.format.read_check(before, after)
        return self._checks[write, path]

    def share_values(self, write: str, other: str, path: str) -> bool:
        """Return whether two writes set the same single value, and are not copies of one write."""
        (before, after), others = self.change(write, path), self.change(other, path)
        view = after or before
        if view is None or self.markers(write, path) & self.markers(other, path):
            return False
        return view.format.shares_values((before, after), others)

    def markers(self, write: str, path: str) -> AbstractSet[Txn]:
        """Return the transaction identifiers of the writes to a dataset that a commit is."""
        before, after = self.change(write, path)
        view = after or before
        return frozenset() if view is None else view.format.raised_markers(before, after)

    def only_rearranges(self, write: str) -> bool:
        """Return whether a write has changed nothing but where the rows of datasets lie."""
        paths = self.paths(write)
        return (
            bool(paths) and not self.files(write) and all(self._rearranges(*self.change(write, path)) for path in paths)
        )

    def _rearranges(self, before: DatasetView | None, after: DatasetView | None) -> bool:
        return after is not None and after.format.rearranges(before, after)

    def dropped(self, write: str, path: str) -> str | None:
        """Return the id of the dataset that a write dropped, also where it created another one in its place."""
        before, after = self.change(write, path)
        is_kept = before is None or (after is not None and after.record.id == before.record.id)
        return None if is_kept or before is None else before.record.id

    def both_drop(self, write: str, other: str, path: str) -> bool:
        """Return whether a dataset is gone after either of two writes."""
        return all(self.change(each, path)[1] is None for each in (write, other))

    def change(self, write: str, path: str) -> tuple[DatasetView | None, DatasetView | None]:
        """Return a dataset before a write and after it, None where it is not there. Raises ContentGone."""
        if (write, path) not in self._datasets:
            states = self._states(write)
            records = [state.datasets().get(path) for state in states]
            before, after = (
                None if record is None else state.folder_of(record)
                for state, record in zip(states, records, strict=True)
            )
            self._datasets[write, path] = before, after
        return self._datasets[write, path]

    def _states(self, write: str) -> tuple[StateStore, StateStore]:
        """Return the states before a write and after it. Raises ContentGone."""
        before, after = change_of(self._refs, write)
        return self._repository.commit_state(before), self._repository.commit_state(after)
