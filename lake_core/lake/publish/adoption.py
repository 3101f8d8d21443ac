"""Adoption: the versions that other writers committed to a dataset's folder, past the lake, become main's.

Plain readers see the checked-out log, and this log only grows. So if it has versions that main does not have, main
follows it: these versions become main's, and what the lake had published in their stead is applied again after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.dataset import ApplyContext, DatasetConflict
from lake_core.errors import NotFound
from lake_core.lake.errors import Conflict, Diverged
from lake_core.lake.publish.checkout import is_pointer_behind
from lake_core.lake.publish.prepare import Proposal, head_of, prepare_tree
from lake_core.lake.publish.tree_update import DatasetUpdate, TreeUpdate
from lake_core.lake.refs.commit_record import ADOPT_FIELD, changed_datasets
from lake_core.lake.state.content import Item, new_item
from lake_core.lake.state.version_search import last_version
from lake_core.lake.state.view import Overlay

if TYPE_CHECKING:
    from datetime import datetime

    from lake_core.lake.publish.branch_update import BranchUpdate
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.lake.state.state_store import StateStore
    from lake_core.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Adoption:
    """A `Source` that commits a dataset's checked-out state to main."""

    repository: Repository
    path: str
    compares_checkout: bool = True

    @property
    def branch(self) -> str:
        """Return the branch that is checked out."""
        return self.repository.format.branch

    def prepare(self, refs: RefsState) -> BranchUpdate:
        """Prepare a commit with the dataset's log and pointers as they are in its folder."""
        proposal = Proposal(self.branch, f"Adopt {self.path}", {ADOPT_FIELD: self.path}, adopts=self.path)
        target = head_of(self.repository, refs, self.branch)
        update = _adopted(self.repository, refs, target, self.path)
        return prepare_tree(self.repository, refs, proposal, target, update, target.registered())


def _adopted(repository: Repository, refs: RefsState, target: StateStore, path: str) -> TreeUpdate:
    view = target.folder_of(target.registered()[path])
    ours, theirs = _length(view, view), _length(view, view.checkout_store)
    common = _common_length(view, min(ours, theirs), target)
    if common == theirs:
        return _adopted_pointers(repository, refs, target, view)
    now = repository.clock()
    items: dict[str, Item | None] = {}
    for version in range(common, theirs):
        for key in view.format.log_keys(view, version):
            try:
                items[f"{path}/{key}"] = new_item(view.checkout_store.get(key), now)
            except NotFound:
                message = (
                    f"another writer extended the log in the folder, but {key} was cleaned up before it could "
                    f"be adopted: run `lake release {path}`, then import the table again with import_delta"
                )
                raise _conflict(path, "LogCleanedUp", message) from None
    items |= {
        f"{path}/{key}": new_item(view.checkout_store.get(key), now)
        for key in view.format.pointer_keys(view.checkout_store)
    }
    if common == ours:
        return TreeUpdate(items, target.view.tree, {path: DatasetUpdate(view.record.format, theirs - 1, "ADOPT")})
    gone: dict[str, Item | None] = {
        f"{path}/{key}": None for version in range(common, ours) for key in view.format.log_keys(view, version)
    }
    before = _with(repository, target, gone).folder_of(view.record)
    return _applied_again(repository, target, view, before, gone | items, now, "Undo one of the two")


def _applied_again(
    repository: Repository,
    target: StateStore,
    view: DatasetView,
    before: DatasetView,
    items: dict[str, Item | None],
    now: datetime,
    remedy: str,
) -> TreeUpdate:
    """Return the update that applies to a dataset's folder again what main has published in its stead.

    Args:
        repository: The lake.
        target: The head of main.
        view: The dataset in it.
        before: The dataset before main and the folder parted.
        items: What the head has to become in order to be as the folder.
        now: The time of the update.
        remedy: The advice in a conflict.
    """
    path = view.record.path
    onto = _with(repository, target, items).folder_of(view.record)
    context = ApplyContext(now, view.checkout_store, onto=f"{path} in its folder")
    try:
        applied = view.format.apply(before, view, onto, context)
    except DatasetConflict as error:
        message = (
            f"what another writer committed to the folder conflicts with what the lake has published: {error}. {remedy}"
        )
        raise _conflict(path, error.kind, message) from None
    items = items | {f"{path}/{key}": new_item(data, now) for key, data in applied.puts.items()}
    update = DatasetUpdate(view.record.format, applied.version, applied.operation, applied.summary)
    return TreeUpdate(items, target.view.tree, {path: update})


def _conflict(path: str, kind: str, message: str) -> Conflict:
    return Conflict(f"{path}: {message}", datasets=[path], kinds={path: kind})


def _adopted_pointers(repository: Repository, refs: RefsState, target: StateStore, view: DatasetView) -> TreeUpdate:
    """Return the update for the checked-out pointers that another writer moved.

    The checked-out log, if the dataset has one, must be main's.
    """
    path, now = view.record.path, repository.clock()
    reason = view.format.incompatibility(view.checkout_store)
    if reason is not None:
        message = f"{reason}. To leave it to its other writers, run `lake release {path}`"
        raise _conflict(path, "Incompatible", message)
    superseded = view.format.superseded_pointers(view, view.checkout_store)
    items: dict[str, Item | None] = dict.fromkeys(f"{path}/{key}" for key in superseded)
    keys = view.format.pointer_keys(view.checkout_store)
    moved = [
        key
        for key in keys
        if (superseded and not view.format.is_behind(key, view, view.checkout_store))
        or (target.view.get(f"{path}/{key}") is not None and _is_ahead(view, key) is None)
    ]
    if moved:
        before = _parted(repository, refs, view, keys[-1])
        if before is None:
            raise _moved(view, moved[0])
        items |= {f"{path}/{key}": new_item(view.checkout_store.get(key), now) for key in keys}
        return _applied_again(repository, target, view, before, items, now, _release_and_import(path))
    for key in keys:
        if target.view.get(f"{path}/{key}") is None or _is_ahead(view, key):
            # It may have moved on meanwhile, but never back.
            items[f"{path}/{key}"] = new_item(view.checkout_store.get(key), now)
    update = DatasetUpdate(view.record.format, view.format.version(view), "ADOPT")
    return TreeUpdate(items, target.view.tree, {path: update} if items else {})


def _is_ahead(view: DatasetView, key: str) -> bool | None:
    """Return whether a checked-out pointer comes after its value in main, or before it; None for neither."""
    folder = view.checkout_store
    if bytes(folder.get(key)) == bytes(view.get(key)):
        return False
    last = view.format.pointer_keys(folder)[-1]
    if key != last and bytes(folder.get(last)) == bytes(view.get(last)):
        # A checkout moves this one before the last, so another writer has moved it on.
        return True
    # This comes first, because the other comparison may read all older values of main.
    if view.format.is_behind(key, view, folder):
        return True
    try:
        is_pointer_behind(view, key)
    except Diverged:
        return None
    return False  # main was not checked out


def _parted(repository: Repository, refs: RefsState, view: DatasetView, key: str) -> DatasetView | None:
    """Return the newest state of a dataset in main's history that its checked-out pointer `key` goes on from.

    Return None if there is none, or if it is the head, or for a format that has a log to tell this by. So it is if
    another writer took back what main has published: that is not undone for it.
    """
    if view.format.version(view) is not None or view.format.takes_back(view, view.checkout_store):
        return None
    commit = refs.commit(refs.branch(repository.format.branch))
    while commit.parents and refs.has_commit(commit.parents[0]):
        parent = refs.first_parent(commit)
        if view.record.path in changed_datasets(commit):
            state = repository.commit_state(parent)
            record = state.registered().get(view.record.path)
            if record is None or record.id != view.record.id:
                return None
            before = state.folder_of(record)
            held = before.format.pointer_keys(before)[-1]
            if held == key and bytes(before.get(key)) == bytes(view.checkout_store.get(key)):
                return before
            if before.format.is_behind(held, before, view.checkout_store):
                return before
        commit = parent
    return None


def _moved(view: DatasetView, key: str) -> Conflict:
    path = view.record.path
    message = f"{key} in the folder does not follow what the lake has published: {_release_and_import(path)}"
    return _conflict(path, "PointerMoved", message)


def _release_and_import(path: str) -> str:
    return (
        f"to go on with the folder as it is, run `lake release {path}`, then import it again with `lake import "
        f"{path}`. Earlier commits of the lake keep what it has published"
    )


def _length(view: DatasetView, log: ObjectStore) -> int:
    """Return how many versions a log of the dataset has had, 0 for a format without a log."""
    version = view.format.version(log)
    return 0 if version is None else version + 1


def _common_length(view: DatasetView, length: int, target: StateStore) -> int:
    """Return how many of so many versions main's log and the checked-out log have in common."""

    def is_common(version: int) -> bool:
        return version < length and all(_same(view, key, target) for key in view.format.log_keys(view, version))

    last = last_version(is_common, length - 1) if length else None
    if last is None:  # the first entries of one log may have been cleaned up
        last = next((version for version in reversed(range(length)) if is_common(version)), -1)
    return last + 1


def _same(view: DatasetView, key: str, target: StateStore) -> bool:
    item = view.item(key)
    try:
        data = None if item is None else bytes(view.checkout_store.get(key))
    except NotFound:
        return False
    return item is not None and data == target.content.get(item)


def _with(repository: Repository, target: StateStore, items: dict[str, Item | None]) -> StateStore:
    overlay = Overlay()
    for key, item in items.items():
        overlay.set(key, item)
    return repository.state(target.view.tree, target.name, overlay)
