"""Between the lake and other writers of its datasets: adopting what was committed past the lake, releasing a dataset from it.

The log in place is what plain readers see, and it only grows. So where it went on, or another way than main, it is main that follows: the
foreign versions become main's, and what the lake had published instead is applied again behind them.
"""

from __future__ import annotations

from dataclasses import replace

from lake_core.dataset import ApplyContext, DatasetConflict
from lake_core.errors import NotFound
from lake_core.lake.advance import Change, advance
from lake_core.lake.apply import Applied, Touched
from lake_core.lake.content import Item, new_item
from lake_core.lake.errors import Conflict, DatasetNotFound, NothingToApply
from lake_core.lake.paths import disclaim
from lake_core.lake.refs import RefsState
from lake_core.lake.repository import Repository
from lake_core.lake.session import Published, Session
from lake_core.lake.state_store import DatasetView, StateStore
from lake_core.lake.view import Overlay


def adopt(repository: Repository, path: str) -> Published:
    """Bring what stands in place of a dataset into main. Raises DatasetNotFound, NothingToApply, Conflict."""
    path = path.strip("/")
    branch = repository.format.branch
    refs = repository.refs()
    head = repository.commit_state(refs.commit(refs.branch(branch)), branch)
    if path not in head.registered():
        raise DatasetNotFound(
            f"no dataset at {path!r} in {branch}: bring it in with `lake import {path}`, or session.import_delta({path!r})"
        )
    change = Change(
        branch, head, head, f"Adopt {path}", {"adopt": path}, make=lambda target: _adopted(repository, target, path), adopts=path
    )
    before = refs.branch(branch)
    done = advance(repository, change)
    if done.commit == before:
        raise NothingToApply(f"the log of {path!r} in place is that of {branch}: there is nothing to adopt")
    return done


def adopted(repository: Repository, refs: RefsState, path: str) -> Change:
    """The change that brings what stands in place of a dataset into main."""
    branch = repository.format.branch
    head = repository.commit_state(refs.commit(refs.branch(branch)), branch)
    change = Change(branch, head, head, f"Adopt {path}", {"adopt": path}, adopts=path)
    return replace(change, make=lambda target: _adopted(repository, target, path))


def _adopted(repository: Repository, target: StateStore, path: str) -> Applied:
    view = target.folder_of(target.registered()[path])
    own, foreign = view.resolver.version(view), view.resolver.version(view.place)
    own, foreign = -1 if own is None else own, -1 if foreign is None else foreign
    fork = _fork(view, min(own, foreign), target)
    if fork == foreign:
        return Applied({}, target.view.tree, {}, ())
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
    touched = Touched(view.record.format, foreign, "ADOPT")
    if fork < own:
        gone: dict[str, Item | None] = {}
        for version in range(fork + 1, own + 1):
            gone |= {f"{path}/{key}": None for key in view.resolver.log_keys(view, version)}
        before = _with(repository, target, gone).folder_of(view.record)
        onto = _with(repository, target, gone | items).folder_of(view.record)
        try:
            done = view.resolver.apply(before, view, onto, ApplyContext(now, view.place, onto=f"{path} in place"))
        except DatasetConflict as error:
            raise Conflict(
                f"{path}: what another writer committed in place contradicts what the lake has published: {error}. Undo one of the two",
                datasets=[path],
                kinds={path: error.kind},
            ) from None
        items = gone | items | {f"{path}/{key}": new_item(data, now) for key, data in done.puts.items()}
        touched = Touched(view.record.format, done.version, done.operation, done.summary)
    return Applied(items, target.view.tree, {path: touched}, ())


def _fork(view: DatasetView, version: int, target: StateStore) -> int:
    """The last version at which main's log is the one in place."""
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


def release(repository: Repository, session: Session, path: str) -> Published:
    """Make a dataset of main a plain one: other clients may write it, and the lake knows it no more.

    Its data stays where it is, and the lake deletes nothing there from now on. Raises DatasetNotFound.
    """
    view = session.dataset(path)
    record = view.record
    if view.resolver.managed(view):
        view.resolver.release(view)
        session.publish()

    def forgotten(target: StateStore) -> Applied:
        items: dict[str, Item | None] = {key: None for key, _ in target.view.list(f"{record.path}/")}
        if target.view.get(record.key) is not None:
            items[record.key] = None
        return Applied(items, target.view.tree, {}, ())

    refs = repository.refs()
    head = repository.commit_state(refs.commit(refs.branch(session.branch)), session.branch)
    done = advance(repository, Change(session.branch, head, head, f"Release {record.path}", {"release": record.path}, make=forgotten))
    disclaim(repository.root, record.path)
    return done
