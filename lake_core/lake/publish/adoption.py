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
from lake_core.lake.state.content import Item, new_item
from lake_core.lake.state.version_search import last_version
from lake_core.lake.state.view import Overlay

if TYPE_CHECKING:
    from lake_core.lake.publish.branch_update import BranchUpdate
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.lake.state.state_store import StateStore


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
        proposal = Proposal(self.branch, f"Adopt {self.path}", {"adopt": self.path}, adopts=self.path)
        target = head_of(self.repository, refs, self.branch)
        update = _adopted(self.repository, target, self.path)
        return prepare_tree(self.repository, refs, proposal, target, update, target.registered())


def _adopted(repository: Repository, target: StateStore, path: str) -> TreeUpdate:
    view = target.folder_of(target.registered()[path])
    ours, foreign = view.format.version(view), view.format.version(view.checkout_store)
    if ours is None and foreign is None:
        return _adopted_pointers(repository, target, view)
    ours, foreign = -1 if ours is None else ours, -1 if foreign is None else foreign
    fork = _fork(view, min(ours, foreign), target)
    if fork == foreign:
        return _adopted_pointers(repository, target, view)
    now = repository.clock()
    items: dict[str, Item | None] = {}
    for version in range(fork + 1, foreign + 1):
        for key in view.format.log_keys(view, version):
            try:
                items[f"{path}/{key}"] = new_item(view.checkout_store.get(key), now)
            except NotFound:
                raise Conflict(
                    f"{path}: another writer extended the log in the folder, but {key} was cleaned up before it could "
                    f"be adopted: run `lake release {path}`, then import the table again with import_delta",
                    datasets=[path],
                    kinds={path: "LogCleanedUp"},
                ) from None
    items |= {
        f"{path}/{key}": new_item(view.checkout_store.get(key), now)
        for key in view.format.pointer_keys(view.checkout_store)
    }
    update = DatasetUpdate(view.record.format, foreign, "ADOPT")
    if fork < ours:
        gone: dict[str, Item | None] = {}
        for version in range(fork + 1, ours + 1):
            gone |= {f"{path}/{key}": None for key in view.format.log_keys(view, version)}
        before = _with(repository, target, gone).folder_of(view.record)
        onto = _with(repository, target, gone | items).folder_of(view.record)
        try:
            applied = view.format.apply(
                before, view, onto, ApplyContext(now, view.checkout_store, onto=f"{path} in its folder")
            )
        except DatasetConflict as error:
            raise Conflict(
                f"{path}: what another writer committed to the folder conflicts with what the lake has published: "
                f"{error}. Undo one of the two",
                datasets=[path],
                kinds={path: error.kind},
            ) from None
        items = gone | items | {f"{path}/{key}": new_item(data, now) for key, data in applied.puts.items()}
        update = DatasetUpdate(view.record.format, applied.version, applied.operation, applied.summary)
    return TreeUpdate(items, target.view.tree, {path: update})


def _adopted_pointers(repository: Repository, target: StateStore, view: DatasetView) -> TreeUpdate:
    """Return the update for the checked-out pointers that another writer moved.

    The checked-out log, if the dataset has one, must be main's.
    """
    path, now = view.record.path, repository.clock()
    reason = view.format.incompatibility(view.checkout_store)
    if reason is not None:
        raise Conflict(
            f"{path}: {reason}. To leave it to its other writers, run `lake release {path}`",
            datasets=[path],
            kinds={path: "Incompatible"},
        )
    items: dict[str, Item | None] = {}
    for key in view.format.pointer_keys(view.checkout_store):
        current = target.view.get(f"{path}/{key}")
        if current is None or _is_ahead(view, key):
            # It may have moved on meanwhile, but never back.
            items[f"{path}/{key}"] = new_item(view.checkout_store.get(key), now)
    update = DatasetUpdate(view.record.format, view.format.version(view), "ADOPT")
    return TreeUpdate(items, target.view.tree, {path: update} if items else {})


def _is_ahead(view: DatasetView, key: str) -> bool:
    """Return whether a checked-out pointer comes after its value in main, and not before it. Raises Conflict."""
    if bytes(view.checkout_store.get(key)) == bytes(view.get(key)):
        return False
    # This comes first, because the other comparison may read all older values of main.
    if view.format.is_behind(key, view, view.checkout_store):
        return True
    try:
        is_pointer_behind(view, key)
    except Diverged:
        path = view.record.path
        raise Conflict(
            f"{path}: {key} in the folder does not follow what the lake has published: run `lake release {path}`, "
            f"then import it again with `lake import {path}`",
            datasets=[path],
            kinds={path: "PointerMoved"},
        ) from None
    return False  # main was not checked out


def _fork(view: DatasetView, last: int, target: StateStore) -> int:
    """Find the last version up to `last` that main's log and the checked-out log have in common, -1 if none is."""

    def is_common(version: int) -> bool:
        return version <= last and all(_same(view, key, target) for key in view.format.log_keys(view, version))

    fork = last_version(is_common, last) if last >= 0 else None
    if fork is None:  # the first entries of one log may have been cleaned up
        fork = next((version for version in range(last, -1, -1) if is_common(version)), -1)
    return fork


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
