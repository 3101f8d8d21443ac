"""The files that versions of a table reach, and those that later versions no longer do, by key with their sizes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core.dataset import Sizes, add_sizes
from lake_core.delta.action_fields import DELETION_VECTOR
from lake_core.delta.apply_difference import reached_keys
from lake_core.delta.commit_file import change_files, parse_run, single_actions
from lake_core.delta.errors import CorruptCommit, VersionNotFound
from lake_core.delta.log_segment import commit_key, newer_versions
from lake_core.delta.path import data_keys
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_PARSED = 256
"""Commits that are parsed at once."""
_SMALL = 64 << 10
"""Commits of up to so many bytes together are parsed line by line: starting Arrow's reader takes longer."""


def reached(latest: Snapshot, state: ObjectStore, since: int | None) -> Sizes:
    """Return the data files, deletion vectors and change files of the versions from `since` to the latest."""
    sizes = reached_keys(latest.files(["path", "size", "deletionVector"]), state)
    first = latest.version if since is None else min(since, latest.version)
    _add_named(sizes, state, first, range(first + 1, latest.version + 1))
    return sizes


def superseded(state: ObjectStore, since: int) -> Sizes:
    """Return the keys that the commits after `since` remove for good, and the change files of all but the newest.

    A file of an earlier version is either still in the table, or a later commit removed it.
    """
    versions = newer_versions(state, since)
    if versions is None:
        raise VersionNotFound(f"the log of {state.url()} does not go on from version {since}")
    sizes: Sizes = {}
    added: Sizes = {}
    """Everything that was added: removals need not have sizes."""
    changes: Sizes = {}
    with suppress(NotFound):  # cleaned up before the table came into the lake
        add_sizes(changes, _change_keys(since, bytes(state.get(commit_key(since))), state))
    for part in _commits(state, versions):
        for version, data in part:
            if version != versions[-1]:
                add_sizes(changes, _change_keys(version, data, state))
        # Most tables only grow. What is added counts only beside what is removed.
        if len(part) == len(versions) and not any(b'"remove"' in data for _, data in part):
            continue
        for commit in part:
            adds, removes = _file_keys([commit], state)
            add_sizes(added, adds.items())
            add_sizes(sizes, ((key, added.get(key) if size is None else size) for key, size in removes.items()))
            for key in adds:
                sizes.pop(key, None)
    add_sizes(sizes, changes.items())
    return sizes


def _commits(store: ObjectStore, versions: Sequence[int]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the commits of these versions in parts."""
    for start in range(0, len(versions), _PARSED):
        part = versions[start : start + _PARSED]
        bodies = store.get_many([commit_key(version) for version in part])
        yield [(version, bytes(body)) for version, body in zip(part, bodies, strict=True)]


def _add_named(sizes: Sizes, store: ObjectStore, since: int, versions: Sequence[int]) -> None:
    """Add all files that the commits of these versions name, and the change files of `since`."""
    with suppress(NotFound):  # cleaned up before the table came into the lake
        add_sizes(sizes, _change_keys(since, bytes(store.get(commit_key(since))), store))
    for part in _commits(store, versions):
        for named in _file_keys(part, store):
            add_sizes(sizes, named.items())
        for version, data in part:
            add_sizes(sizes, _change_keys(version, data, store))


def _change_keys(version: int, data: bytes, store: ObjectStore) -> Iterator[tuple[str, int | None]]:
    """Return the keys and sizes of the change files that a commit names."""
    if b'"cdc"' not in data:
        return iter(())
    files = change_files(version, data, ())
    return zip(data_keys(files["path"], store).to_pylist(), files["size"].to_pylist(), strict=True)


def _file_keys(commits: Sequence[tuple[int, bytes]], store: ObjectStore) -> tuple[Sizes, Sizes]:
    """Return the keys of the data files and deletion vectors that commits add, and of those that they remove.

    Raises CorruptCommit, MalformedAction.
    """
    if sum(len(data) for _, data in commits) <= _SMALL:
        adds, removes = (_small_actions(commits, kind) for kind in ("add", "remove"))
        if adds is not None and removes is not None:
            return reached_keys(adds, store), reached_keys(removes, store)
    # Partition values are left out, so that commits of different partitioning can be parsed together.
    run = parse_run(commits, (), None)
    return reached_keys(run.adds, store), reached_keys(run.removes, store)


def _small_actions(commits: Sequence[tuple[int, bytes]], kind: str) -> pa.Table | None:
    """Parse the file actions of small commits line by line. Return None if one is not valid."""
    fields = pa.schema([("path", pa.string()), ("size", pa.int64()), ("deletionVector", DELETION_VECTOR)])
    try:
        actions = [
            {name: action.get(name) for name in fields.names}
            for version, data in commits
            for action in single_actions(version, data, kind)
        ]
        table = pa.Table.from_pylist(actions, schema=fields)
    except (CorruptCommit, pa.ArrowException, TypeError, AttributeError):
        return None
    return None if table["path"].null_count else table
