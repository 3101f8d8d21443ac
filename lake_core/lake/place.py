"""Main, in place: what plain readers of the datasets open.

After the branch has moved, the log entries of the datasets that its commits touched are put at their natural paths, in the order of
their versions. The bytes of (dataset, version) never change, so any process may finish at any time what another began. How far the
branch is known to stand in place is noted with the next entry of the refs journal, not by a write of its own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from lake_core.dataset import UnknownFormat
from lake_core.errors import AlreadyExists, NotFound, StoreError
from lake_core.graveler import Commit
from lake_core.lake.content import Item
from lake_core.lake.errors import DamagedLake, Diverged
from lake_core.lake.paths import claim
from lake_core.lake.refs import RefsState
from lake_core.lake.repository import Repository
from lake_core.lake.state_store import DatasetView, StateStore
from lake_core.lake.view import DatasetRecord

_LOG = logging.getLogger(__name__)

DATASETS_FIELD = "datasets"
"""The field of a commit's metadata that tells which datasets it touched: JSON, path → {format, version, operation}."""


def touched(commit: Commit) -> Mapping[str, Mapping[str, object]]:
    """The datasets that a commit changed, by path."""
    try:
        found = json.loads(commit.metadata.get(DATASETS_FIELD, "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(told, dict) for told in found.values()):
        raise DamagedLake(f"commit {commit.id[:12]} does not tell which datasets it touched")
    return found


def _version(told: Mapping[str, object]) -> int | None:
    found = told.get("version")
    return found if isinstance(found, int) else None


def not_in_place(refs: RefsState, branch: str) -> list[Commit]:
    """The commits of a branch that are not known to stand in place, oldest first."""
    placed = refs.placed(branch)
    commits: list[Commit] = []
    commit = refs.commit(refs.branch(branch))
    while commit.id != placed:
        commits.append(commit)
        if not commit.parents or f"commit/{commit.parents[0]}" not in refs.state:
            break  # past the retention: whatever it touched was put in place long ago
        commit = refs.first_parent(commit)
    return commits[::-1]


@dataclass(frozen=True, slots=True)
class Placed:
    """What was put in place."""

    objects: int
    datasets: Sequence[str]
    diverged: Sequence[str] = ()
    """Those that were passed over, because another writer was there."""


def materialise(
    repository: Repository,
    commits: Sequence[Commit],
    progress: Callable[[int, int], None] | None = None,
    *,
    needed: Collection[str] | None = None,
    without: str | None = None,
) -> Placed:
    """Put the datasets of these commits, oldest first, in place, but for one (`without`). Idempotent.

    Raises Diverged where another writer was there; with `needed` only for these datasets, others are passed over: one that diverged
    does not hold up the rest of the lake.
    """
    done, count, diverged = set(), 0, set()
    last = repository.commit_state(commits[-1]) if commits else None
    for number, commit in enumerate(commits):
        state = repository.commit_state(commit)
        for path, told in sorted(touched(commit).items()):
            record = state.registered().get(path)
            assert last is not None
            standing = last.registered().get(path)
            if record is None or standing is None or standing.id != record.id:
                continue  # released since; or created again, whose log has all of it
            if path != without and path not in diverged:
                if told.get("operation") == "IMPORT" or _version(told) == 0:
                    # Not when a session brings it in: what never reaches main stays whose it is, its data files too.
                    claim(repository.root, path, record.format, occupied=True)
                try:
                    placed = place_dataset(state, record, _version(told))
                except Diverged:
                    if needed is None or path in needed:
                        raise
                    diverged.add(path)
                    continue
                count += placed
                if placed:
                    done.add(path)
        if progress is not None:
            progress(number + 1, len(commits))
    if last is not None:
        for path in sorted(done):
            derive(last, path)
    return Placed(count, sorted(done), sorted(diverged))


def complete(repository: Repository, progress: Callable[[int, int], None] | None = None) -> Placed:
    """Put all datasets of main in place, as far as they are not. Idempotent.

    Raises Diverged, but only by the newest refs: what differs from an older main may be what others have published since.
    """
    branch = repository.format.branch
    while True:
        refs = repository.refs()
        try:
            placed = materialise(repository, not_in_place(refs, branch), progress)
            state = repository.commit_state(refs.commit(refs.branch(branch)), branch)
            count = placed.objects
            for _, record in sorted(state.registered().items()):
                view = state.folder_of(record)
                count += place_dataset(state, record, view.resolver.version(view))
            return Placed(count, placed.datasets)
        except Diverged:
            if not moved(repository, refs, branch):
                raise


def settle(repository: Repository, commits: Sequence[Commit]) -> bool:
    """Put commits of main that are published in place, oldest first.

    Return False where that is left to the next publish. An error would make the caller repeat what is published.
    """
    try:
        try:
            materialise(repository, commits)
        except Diverged:
            complete(repository)  # which looks at the newest refs before it takes anything for another writer's
    except (Diverged, StoreError):
        last = commits[-1].id[:12]
        _LOG.warning("commit %s is published, but not yet in place: the next publish completes it", last, exc_info=True)
        return False
    return True


def moved(repository: Repository, refs: RefsState, branch: str) -> bool:
    """Tell whether a branch has another head now than in these refs. Ask before taking what stands in place for another writer's."""
    return repository.refs().branch(branch) != refs.branch(branch)


def place_dataset(state: StateStore, record: DatasetRecord, version: int | None) -> int:
    """Put a dataset's log in place up to its version in a state; returns how many objects that took. Raises Diverged."""
    view = state.folder_of(record)
    missing: list[str] = []
    while version is not None and version >= 0:
        keys = [
            key
            for key in view.resolver.log_keys(view, version)
            if (item := _item(state, view, key)) is not None and not _stands(view, key, item)
        ]
        if not keys:
            break
        missing += reversed(keys)
        version -= 1
    for key in reversed(missing):
        item = _item(state, view, key)
        assert item is not None
        data = state.content.get(item)
        try:
            view.place.put(key, data, if_absent=True)
        except AlreadyExists:
            if bytes(view.place.get(key)) != data:
                raise _diverged(view, key) from None
    return len(missing)


def in_place(repository: Repository, commit: Commit) -> bool:
    """Whether what a commit did to datasets stands in place."""
    state = repository.commit_state(commit)
    for path, told in touched(commit).items():
        version, record = _version(told), state.registered().get(path)
        if record is not None and version is not None:
            view = state.folder_of(record)
            if not all(_stands(view, key) for key in view.resolver.log_keys(view, version)):
                return False
    return True


def _item(state: StateStore, view: DatasetView, key: str) -> Item | None:
    return state.view.get(f"{view.record.path}/{key}")


def _stands(view: DatasetView, key: str, item: Item | None = None) -> bool:
    """Whether an object stands in place at a key. Raises Diverged if it is evidently not this one."""
    try:
        meta = view.place.head(key)
    except NotFound:
        return False
    if item is not None and meta.size != item.entry.size:
        raise _diverged(view, key)
    return True


def check_free(state: StateStore, record: DatasetRecord, version: int | None, items: Mapping[str, Item | None]) -> None:
    """Raises Diverged where a version that is about to be published stands in place already, and is another writer's.

    `items`: what is to be published, by key of the lake.
    """
    if version is None:
        return
    view = state.folder_of(record)
    if record.path in state.registered() and not view.resolver.managed(view):
        # Who else writes it may clean up its log: the version may be taken, and gone again.
        standing = view.resolver.version(view.place)
        if standing is not None and standing > version:
            raise _diverged(view, view.resolver.log_keys(view, standing)[0])
    for key in view.resolver.log_keys(view, version):
        item = items.get(f"{record.path}/{key}")
        if _stands(view, key) and (item is None or bytes(view.place.get(key)) != state.content.get(item)):
            raise _diverged(view, key)


def _diverged(view: DatasetView, key: str) -> Diverged:
    path = view.record.path
    return Diverged(
        f"{path}/{key} stands in place, and is not the lake's: another writer has committed to {path}. "
        f"`lake adopt {path}` brings what it wrote into the lake",
        path=path,
    )


def derive(state: StateStore, path: str) -> None:
    """Write what is derived of a dataset (checkpoints), where it is due. The commit stands whatever happens here."""
    record = state.datasets().get(path)
    if record is None:
        return
    try:
        view = state.folder_of(record)
        view.resolver.derive(view, view.place, state.clock())
    except UnknownFormat:
        raise
    except Exception:
        _LOG.warning("%s is in place, but what is derived from its log could not be written", path, exc_info=True)
