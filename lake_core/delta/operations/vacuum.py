"""VACUUM: delete data files that readers no longer need. The log does not change.

A file that a commit removed is deleted when its tombstone is older than the retention, by the table's clock. An orphan
(its writer died, or is still writing) is deleted when the file is older than the retention, by the store's clock or the
time in its name, whichever is later. A file that the log never named is an orphan only if its name has the form that
this writer uses, because any other may be another program's. `full` finds both by listing the table's folder, `lite`
finds only removed files, from the log. Protocol sections: Remove File (tombstones), Vacuum Protocol Check.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.commit_file import change_files, parse_run, read_commit_info, single_actions
from lake_core.delta.commit_time import instant_of
from lake_core.delta.deletion_vector import vector_keys
from lake_core.delta.errors import DeltaError, PathOutsideTable, UnsafeRetention
from lake_core.delta.file_name import is_delta_name, is_own_name, named_time
from lake_core.delta.log_segment import LOG_FOLDER, commit_key, list_log
from lake_core.delta.numpy_arrays import booleans, mask
from lake_core.delta.operations.listing import delete_keys, list_unknown
from lake_core.delta.path import data_key, data_keys
from lake_core.delta.properties import deleted_file_retention_ms, duration_ms
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.errors import NotFound
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake_core.store import ObjectStore

_LAST_VACUUM = f"{LOG_FOLDER}/_last_vacuum_info"
_NO_KEYS = pa.nulls(0, pa.string())
_DAY = 86_400
_COMMITS_AT_ONCE = 64

Orphans: TypeAlias = Literal["own", "delta"]
"""Which files that no commit names are deleted: those with this writer's names, or with any Delta writer's."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The files that a vacuum deleted, or would delete."""

    files: pa.Array
    """Their keys, relative to the table's root."""
    bytes: int | None
    """Their size; None if only the log was read, which does not always have it."""
    dry_run: bool
    unknown: pa.Array
    """The keys of old files in the table's folder that no commit names.

    They may be another program's, and stay.
    """


def vacuum(
    snapshot: Snapshot,
    now: int,
    *,
    retention: dt.timedelta | str | None,
    mode: Literal["full", "lite"],
    orphans: Orphans,
    dry_run: bool,
    allow_unsafe: bool,
    run: Runner = run_here,
) -> VacuumResult:
    """Delete files that the latest snapshot of a table does not need. `now` is in milliseconds. `run` calls the tasks.

    The default of `retention` is `delta.deletedFileRetentionDuration` (a week). Raises UnsafeRetention for a shorter
    one, unless `allow_unsafe`, and the store's errors.
    """
    if orphans not in get_args(Orphans):
        raise ValueError(f"orphans must be 'own' or 'delta', not {orphans!r}")
    kept_ms = _retention_ms(snapshot, retention, allow_unsafe)
    cutoff = now - kept_ms
    if snapshot.store.versioned:
        # Other branches, tags and sessions may need these files, so the lake's garbage collection deletes them.
        if not dry_run:
            snapshot.store.end_retention(instant_of(cutoff))
        return VacuumResult(_NO_KEYS, 0, dry_run, _NO_KEYS)
    size, last, unknown = None, -1, _NO_KEYS
    if mode == "full":
        files, size, unknown = _by_listing(
            snapshot, cutoff, is_own_name if orphans == "own" else _is_orphan_of_any, run
        )
    elif mode == "lite":
        files, last = _by_log(snapshot, cutoff)
    else:
        raise ValueError(f"mode must be 'full' or 'lite', not {mode!r}")
    if not dry_run:
        delete_keys(snapshot.store, files, run)
        if mode == "full":
            # Files that a store keeps while it writes are younger than a day by its own clock, whatever the table's
            # clock says.
            snapshot.store.sweep(min(cutoff / 1000, time.time() - _DAY))
        if last >= 0:
            _note(snapshot.store, last)
    return VacuumResult(files, size, dry_run, unknown)


def _is_orphan_of_any(key: str) -> bool:
    return is_own_name(key) or is_delta_name(key)


def _retention_ms(snapshot: Snapshot, retention: dt.timedelta | str | None, allow_unsafe: bool) -> int:
    configured = deleted_file_retention_ms(snapshot.metadata.configuration)
    if retention is None:
        if configured is None:
            raise UnsafeRetention(
                "the table's delta.deletedFileRetentionDuration cannot be read: "
                "pass retention, or set the property again"
            )
        return configured
    if isinstance(retention, str):
        milliseconds = duration_ms(retention, "retention")
    elif isinstance(retention, dt.timedelta) and retention >= dt.timedelta():
        milliseconds = int(retention.total_seconds() * 1000)
    else:
        raise ValueError(
            f"retention must be a timedelta that is not negative, or an interval such as '7 days', not {retention!r}"
        )
    if not allow_unsafe and (configured is None or milliseconds < configured):
        kept = "unknown" if configured is None else dt.timedelta(milliseconds=configured)
        raise UnsafeRetention(
            f"a retention of {retention} is shorter than the table's own ({kept}): readers of older versions "
            "and active writers could lose files. "
            "Pass a longer retention, or allow_unsafe=True if nothing else uses the table now"
        )
    return milliseconds


@dataclass(frozen=True, slots=True)
class _Needed:
    """The files that the latest version, or a reader of one that is not older than the cutoff, may open."""

    keys: pa.ChunkedArray
    names: frozenset[str]
    """The files at other locations in the log, which may be this folder by another name."""

    def contains(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        keys = _composed(keys)
        # Keep only the needed keys that are among these: a hash table of all needed keys could be too large.
        is_listed = pc.is_in(_composed(self.keys), value_set=keys)
        contained = booleans(pc.is_in(keys, value_set=_composed(self.keys).filter(is_listed)))
        if self.names:
            contained |= np.array([key.rsplit("/", 1)[-1] in self.names for key in keys.to_pylist()], dtype=bool)
        return contained


def _needed(snapshot: Snapshot, cutoff: int) -> _Needed:
    """Return the keys of the files that must be kept.

    Removed files are looked for in the commits too. A checkpoint may lack those that were older than the retention that
    the table had then.
    """
    store = snapshot.store
    live = snapshot.files(snapshot.identity)
    tombstones = snapshot.tombstones()
    names: set[str] = set()
    tables = [live, _removed_after(tombstones, cutoff), *_in_recent_commits(snapshot, cutoff)]
    keys = [_inside(table["path"], store, names) for table in tables]
    vector_files = pa.array(sorted(set[str]().union(*(vector_keys(table, store) for table in tables))), pa.string())
    return _Needed(
        pa.chunked_array([*(chunk for key in keys for chunk in key.chunks), vector_files], pa.string()),
        frozenset(names),
    )


def _in_recent_commits(snapshot: Snapshot, cutoff: int) -> Iterator[pa.Table]:
    """Yield the removes and the change data files of commits that are younger than the cutoff, as far as the log goes.

    Such a commit may have been written slowly, so its change data may be older.
    """
    commits = list_log(snapshot.store, end=snapshot.version).commits
    for version, data in _read_commits(snapshot.store, sorted(commits, reverse=True)):
        if _committed_ms(commits[version], version, data) <= cutoff:
            return
        yield _removed_after(parse_run([(version, data)], (), None).removes, cutoff)
        yield change_files(version, data, list(snapshot.metadata.partition_keys.values()))


def _removed_after(removes: pa.Table, cutoff: int) -> pa.Table:
    """Return the remove actions that are younger than the cutoff."""
    return removes.filter(pc.greater(pc.fill_null(removes["deletionTimestamp"], 0), cutoff))


def _read_commits(store: ObjectStore, versions: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the commits of these versions, without those that a clean-up of the log has just deleted."""

    def body(version: int) -> bytes | None:
        try:
            return bytes(store.get(commit_key(version)))
        except NotFound:
            return None

    for start in range(0, len(versions), _COMMITS_AT_ONCE):
        group = versions[start : start + _COMMITS_AT_ONCE]
        bodies = store.gather(*(partial(body, version) for version in group))
        yield from ((version, data) for version, data in zip(group, bodies, strict=True) if data is not None)


def _committed_ms(stored: dt.datetime, version: int, data: bytes) -> int:
    """Return when a commit was made, by the store's time or its own, whichever is later."""
    timestamp = read_commit_info(version, data).get("timestamp")
    return max(int(stored.timestamp() * 1000), timestamp if type(timestamp) is int else 0)


def _inside(paths: pa.ChunkedArray, store: ObjectStore, outside: set[str] | None = None) -> pa.ChunkedArray:
    """Return the keys of those paths that are under the table's root.

    The last names of the others are put into `outside`.
    """
    try:
        return data_keys(paths, store)
    except PathOutsideTable:
        inside = []
        for path in paths.to_pylist():
            try:
                inside.append(data_key(path, store))
            except PathOutsideTable:
                if outside is not None:
                    outside.add(unquote(path).rsplit("/", 1)[-1])
        return pa.chunked_array([pa.array(inside, pa.string())])


def _composed(keys: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return keys in a form that is equal for keys that a store treats as the same."""
    return keys if pc.all(pc.string_is_ascii(keys)).as_py() else pc.utf8_normalize(keys, form="NFC")


def _by_listing(
    snapshot: Snapshot, cutoff: int, is_orphan: Callable[[str], bool], run: Runner
) -> tuple[pa.Array, int, pa.Array]:
    """Return the keys to delete, their size in bytes, and the keys of unknown files.

    Unknown files are neither in the log nor accepted by `is_orphan`.
    """
    # Listed before the log is read, so that files of commits in between are found in the log.
    listed = _listed(snapshot, cutoff, run)
    snapshot = snapshot.refreshed()
    if not len(listed):
        return _NO_KEYS, 0, _NO_KEYS
    tombstones = snapshot.tombstones()
    expired = tombstones.filter(pc.less_equal(pc.fill_null(tombstones["deletionTimestamp"], 0), cutoff))
    listed = listed.filter(mask(~_needed(snapshot, cutoff).contains(listed["key"])))
    keys = listed["key"].combine_chunks()
    names = keys.to_pylist()
    removed = booleans(pc.is_in(_composed(keys), value_set=_composed(_inside(expired["path"], snapshot.store))))
    young = np.fromiter((named_time(key) > cutoff for key in names), dtype=bool, count=len(keys))
    young |= booleans(pc.greater(listed["put"], cutoff))
    old = ~removed & ~young
    recognized = np.fromiter((is_orphan(key) for key in names), dtype=bool, count=len(keys))
    if (old & ~recognized).any():
        # Read only if names do not decide, because a log can be long.
        recognized |= booleans(pc.is_in(_composed(keys), value_set=_composed(_named(snapshot))))
    gone = mask(removed | (old & recognized))
    return keys.filter(gone), pc.sum(listed["size"].filter(gone)).as_py() or 0, keys.filter(mask(old & ~recognized))


def _listed(snapshot: Snapshot, cutoff: int, run: Runner) -> pa.Table:
    """List what may be data files, in a large table without those that this snapshot and its readers need."""
    store, tombstones = snapshot.store, snapshot.tombstones()
    removed = _inside(tombstones["path"], store)
    recent = _inside(_removed_after(tombstones, cutoff)["path"], store)
    live = _inside(snapshot.files(snapshot.identity)["path"], store)
    needed = pa.chunked_array([*live.chunks, *recent.chunks], pa.string())
    known = pa.chunked_array([*live.chunks, *removed.chunks], pa.string())
    partition_columns = [name for pair in snapshot.metadata.partition_keys.items() for name in pair]
    return list_unknown(store, known, needed, partition_columns, run)


def _named(snapshot: Snapshot) -> pa.ChunkedArray:
    """Return the keys of all files that the log names: in its commits, and in its oldest checkpoint."""
    store, columns = snapshot.store, list(snapshot.metadata.partition_keys.values())
    listing = list_log(store, end=snapshot.version)
    tables: list[pa.Table] = []
    for version, data in _read_commits(store, sorted(listing.commits)):
        run = parse_run([(version, data)], columns, None)
        tables += [run.adds, run.removes, change_files(version, data, columns)]
    if listing.checkpoints:
        with suppress(DeltaError):
            oldest = load_snapshot(store, listing.checkpoints[0].version)
            tables += [oldest.files(oldest.identity), oldest.tombstones()]
    keys = [chunk for table in tables for chunk in _inside(table["path"], store).chunks]
    vectors = set[str]().union(*(vector_keys(table, store) for table in tables))
    return pa.chunked_array([*keys, pa.array(sorted(vectors), pa.string())], pa.string())


def _is_log(key: str) -> bool:
    # Some stores ignore case.
    return key.split("/")[0].lower() == LOG_FOLDER


def _by_log(snapshot: Snapshot, cutoff: int) -> tuple[pa.Array, int]:
    """Return the keys in removes and change data older than the cutoff, and the last version that was examined."""
    store = snapshot.store
    removed: list[pa.ChunkedArray] = []
    changes: list[str] = []
    examined = last = _noted(snapshot)
    if examined < 0:
        tombstones = snapshot.tombstones()
        removed.append(
            tombstones.filter(pc.less_equal(pc.fill_null(tombstones["deletionTimestamp"], 0), cutoff))["path"]
        )
    for version, data in _commits_until(snapshot, examined, cutoff):
        removed.append(
            parse_run([(version, data)], list(snapshot.metadata.partition_keys.values()), None).removes["path"]
        )
        changes += [body["path"] for body in single_actions(version, data, "cdc") if isinstance(body.get("path"), str)]
        last = version
    paths = pa.chunked_array(
        [chunk for column in removed for chunk in column.chunks] + [pa.array(changes, pa.string())], pa.string()
    )
    # A damaged log may name a part of itself as a data file. Deleting it would destroy the table.
    keys = pa.array([key for key in _inside(paths, store).unique().to_pylist() if not _is_log(key)], pa.string())
    young = np.array([named_time(key) > cutoff for key in keys.to_pylist()], dtype=bool)
    needed = _needed(snapshot.refreshed(), cutoff)
    return keys.filter(mask(~needed.contains(keys) & ~young)), last


def _commits_until(snapshot: Snapshot, after: int, cutoff: int) -> Iterator[tuple[int, bytes]]:
    """Yield the commits after a version while they are older than the cutoff, by the store's time and their own."""
    commits = list_log(snapshot.store, end=snapshot.version).commits
    versions = sorted(version for version in commits if after < version <= snapshot.version)
    for version, data in _read_commits(snapshot.store, versions):
        if _committed_ms(commits[version], version, data) > cutoff:
            return
        yield version, data


def _noted(snapshot: Snapshot) -> int:
    """Return the last version that a vacuum by the log examined; -1 for none, and for an invalid record."""
    try:
        version = json.loads(snapshot.store.get(_LAST_VACUUM)).get("latestCommitVersionOutsideOfRetentionWindow")
    except (NotFound, ValueError, AttributeError, RecursionError):
        return -1
    return version if type(version) is int and 0 <= version <= snapshot.version else -1


def _note(store: ObjectStore, version: int) -> None:
    store.put(_LAST_VACUUM, json.dumps({"latestCommitVersionOutsideOfRetentionWindow": version}).encode())
