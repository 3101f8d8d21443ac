"""A table at one version: protocol, metadata, files, tombstones, txn actions.

A snapshot is immutable. Its files and tombstones are read when they are first needed.

Protocol section: Delta Table Specification (the state of a table).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta import replay
from lake_core.delta.action import DomainMetadata, Metadata, Protocol, SetTransaction
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.checkpoint import Checkpoint, FileFilter
from lake_core.delta.commit_file import CommitRun, parse_run, single_actions, split_runs
from lake_core.delta.errors import (
    CheckpointGone,
    CorruptCheckpoint,
    CorruptCommit,
    DeltaError,
    MalformedAction,
    MalformedMetadata,
    MalformedProtocol,
    MissingMetadata,
    MissingProtocol,
    VersionNotFound,
)
from lake_core.delta.features import ROW_TRACKING, check_protocol, check_readable, supported_features
from lake_core.delta.file_key import file_key
from lake_core.delta.log_segment import (
    CheckpointFiles,
    LogSegment,
    entry_key,
    find_segments,
    newer_versions,
)
from lake_core.delta.numpy_arrays import empty_table
from lake_core.delta.staged_commits import StagedCommits
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.store import ObjectStore

_T = TypeVar("_T")

_MAX_TAIL = 200
"""The most runs of commits that a refreshed snapshot carries.

With more it is loaded anew, as one run, from a later checkpoint if there is one.
"""


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint could not be read. The table was read from older files, which takes longer."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A table at `version`. Made by `load_snapshot`; `refreshed` leads to the latest one."""

    store: ObjectStore
    version: int
    protocol: Protocol
    metadata: Metadata
    _checkpoint: Checkpoint | None
    runs: tuple[CommitRun, ...]
    """The commits after the checkpoint, oldest first."""
    _domains: tuple[DomainMetadata, ...]
    allowed_roots: tuple[ObjectStore, ...] = ()
    """The stores that may have data files besides the table's root."""

    @property
    def data_root(self) -> ObjectStore:
        """Return the location of data files. In a lake it is the table's folder, for all branches and sessions."""
        return self.store.data_root

    @property
    def roots(self) -> tuple[ObjectStore, ...]:
        """Return the stores that data files are read from, the table's own first."""
        return (self.data_root, *self.allowed_roots)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Return the names of the partition columns, in order."""
        return self.metadata.partition_columns

    @property
    def domains(self) -> tuple[DomainMetadata, ...]:
        """Return the domain metadata in force."""
        return tuple(domain for domain in self._domains if not domain.removed)

    def files(self, columns: Sequence[str], only: FileFilter | None = None) -> pa.Table:
        """Return the add actions in force with these of their fields (names of `action_fields.ADD_FIELDS`).

        `only`: returns which files are needed, from their `partitionValues` (see `skipping.partition_filter`). The
        other fields of the rest are not kept in memory.
        """
        vectors = self.has_deletion_vectors()
        return self._recovering(lambda s: replay.live_files(s._checkpoint, s.runs, columns, vectors=vectors, only=only))

    @property
    def identity(self) -> tuple[str, ...]:
        """Return the fields of add actions that identify files: the path, and the deletion vector if any has one."""
        ids = ("baseRowId", "defaultRowCommitVersion") if ROW_TRACKING in supported_features(self.protocol) else ()
        return ("path", "deletionVector", *ids) if self.has_deletion_vectors() else ("path", *ids)

    def files_named(self, columns: Sequence[str], keys: pa.ChunkedArray) -> pa.Table:
        """Return these fields of those add actions in force whose file has one of these keys (`file_key`)."""
        vectors = self.has_deletion_vectors()
        if not self._recovering(lambda s: replay.name_any(s._checkpoint, s.runs, keys, vectors=vectors)):
            return empty_table(pa.schema([field for field in ADD_FIELDS if field[0] in columns]))
        files = self.files(columns)
        return files.filter(pc.is_in(file_key(files), value_set=keys))

    def tombstones(self) -> pa.Table:
        """Return the remove actions in force, including expired ones (fields of `action_fields.REMOVE_FIELDS`)."""
        return self._recovering(lambda s: replay.tombstones(s._checkpoint, s.runs))

    def transactions(self) -> pa.Table:
        """Return the txn actions in force, one per application: appId, version, lastUpdated (milliseconds)."""
        return self._recovering(lambda s: replay.transactions(s._checkpoint, s.runs))

    def transaction_version(self, app_id: str) -> int | None:
        """Return the version that an application recorded last, or None if it recorded none."""
        marker = self.transaction(app_id)
        return None if marker is None else marker.version

    def transaction(self, app_id: str) -> SetTransaction | None:
        """Return the last txn action of an application, or None if it has none or a restore reverted it."""
        marker = self.last_transaction(app_id)
        return None if marker is None or marker.version < 0 else marker

    def last_transaction(self, app_id: str) -> SetTransaction | None:
        """Return the last txn action of an application, or None. One that a restore reverted is below zero."""
        for run in reversed(self.runs):
            markers = run.transactions.filter(pc.equal(run.transactions["appId"], scalar(app_id)))
            if len(markers):
                return _marker(markers, -1)
        if self._checkpoint is None:
            return None
        # The runs of this snapshot were just searched. Those of a snapshot without the damaged checkpoint were not.
        recorded = self._recovering(lambda s: replay.transactions(s._checkpoint, () if s is self else s.runs))
        markers = recorded.filter(pc.equal(recorded["appId"], scalar(app_id)))
        return _marker(markers, 0) if len(markers) else None

    def count_actions(self) -> int:
        """Return the number of actions on files since the checkpoint, and of all in it, without reading the latter."""
        newer = sum(len(run.adds) + len(run.removes) for run in self.runs)
        return newer + self._recovering(lambda s: s._checkpoint.count_rows() if s._checkpoint else 0)

    def refreshed(self) -> Snapshot:
        """Return the latest snapshot: this one if nothing was committed since."""
        newer = newer_versions(self.store, self.version)
        if newer is None or (newer and len(self.runs) + len(newer) > _MAX_TAIL):
            latest = load_snapshot(self.store, allowed_roots=self.allowed_roots)
            return self if latest.version == self.version and latest.metadata.id == self.metadata.id else latest
        try:
            return self.advanced(_read_commits(self.store, newer)) if newer else self
        except VersionNotFound:
            # The log was cleaned up between listing and reading. A checkpoint covers the deleted commits.
            return load_snapshot(self.store, allowed_roots=self.allowed_roots)

    def advanced(self, commits: Sequence[tuple[int, bytes]]) -> Snapshot:
        """Return this snapshot advanced by the commits that follow it, given as (version, bytes)."""
        if not commits:
            return self
        protocol, metadata, runs, domains = replay_singles(commits, self.protocol, self.metadata)
        assert protocol is not None
        assert metadata is not None
        check_readable(protocol, metadata, asked_catalog=isinstance(self.store, StagedCommits))
        return replace(
            self,
            version=commits[-1][0],
            protocol=protocol,
            metadata=metadata,
            runs=(*self.runs, *runs),
            _domains=_latest_domains([*self._domains, *domains]),
        )

    @property
    def replayed(self) -> int:
        """Return the number of runs of commits that each look at the table replays."""
        return len(self.runs)

    def on_checkpoint(self, files: CheckpointFiles, store: ObjectStore | None = None) -> Snapshot:
        """Return the same snapshot based on the checkpoint of its version, which was just written to a store."""
        return replace(self, _checkpoint=Checkpoint(store or self.store, files), runs=())

    def since(self, earlier: Snapshot) -> tuple[CommitRun, ...]:
        """Return the commits that lead from an earlier snapshot to this one, however this one was loaded."""
        known = self.known_since(earlier)
        if known is not None:
            return known
        versions = range(earlier.version + 1, self.version + 1)
        metadata: Metadata | None = earlier.metadata
        runs = []
        for changed, group in split_runs(_read_commits(self.store, list(versions))):
            metadata = changed or metadata
            runs.append(parse_run(group, list(metadata.partition_keys.values()) if metadata else (), changed))
        return tuple(runs)

    def known_since(self, earlier: Snapshot) -> tuple[CommitRun, ...] | None:
        """Return the commits that lead from an earlier snapshot to this one, None unless this one was made from it."""
        shared = len(earlier.runs)
        if (
            self._checkpoint is earlier._checkpoint
            and len(self.runs) >= shared
            and all(a is b for a, b in zip(self.runs, earlier.runs, strict=False))
        ):
            return self.runs[shared:]
        return None

    def has_deletion_vectors(self) -> bool:
        """Return whether any file may have a deletion vector, without reading the files' actions."""
        if any(run.adds["deletionVector"].null_count < len(run.adds) for run in self.runs):
            return True
        return self._recovering(lambda s: s._checkpoint is not None and s._checkpoint.has_deletion_vectors())

    def _recovering(self, read: Callable[[Snapshot], _T]) -> _T:
        """Run a read of the state. If the checkpoint is damaged, read the version from other files."""
        snapshot = self
        failures: tuple[_Failure, ...] = ()
        while True:
            try:
                return read(snapshot)
            except CorruptCheckpoint as error:
                if snapshot._checkpoint is None:
                    raise
                failures = (*failures, _Failure(error, snapshot._checkpoint.files))
                snapshot = load_snapshot(self.store, self.version, allowed_roots=self.allowed_roots, _failures=failures)
                if snapshot.metadata.id != self.metadata.id:
                    raise VersionNotFound(
                        f"the table at {self.store.url()} was replaced by another one: open it again"
                    ) from None


_MOST_LOOKS = 3
"""How often a log is listed again if it is cleaned up while it is read."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Files that could not be read, and the error that they raised."""

    error: DeltaError
    checkpoint: CheckpointFiles | None
    """None for commits and compactions."""

    def is_damage(self, replacement: CheckpointFiles | None) -> bool:
        """Return whether the log is damaged, given the checkpoint from which the table was read instead."""
        if not isinstance(self.error, CheckpointGone) or self.checkpoint is None or replacement is None:
            return True
        # If there is a newer checkpoint, the log was cleaned up in the meantime.
        return replacement.version <= self.checkpoint.version


def _marker(rows: pa.Table, row: int) -> SetTransaction:
    updated = rows["lastUpdated"][row].as_py()
    return SetTransaction(rows["appId"][row].as_py(), int(rows["version"][row].as_py()), updated)


def load_snapshot(
    store: ObjectStore,
    version: int | None = None,
    *,
    allowed_roots: tuple[ObjectStore, ...] = (),
    _failures: tuple[_Failure, ...] = (),
) -> Snapshot:
    """Load the table at `version` (None: the latest).

    Data files outside of its root are read from the `allowed_roots` only.

    Raises TableNotFound, VersionNotFound, LogGap, CorruptCommit, CorruptCheckpoint, MissingProtocol, MissingMetadata,
    MalformedProtocol, MalformedMetadata and UnsupportedReaderFeature.
    """
    for _ in range(_MOST_LOOKS - 1):
        try:
            return _load_snapshot(store, version, allowed_roots, _failures)
        except (_Vanished, CheckpointGone):
            continue  # the log was cleaned up between its listing and its reading
    return _load_snapshot(store, version, allowed_roots, _failures)


def _load_snapshot(
    store: ObjectStore,
    version: int | None,
    allowed_roots: tuple[ObjectStore, ...],
    earlier_failures: tuple[_Failure, ...],
) -> Snapshot:
    failures = [*earlier_failures]
    unreadable = {failure.checkpoint for failure in earlier_failures}
    try:
        for segment in find_segments(store, version):
            if segment.checkpoint in unreadable:
                continue
            try:
                snapshot = _load_segment(store, segment)
            except CorruptCheckpoint as error:
                failures.append(_Failure(error, segment.checkpoint))
                continue
            except _DamagedCompaction as error:
                failures.append(_Failure(CorruptCommit(str(error)), None))  # the commits themselves may be there
                continue
            except (MalformedAction, MalformedMetadata, MalformedProtocol) as error:
                if segment.checkpoint is None:
                    raise
                failures.append(_Failure(error, segment.checkpoint))  # the commits after the checkpoint may correct it
                continue
            damage = next((failure.error for failure in failures if failure.is_damage(segment.checkpoint)), None)
            if damage is not None:
                warnings.warn(f"{damage}; rebuilt from older log files", DamagedCheckpointWarning, stacklevel=2)
            return replace(snapshot, allowed_roots=allowed_roots)
    except _Vanished:
        raise
    except DeltaError as error:
        if not failures:
            raise
        if isinstance(error, VersionNotFound) and isinstance(failures[0].error, CheckpointGone):
            # There are newer checkpoints, so nothing is damaged: this version is no longer in the log.
            raise VersionNotFound(f"{error}. Refresh the table, and run the operation again") from None
        raise failures[0].error from None
    if failures:
        raise failures[0].error
    raise CorruptCheckpoint(
        f"{store.url()} has neither a checkpoint nor commits from which a version of the table can be rebuilt"
    )


def _load_segment(store: ObjectStore, segment: LogSegment) -> Snapshot:
    if segment.is_compacted:
        try:
            return _replay_segment(store, segment)
        except (CorruptCommit, MalformedAction, MalformedMetadata, MalformedProtocol, VersionNotFound) as error:
            files = ", ".join(entry_key(first, last) for first, last in segment.entries if first != last)
            raise _DamagedCompaction(f"{files} cannot be used ({error})") from None
    return _replay_segment(store, segment)


class _Vanished(VersionNotFound):
    """A log file was deleted between its listing and its reading."""


class _DamagedCompaction(Exception):
    """A version cannot be read through a compaction file."""


def _replay_segment(store: ObjectStore, segment: LogSegment) -> Snapshot:
    checkpoint = Checkpoint(store, segment.checkpoint) if segment.checkpoint else None
    if checkpoint is None:
        commits = read_entries(store, segment.entries)
    else:
        commits, _ = store.gather(lambda: read_entries(store, segment.entries), checkpoint.open)
    base_protocol = checkpoint.protocol() if checkpoint else None
    changes = [body for version, data in commits for body in single_actions(version, data, "protocol")]
    needed = Protocol.from_json(changes[-1]) if changes else base_protocol
    if needed is None:
        raise MissingProtocol(
            f"the log of {store.url()} has no protocol action up to version {segment.version}: "
            "it is not a complete table"
        )
    asked_catalog = isinstance(store, StagedCommits)
    check_protocol(
        needed, asked_catalog=asked_catalog
    )  # before anything is made of the rest, which may follow rules that are not known here
    base_metadata = checkpoint.metadata() if checkpoint else None
    protocol, metadata, runs, domains = replay_singles(commits, base_protocol, base_metadata)
    for first, last in segment.entries:
        if first != last:
            _check_reconciled(runs, first, last)
    if metadata is None:
        raise MissingMetadata(
            f"the log of {store.url()} has no metaData action up to version {segment.version}: "
            "it is not a complete table"
        )
    assert protocol is not None
    check_readable(protocol, metadata, asked_catalog=asked_catalog)
    all_domains = [*(checkpoint.domains() if checkpoint else ()), *domains]
    return Snapshot(store, segment.version, protocol, metadata, checkpoint, tuple(runs), _latest_domains(all_domains))


def _check_reconciled(runs: Sequence[CommitRun], first: int, last: int) -> None:
    """Raise CorruptCommit unless a compaction holds each file and txn action once.

    Some writers put all actions of the commits there, in another order.
    """
    run = next(run for run in runs if last in run.versions)
    keys = [file_key(table.filter(pc.equal(table["commit"], last))) for table in (run.adds, run.removes)]
    files = pa.chunked_array([chunk for key in keys for chunk in key.chunks], pa.string())
    apps = run.transactions.filter(pc.equal(run.transactions["commit"], last))["appId"]
    for names in (files, apps):
        if pc.count_distinct(names).as_py() < len(names):
            raise CorruptCommit(f"{entry_key(first, last)} holds contradictory actions")


def _read_commits(store: ObjectStore, versions: Sequence[int]) -> list[tuple[int, bytes]]:
    return read_entries(store, [(version, version) for version in versions])


def read_entries(store: ObjectStore, entries: Sequence[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """Read the entries of a `LogSegment`: their last versions and bytes. Raises VersionNotFound, CorruptCommit."""
    if not entries:
        return []
    try:
        bodies = store.get_many([entry_key(first, last) for first, last in entries])
    except NotFound as error:
        raise _Vanished(
            f"{error.key} was deleted while it was read, because the log was cleaned up: open the table again"
        ) from None
    for (first, last), data in zip(entries, bodies, strict=True):
        # Several commits without one action are far less likely than a file that lost its bytes.
        if first != last and not data.strip():
            raise CorruptCommit(f"{entry_key(first, last)} is empty")
    return [(last, data) for (_, last), data in zip(entries, bodies, strict=True)]


def replay_singles(
    commits: Sequence[tuple[int, bytes]], protocol: Protocol | None, metadata: Metadata | None
) -> tuple[Protocol | None, Metadata | None, list[CommitRun], list[DomainMetadata]]:
    """Parse commits, and return the definition of the table after them, from the one before them."""
    runs: list[CommitRun] = []
    domains: list[DomainMetadata] = []
    for changed, group in split_runs(commits):
        metadata = changed or metadata
        run = parse_run(group, list(metadata.partition_keys.values()) if metadata else (), changed)
        protocol = run.protocol or protocol
        domains += run.domains
        runs.append(run)
    return protocol, metadata, runs, domains


def _latest_domains(domains: Sequence[DomainMetadata]) -> tuple[DomainMetadata, ...]:
    return tuple({domain.domain: domain for domain in domains}.values())
