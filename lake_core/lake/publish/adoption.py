"""Adoption: the versions that other writers committed to a dataset in place, past the lake, become main's.

The log in place is what plain readers see, and it only grows. So where it went on, or another way than main, it is main that follows: the
foreign versions become main's, and what the lake had published instead is applied again behind them.
"""

from __future__ import annotations

from lake_core.dataset import ApplyContext, DatasetConflict
from lake_core.errors import NotFound
from lake_core.lake.errors import Conflict
from lake_core.lake.publish.change import Change
from lake_core.lake.publish.tree_update import DatasetUpdate, TreeUpdate
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.repository import Repository
from lake_core.lake.state.content import Item, new_item
from lake_core.lake.state.dataset_view import DatasetView
from lake_core.lake.state.state_store import StateStore
from lake_core.lake.state.view import Overlay


def adoption(repository: Repository, refs: RefsState, path: str) -> Change:
    """Make the change that brings what stands in place of a dataset into main."""
    branch = repository.format.branch
    head = repository.commit_state(refs.commit(refs.branch(branch)), branch)
    return Change(branch, head, head, f"Adopt {path}", {"adopt": path}, make=lambda target: _adopted(repository, target, path), adopts=path)


def _adopted(repository: Repository, target: StateStore, path: str) -> TreeUpdate:
    view = target.folder_of(target.registered()[path])
    own, foreign = view.resolver.version(view), view.resolver.version(view.place)
    own, foreign = -1 if own is None else own, -1 if foreign is None else foreign
    fork = _fork(view, min(own, foreign), target)
    if fork == foreign:
        return TreeUpdate({}, target.view.tree)
    now = repository.clock()
    items: dict[str, Item | None] = {}
    for version in range(fork + 1, foreign + 1):
        for key in view.resolver.log_keys(view, version):
            try:
                items[f"{path}/{key}"] = new_item(view.place.get(key), now)
            except NotFound:
                raise Conflict(
                    f"{path}: the log in place went on past the lake, and {key} was cleaned up before it was adopted: "
                    f"`lake release {path}`, then bring it in again with import_delta",
                    datasets=[path],
                    kinds={path: "LogCleanedUp"},
                ) from None
    update = DatasetUpdate(view.record.format, foreign, "ADOPT")
    if fork < own:
        gone: dict[str, Item | None] = {}
        for version in range(fork + 1, own + 1):
            gone |= {f"{path}/{key}": None for key in view.resolver.log_keys(view, version)}
        before = _with(repository, target, gone).folder_of(view.record)
        onto = _with(repository, target, gone | items).folder_of(view.record)
        try:
            applied = view.resolver.apply(before, view, onto, ApplyContext(now, view.place, onto=f"{path} in place"))
        except DatasetConflict as error:
            raise Conflict(
                f"{path}: what another writer committed in place contradicts what the lake has published: {error}. Undo one of the two",
                datasets=[path],
                kinds={path: error.kind},
            ) from None
        items = gone | items | {f"{path}/{key}": new_item(data, now) for key, data in applied.puts.items()}
        update = DatasetUpdate(view.record.format, applied.version, applied.operation, applied.summary)
    return TreeUpdate(items, target.view.tree, {path: update})


def _fork(view: DatasetView, version: int, target: StateStore) -> int:
    """Find the last version at which main's log is the one in place."""
    while version >= 0:
        keys = view.resolver.log_keys(view, version)
        if all(_same(view, key, target) for key in keys):
            return version
        version -= 1
    return version


def _same(view: DatasetView, key: str, target: StateStore) -> bool:
    item = view.item(key)
    return item is not None and view.place.exists(key) and bytes(view.place.get(key)) == target.content.get(item)


def _with(repository: Repository, target: StateStore, items: dict[str, Item | None]) -> StateStore:
    overlay = Overlay()
    for key, item in items.items():
        overlay.set(key, item)
    return repository.state(target.view.tree, target.name, overlay)
