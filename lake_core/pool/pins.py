"""Pins: they keep vacuums from deleting what a revert or a new branch is about to use again.

No branch needs the objects that a revert brings back, so a vacuum may delete them at the same time. Each side therefore
writes down what it is about to do before it looks at what the other one does: a revert pins a commit and then reads
what vacuums are deleting, and a vacuum lists what it is deleting and then reads the pins and the branches. Whichever
comes second sees the other.

The next vacuum whose retention has passed deletes what a process that died has left behind.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from lake_core.errors import NotFound, StoreError
from lake_core.pool.data_object import data_key
from lake_core.pool.errors import DamagedLake, ObjectsVacuumed, PoolError
from lake_core.pool.ksuid import format_ksuid, new_ksuid
from lake_core.pool.metadata import id_value, read_metadata
from lake_core.pool.zng.writer import encode_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lake_core.clock import AwareClock
    from lake_core.pool.commit_store import CommitStore

PINS: Final = "pins"
"""The folder of pins in a pool."""
DELETIONS: Final = "deletions"
"""The folder of the lists of what vacuums are deleting."""


@contextmanager
def pin(commits: CommitStore, commit: str, clock: AwareClock) -> Iterator[None]:
    """Keep vacuums that begin later from deleting a commit and its data objects, for the block.

    A pin stays where the block ends with an unknown outcome. In a state of a lake, nothing is written, as no vacuum
    deletes there.
    """
    if commits.store.versioned:
        yield
        return
    key = _write(commits, PINS, [commit], clock)
    try:
        yield
    except PoolError:
        _remove(commits, key)
        raise
    _remove(commits, key)


def pinned_commits(commits: CommitStore) -> list[str]:
    """Return the ids of the commits that are pinned."""
    return sorted(_read(commits, PINS))


def check_objects_remain(commits: CommitStore, objects: Collection[str], failure: str) -> None:
    """Raise ObjectsVacuumed for data objects that are gone from the store, or that a vacuum is deleting.

    Args:
        commits: The commits of the pool. One with these objects is pinned.
        objects: The ids of the data objects.
        failure: What cannot be done without them.
    """
    deleted = _in_deletion(commits) if objects else set()
    missing = [id for id in objects if id in deleted or not commits.store.exists(data_key(commits.folder, id))]
    if missing:
        raise _vacuumed(failure, missing)


def check_not_vacuumed(commits: CommitStore, commit: str, tips: Collection[str]) -> None:
    """Raise ObjectsVacuumed if a commit needs commits or data objects that are gone, or that a vacuum is deleting.

    Args:
        commits: The commits of the pool. The commit is pinned.
        commit: The id of the commit.
        tips: The tips of branches, whose data objects and commits no vacuum deletes.
    """
    failure = f"a branch cannot begin at the commit {commit}"
    kept = {id for tip in tips for id in commits.objects(tip)}
    try:
        ids = [each.id for each in commits.log(commit)]
        objects = commits.objects(commit).keys() - kept
    except DamagedLake as error:
        raise _vacuumed(failure, [error.key]) from None
    deleted = sorted(_in_deletion(commits).intersection(ids))
    if deleted:
        raise _vacuumed(failure, deleted)
    check_objects_remain(commits, sorted(objects), failure)


def _vacuumed(failure: str, missing: Sequence[str]) -> ObjectsVacuumed:
    return ObjectsVacuumed(
        f"{failure}: it needs {', '.join(missing)}, which a vacuum deleted; load the data again", tuple(missing)
    )


def _in_deletion(commits: CommitStore) -> set[str]:
    """Return the ids of the data objects and commits that vacuums are deleting, or were when they died."""
    return set() if commits.store.versioned else _read(commits, DELETIONS)


def write_deletion(commits: CommitStore, ids: Collection[str], clock: AwareClock) -> str:
    """List what a vacuum is about to delete. Return the key of the list, which is removed after the deletion."""
    return _write(commits, DELETIONS, ids, clock)


def _write(commits: CommitStore, folder: str, ids: Collection[str], clock: AwareClock) -> str:
    key = f"{commits.folder}/{folder}/{new_ksuid(clock())}.zng"
    commits.store.put(key, encode_values([id_value(id) for id in ids]), unique=True)
    return key


def _read(commits: CommitStore, folder: str) -> set[str]:
    ids: set[str] = set()
    for meta in list(commits.store.list(f"{commits.folder}/{folder}/")):
        # One that is gone by now has ended.
        with suppress(NotFound):
            ids.update(format_ksuid(value.decode()) for value in read_metadata(commits.store, meta.key))
    return ids


def _remove(commits: CommitStore, key: str) -> None:
    with suppress(StoreError):
        commits.store.delete([key])
