"""Checkout: write main's logs to the datasets' folders, where plain readers open the datasets.

After the branch has moved, the log entries of the datasets that its commits changed are put at their natural paths, in
the order of their versions. The bytes of a version of a dataset never change, so any process can complete at any time
what another one began. The next entry of the refs journal records how far the branch is known to be checked out, which
saves a separate write.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed, StoreError
from lake_core.lake.errors import Diverged
from lake_core.lake.publish.write_derived import write_derived
from lake_core.lake.refs.commit_record import ADOPT_FIELD, changed_datasets, version_of
from lake_core.lake.state.claims import claim

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.content import Item
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.lake.state.state_store import StateStore
    from lake_core.store import ObjectBytes

_LOG = logging.getLogger(__name__)


def pending_checkout(refs: RefsState, branch: str) -> list[Commit]:
    """List the commits of a branch that are not known to be checked out, oldest first."""
    checked_out = refs.checked_out(branch)
    commits: list[Commit] = []
    commit = refs.commit(refs.branch(branch))
    while commit.id != checked_out:
        commits.append(commit)
        if not commit.parents or not refs.has_commit(commit.parents[0]):
            break  # past the retention: its changes were checked out long ago
        commit = refs.first_parent(commit)
    return commits[::-1]


@dataclass(frozen=True, slots=True)
class Checkout:
    """The result of a checkout."""

    objects: int
    datasets: Sequence[str]
    diverged: Sequence[str] = ()
    """The datasets that were skipped, because another writer changed them."""


def check_out(
    repository: Repository,
    commits: Sequence[Commit],
    progress: Callable[[int, int], None] | None = None,
    *,
    needed: Collection[str] | None = None,
    without: str | None = None,
    is_new: bool = False,
) -> Checkout:
    """Check out the datasets of these commits, oldest first, except for the dataset `without`.

    `is_new` says that the commits were just published, so that probably none of their files is checked out.

    Raises Diverged if another writer changed a dataset. With `needed`, only these datasets raise it, and others that
    diverged are skipped, so that they do not hold up the rest of the lake.
    """
    changed, count, diverged = set(), 0, set()
    if not commits:
        return Checkout(0, ())
    last = repository.commit_state(commits[-1])
    # What a commit adopted takes the place of what earlier ones published in its stead, and could not be checked out.
    adopted = {commit.metadata.get(ADOPT_FIELD): number for number, commit in enumerate(commits)}
    for number, commit in enumerate(commits):
        state = repository.commit_state(commit)
        registered, newest = state.registered(), last.registered()
        updates = changed_datasets(commit)
        paths = [
            path
            for path in sorted(updates)
            # Skip datasets that were released since, or created again: the log of the latter has all versions.
            if path in registered and path in newest and newest[path].id == registered[path].id
            if path != without and path not in diverged
        ]
        # A folder is claimed here and not when a session imports the dataset: if that never reaches main, the folder
        # and its data files still belong to their owner.
        repository.root.gather(
            *(
                partial(claim, repository.root, path, registered[path].format, occupied=True)
                for path in paths
                if updates[path].get("operation") == "IMPORT" or version_of(updates[path]) == 0
            )
        )
        paths = [path for path in paths if number >= adopted.get(path, 0)]
        counts = repository.root.gather(
            *(partial(_check_out_change, state, path, updates[path], needed, is_new) for path in paths)
        )
        for path, objects in zip(paths, counts, strict=True):
            if objects is None:
                diverged.add(path)
            elif objects:
                count += objects
                changed.add(path)
        if progress is not None:
            progress(number + 1, len(commits))
    repository.root.gather(*(partial(write_derived, last, path) for path in sorted(changed)))
    return Checkout(count, sorted(changed), sorted(diverged))


def _check_out_change(
    state: StateStore,
    path: str,
    update: Mapping[str, object],
    needed: Collection[str] | None,
    is_new: bool,
) -> int | None:
    """Check out a dataset as a commit updated it. Return the number of objects written, or None if it may be skipped.

    Raises Diverged.
    """
    record = state.registered()[path]
    try:
        return check_out_dataset(state, record, version_of(update), is_new=is_new)
    except Diverged:
        if needed is None or path in needed:
            raise
        return None


def check_out_branch(repository: Repository, progress: Callable[[int, int], None] | None = None) -> Checkout:
    """Check out all logs of main that are not checked out yet.

    Raises Diverged, but only by the newest refs: files that differ from an older main may have been published since.
    """
    branch = repository.format.branch
    while True:
        refs = repository.refs()
        try:
            checkout = check_out(repository, pending_checkout(refs, branch), progress)
            state = repository.commit_state(refs.commit(refs.branch(branch)), branch)
            count = checkout.objects
            for _, record in sorted(state.registered().items()):
                view = state.folder_of(record)
                count += check_out_dataset(state, record, view.format.version(view))
            return Checkout(count, checkout.datasets)
        except Diverged:
            if not has_moved(repository, refs, branch):
                raise


def try_check_out(repository: Repository, commits: Sequence[Commit]) -> bool:
    """Check out published commits of main, oldest first.

    Return False if this is left to the next publish. An error would make the caller publish again.
    """
    try:
        try:
            check_out(repository, commits, is_new=True)
        except Diverged:
            check_out_branch(repository)  # it reads the newest refs before it raises Diverged
    except Diverged as error:
        _LOG.warning("commit %s is published but not yet checked out: %s", commits[-1].id[:12], error)
        return False
    except StoreError:
        last = commits[-1].id[:12]
        _LOG.warning(
            "commit %s is published but not yet checked out: the next publish completes it", last, exc_info=True
        )
        return False
    return True


def has_moved(repository: Repository, refs: RefsState, branch: str) -> bool:
    """Return whether a branch has another head now than in these refs.

    Check this before assuming that another writer wrote the checked-out files.
    """
    return repository.refs().branch(branch) != refs.branch(branch)


def check_out_dataset(state: StateStore, record: DatasetRecord, version: int | None, *, is_new: bool = False) -> int:
    """Check out a dataset's log up to its version in a state, and move its pointers.

    `is_new` says that the version before is probably checked out, and this one is not.

    Return the number of objects written. Raises Diverged.
    """
    view = state.folder_of(record)
    missing: list[tuple[str, Item]] = []
    if version is not None:
        for absent in takewhile(bool, _absent_by_version(view, version, 2 if is_new else 1)):
            missing += reversed(absent)
    for key, item in reversed(missing):
        data = state.content.get(item)
        try:
            view.checkout_store.put(key, data, if_absent=True)
        except AlreadyExists:
            if bytes(view.checkout_store.get(key)) != data:
                raise _diverged(view, key) from None
    return len(missing) + sum(_move_pointer(view, key) for key in view.format.pointer_keys(view))


def _absent_by_version(view: DatasetView, version: int, at_once: int) -> Iterator[list[tuple[str, Item]]]:
    """Yield each version's log entries that are not checked out, newest first. Check the first `at_once` concurrently.

    Raises Diverged.
    """
    versions = range(version, -1, -1)
    yield from view.checkout_store.gather(*(partial(_absent, view, each) for each in versions[:at_once]))
    for older in versions[at_once:]:
        yield _absent(view, older)


def _absent(view: DatasetView, version: int) -> list[tuple[str, Item]]:
    """List the log entries of a version that are not checked out. Raises Diverged."""
    entries = [(key, item) for key in view.format.log_keys(view, version) if (item := view.item(key)) is not None]
    return [(key, item) for key, item in entries if not _is_present(view, key, item)]


def _move_pointer(view: DatasetView, key: str) -> bool:
    """Move a checked-out pointer to its value in the state, unless it has this value or a later one.

    Return whether the pointer moved. Raises Diverged.
    """
    data = view.get(key)
    while True:
        current = _checked_out_pointer(view, key)
        if current is None and _is_left_alone(view):
            return False
        if current is not None and (bytes(current) == bytes(data) or not is_pointer_behind(view, key)):
            return False
        try:
            view.checkout_store.put(
                key, data, if_absent=current is None, if_match=None if current is None else current.etag
            )
            return True
        except (AlreadyExists, PreconditionFailed):
            continue  # another process has moved it


def is_pointer_behind(view: DatasetView, key: str) -> bool:
    """Return whether a checked-out pointer is behind the state's value, and not ahead of it.

    Raises Diverged if it is neither.
    """
    if view.format.is_behind(key, view.checkout_store, view):
        return True
    # Other processes may move it meanwhile, but only forward: to the state's value, and then on.
    current = _checked_out_pointer(view, key)
    if current is not None and bytes(current) == bytes(view.get(key)):
        return False
    if view.format.is_behind(key, view, view.checkout_store):
        return False
    raise _diverged(view, key)


def is_checked_out(repository: Repository, commit: Commit) -> bool:
    """Return whether a commit's change to datasets is checked out. That to a dataset that diverged is not."""
    state = repository.commit_state(commit)
    try:
        return all(
            _is_whole(state.folder_of(record), version_of(update))
            for path, update in changed_datasets(commit).items()
            if (record := state.registered().get(path)) is not None
        )
    except Diverged:
        return False


def divergence(view: DatasetView) -> Diverged | None:
    """Return what another writer did to the folder of a dataset of main that is neither behind nor ahead of main."""
    try:
        _is_whole(view, view.format.version(view))
    except Diverged as error:
        return error
    return None


def _is_whole(view: DatasetView, version: int | None) -> bool:
    """Return whether a version and the pointers of a dataset are checked out. Raises Diverged."""
    keys = [] if version is None else view.format.log_keys(view, version)
    # All pointers are looked at, as a later one may have diverged.
    pending = [_is_pending(view, key) for key in view.format.pointer_keys(view)]
    return all(_is_present(view, key) for key in keys) and not any(pending)


def _is_pending(view: DatasetView, key: str) -> bool:
    """Return whether a checked-out pointer must still move to the state's value. Raises Diverged."""
    current = _checked_out_pointer(view, key)
    if current is None:
        return not _is_left_alone(view)
    return bytes(current) != bytes(view.get(key)) and is_pointer_behind(view, key)


def _is_left_alone(view: DatasetView) -> bool:
    """Return whether the folder must stay as it is: the lake cannot follow it, or has to adopt an upgrade of it."""
    folder = view.checkout_store
    return view.format.incompatibility(folder) is not None or bool(view.format.superseded_pointers(view, folder))


def _checked_out_pointer(view: DatasetView, key: str) -> ObjectBytes | None:
    try:
        return view.checkout_store.get(key)
    except NotFound:
        return None


def _is_present(view: DatasetView, key: str, item: Item | None = None) -> bool:
    """Return whether an object is checked out at a key. Raises Diverged if it clearly has other content."""
    try:
        meta = view.checkout_store.head(key)
    except NotFound:
        return False
    if item is not None and meta.size != item.entry.size:
        raise _diverged(view, key)
    return True


def has_pointers(state: StateStore, record: DatasetRecord) -> bool:
    """Return whether a dataset of a state has pointers, which each checkout moves."""
    view = state.folder_of(record)
    return record.path in state.registered() and bool(view.format.pointer_keys(view))


def check_free(state: StateStore, record: DatasetRecord, version: int | None, items: Mapping[str, Item | None]) -> None:
    """Check that no other writer has written files that are about to be published to the dataset's folder.

    `state` is the branch's head, which is checked out. `items` are to be published, by key of the lake.

    Raises Diverged.
    """
    view = state.folder_of(record)
    if record.path in state.registered():
        pointers = view.format.pointer_keys(view)
        for key in pointers:
            current = _checked_out_pointer(view, key)
            if current is not None and bytes(current) != bytes(view.get(key)):
                raise _diverged(view, key)  # its head is checked out, so something other than a publish moved it
        prefix = f"{record.path}/"
        new = {key.removeprefix(prefix) for key in items if key.startswith(prefix)}.difference(pointers)
        # A publish rarely brings a key that is not a pointer already: the folder need not be asked for others then.
        for key in new.intersection(view.format.pointer_keys(view.checkout_store) if pointers and new else ()):
            item = items[f"{prefix}{key}"]
            if item is not None and view.checkout_store.get(key) != state.content.get(item):
                raise _diverged(view, key)  # a checkout would replace it
        if view.format.superseded_pointers(view, view.checkout_store):
            raise _diverged(view, view.format.pointer_keys(view.checkout_store)[0])
    if version is None:
        return
    if record.path in state.registered() and not view.format.is_managed(view):
        # Other writers may clean up the log: the version may have been used and deleted.
        newest = view.format.version(view.checkout_store)
        if newest is not None and newest > version:
            raise _diverged(view, view.format.log_keys(view, newest)[0])
    for key in view.format.log_keys(view, version):
        # A dataset that was dropped and created again may begin with what the head has already.
        item = items.get(f"{record.path}/{key}", view.item(key))
        if _is_present(view, key) and (item is None or bytes(view.checkout_store.get(key)) != state.content.get(item)):
            raise _diverged(view, key)


def _diverged(view: DatasetView, key: str) -> Diverged:
    path = view.record.path
    return Diverged(
        f"{path}/{key} is in its folder, but the lake did not write it: another writer has committed to "
        f"{path}. Run `lake adopt {path}` to bring what it wrote into the lake",
        path=path,
    )
