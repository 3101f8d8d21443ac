"""Delta tables as a dataset format of lakes: classes of files, versions, and the objects that states reach.

`apply_difference` applies a difference as one version.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from lake_core.clock import now_ms
from lake_core.dataset import (
    Applied,
    ApplyContext,
    DatasetComparison,
    DatasetConflict,
    DatasetFormat,
    DatasetStore,
    KeyClass,
    ReadCheck,
    Sizes,
)
from lake_core.delta.errors import ConcurrentModification
from lake_core.delta.file_name import is_own_name
from lake_core.delta.log_segment import (
    LOG_FOLDER,
    SIDECARS_FOLDER,
    commit_key,
    list_log,
    log_exists,
)
from lake_core.delta.properties import checkpoint_interval, deleted_file_retention_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lake_core.delta.inspection import DeltaInspection
    from lake_core.delta.snapshot import Snapshot
    from lake_core.delta.snapshot_cache import SnapshotCache
    from lake_core.delta.table import DeltaTable
    from lake_core.store import ObjectStore
    from lake_core.txn import Txn

_COMMIT = re.compile(rf"{LOG_FOLDER}/([0-9]{{20}})\.json")
_DERIVED = re.compile(rf"{LOG_FOLDER}/(?:([0-9]{{20}})\..*(?:parquet|crc|compacted\.json|checkpoint\..*)|_.*)")
_MOST_REPLAYED = 16
"""The most runs of commits with which a cached snapshot goes on after a checkpoint was written."""


class DeltaFormat(DatasetFormat):
    """Delta tables as datasets of a lake."""

    format = "delta"
    description = "a Delta table"
    derived_prefix = f"{LOG_FOLDER}/"
    is_tabular = True

    # What only needs the names of files, as listings do, imports none of the modules that read tables.

    @cached_property
    def _snapshots(self) -> SnapshotCache:
        from lake_core.delta.snapshot_cache import SnapshotCache

        return SnapshotCache()

    def key_class(self, key: str) -> KeyClass | None:
        """Return LOG for commits, DERIVED for other known files of the log, UNIQUE for all keys outside of it."""
        if not key.startswith(f"{LOG_FOLDER}/"):
            return KeyClass.UNIQUE
        if _COMMIT.fullmatch(key):
            return KeyClass.LOG
        return KeyClass.DERIVED if _DERIVED.fullmatch(key) else None

    def exists(self, store: ObjectStore) -> bool:
        """Return whether the store has a Delta log."""
        return log_exists(store)

    def open(self, store: ObjectStore, *, clock: Callable[[], dt.datetime] | None, **options: Any) -> DeltaTable:
        """Open the table at its latest version, or with options of `DeltaTable.open`."""
        from lake_core.delta.table import DeltaTable

        if options or not store.versioned:
            return DeltaTable.open(store, clock=clock, **options)
        return DeltaTable.at(self.snapshot(store), clock, self._snapshots.keep)

    def setting_problems(self, store: ObjectStore) -> Sequence[str]:
        """Return what is wrong with the properties by which Parquet files are written."""
        from lake_core.delta.parquet_options import ParquetOptions

        problems = ParquetOptions.invalid(self.open(store, clock=None).properties).values()
        return [f"{problem}. Until then, files are written as if it were not set" for problem in problems]

    def create(
        self,
        store: ObjectStore,
        *args: Any,
        clock: Callable[[], dt.datetime] | None,
        managed: bool = True,
        **options: Any,
    ) -> DeltaTable:
        """Create a table as `DeltaTable.create` does.

        If it is `managed` and in a lake, only the lake may write the table; other clients can read it, but refuse to
        write.
        """
        from lake_core.delta.features import MANAGED
        from lake_core.delta.table import DeltaTable

        properties = dict(options.pop("properties", None) or {})
        if managed and store.versioned:
            properties = {f"delta.feature.{MANAGED}": "supported"} | properties
        return DeltaTable.create(store, *args, properties=properties, clock=clock, **options)

    def head(
        self, store: ObjectStore, count: int, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """Return the first rows, of the first files that have some."""
        reader = self.open(store, clock=None).to_batches(columns, where)
        rows = (row for batch in reader for row in batch.slice(0, count).to_pylist()) if count else ()
        return reader.schema.names, list(islice(rows, count))

    def inspect(self, store: ObjectStore) -> DeltaInspection:
        """Return what a person can look at in the table at its latest version."""
        from lake_core.delta.inspection import DeltaInspection

        return DeltaInspection(store, self.snapshot(store))

    def convert(self, store: DatasetStore, *, clock: Callable[[], dt.datetime] | None, **options: Any) -> DeltaTable:
        """Convert as `DeltaTable.convert` does. The files stay where they are."""
        from lake_core.delta.table import DeltaTable

        return DeltaTable.convert(store, clock=clock, **options)

    def import_keys(self, store: ObjectStore) -> Sequence[str]:
        """Return the keys of the commits.

        If the first commits were cleaned up, add the newest checkpoint with its files.
        """
        listing = list_log(store)
        keys = [commit_key(version) for version in sorted(listing.commits)]
        if 0 not in listing.commits and listing.checkpoints:
            keys += listing.checkpoints[-1].keys
            keys += [meta.key for meta in store.list(f"{SIDECARS_FOLDER}/")]
        return keys

    def is_managed(self, store: ObjectStore) -> bool:
        """Return whether the protocol has the feature that keeps other writers out."""
        from lake_core.delta.features import MANAGED, supported_features

        return MANAGED in supported_features(self.snapshot(store).protocol)

    def release(self, store: DatasetStore) -> None:
        """Commit a table definition without the lake's feature."""
        from lake_core.delta.features import MANAGED, supported_features
        from lake_core.delta.operation import Operation
        from lake_core.delta.table import DeltaTable

        table = DeltaTable.at(self.snapshot(store))
        protocol = table.protocol
        remaining = supported_features(protocol) - {MANAGED}
        if remaining != supported_features(protocol):
            without = replace(protocol, writer_features=remaining)
            table.operate(
                lambda snapshot, _: Operation("DROP FEATURE", {"featureName": MANAGED}, snapshot, protocol=without),
                None,
            )

    def version(self, store: ObjectStore) -> int | None:
        """Return the latest version of the log."""
        return self.snapshot(store).version if log_exists(store) else None

    def validate_entry(self, store: DatasetStore, key: str, data: bytes) -> None:
        """Refuse a session that both rearranges a table and changes it.

        The new rows could not be distinguished from the rearranged ones.
        """
        from lake_core.delta.commit_range import CommitRange

        match = _COMMIT.fullmatch(key)
        if match is not None and int(match[1]) and store.provisional and b'"dataChange":' in data:
            before = store.base
            after = self.snapshot(store)
            commits = CommitRange.between(None if before is None else self.snapshot(before), after)
            # An imported log may hold any history. Only the commits of the session count.
            brought = self.version(store.data_root) if before is None else None
            session_commits = [commit for commit in commits.bodies if brought is None or commit[0] > brought]
            CommitRange([*session_commits, (int(match[1]), data)], continues=True).check_not_mixed()

    def apply(
        self, base: ObjectStore | None, incoming: ObjectStore | None, target: ObjectStore | None, context: ApplyContext
    ) -> Applied:
        """Apply the difference to the target's log, by the conflict rules of Delta commits."""
        from lake_core.delta.apply_difference import (
            apply_appended,
            apply_changed,
            apply_created,
            apply_dropped,
            apply_recreated,
            apply_replaced,
        )
        from lake_core.delta.commit_range import CommitRange

        now = now_ms(lambda: context.now)
        before, after = (None if store is None else self.snapshot(store) for store in (base, incoming))
        head = before if target is base else None if target is None else self.snapshot(target)
        try:
            if after is None:
                return apply_dropped(before, head, context, now)
            if head is None:
                if before is not None:
                    raise DatasetConflict(f"it was dropped on {context.onto} in the meantime", kind="Dropped")
                return apply_created(after, CommitRange.between(None, after), context, now)
            if context.recreated:
                return apply_recreated(after, CommitRange.between(None, after), head, context, now)
            if context.replaces:
                return apply_replaced(after, CommitRange.between(before, after), head, context, now)
            if before is None and incoming is not None:
                shared = _imported_version(after, head)
                before = None if shared is None else self.snapshot(incoming, shared)
            if before is None:
                return apply_appended(after, CommitRange.between(None, after), head, context, now)
            return apply_changed(before, after, CommitRange.between(before, after), head, context, now)
        except ConcurrentModification as error:
            raise DatasetConflict(error.reason, kind=type(error).__name__) from error

    def read_check(self, before: ObjectStore | None, after: ObjectStore | None) -> ReadCheck | None:
        """Return the check of the reads that the commits between two states recorded."""
        from lake_core.delta.touch import only_deletes, reads_between, touches

        earlier, later = (None if store is None else self.snapshot(store) for store in (before, after))
        reads = reads_between(earlier, later)
        if not reads:
            return None
        deletes = only_deletes(earlier, later)

        def check(before: ObjectStore | None, after: ObjectStore | None, *, comes: bool) -> bool:
            states = (None if store is None else self.snapshot(store) for store in (before, after))
            # If rows are lacking, there is only less to delete. Those that come back would be deleted, too.
            return touches(reads, *states, deleted=deletes and not comes)

        return check

    def shares_values(
        self,
        change: tuple[ObjectStore | None, ObjectStore | None],
        other: tuple[ObjectStore | None, ObjectStore | None],
    ) -> bool:
        """Return whether both changed the same property."""
        names = []
        for before, after in (change, other):
            if before is None or after is None:
                return False
            old, new = (self.snapshot(each).metadata.configuration for each in (before, after))
            names.append({name for name in old.keys() | new.keys() if old.get(name) != new.get(name)})
        return bool(names[0] & names[1])

    def rearranges(self, before: ObjectStore | None, after: ObjectStore | None) -> bool:
        """Return whether the commits between two states only rearrange rows (optimize, Z-order)."""
        from lake_core.delta.touch import rearranges

        if before is None or after is None:
            return False
        return rearranges(self.snapshot(before), self.snapshot(after))

    def raised_markers(self, before: ObjectStore | None, after: ObjectStore | None) -> AbstractSet[Txn]:
        """Return the txn actions of the commits that lead from one state to another, as far as their versions rose."""
        from lake_core.delta.apply_difference import raised_markers

        if after is None:
            return frozenset()
        return raised_markers(None if before is None else self.snapshot(before), self.snapshot(after))

    def compare(
        self, before: ObjectStore | None, after: ObjectStore | None, *, sample: int, most_rows: int
    ) -> DatasetComparison:
        """Compare two snapshots by their files, and by their rows if these are at most `most_rows`."""
        from lake_core.delta.comparison import compare

        old, new = (None if store is None else self.snapshot(store) for store in (before, after))
        return compare(old, new, sample=sample, most_rows=most_rows)

    def log_keys(self, store: ObjectStore, version: int) -> Sequence[str]:
        """Return the key of the version's commit."""
        return [commit_key(version)]

    def derived_from(self, key: str) -> str | None:
        """Return the commit of the version that a file of the log was derived from; "" for a sidecar."""
        if key.startswith(f"{SIDECARS_FOLDER}/"):
            return ""
        match = _DERIVED.fullmatch(key)
        return None if match is None or match[1] is None else commit_key(int(match[1]))

    def write_derived(
        self, state: ObjectStore, derived_root: ObjectStore, now: dt.datetime, *, due: bool = False
    ) -> None:
        """Write a checkpoint if `delta.checkpointInterval` or `due` asks for one."""
        from lake_core.delta.checkpoint_writer import write_checkpoint

        snapshot = self.snapshot(state)
        if due or (snapshot.version and snapshot.version % checkpoint_interval(snapshot.metadata.configuration) == 0):
            files = write_checkpoint(snapshot, now_ms(lambda: now), derived_root)
            if snapshot.replayed > _MOST_REPLAYED:
                # Otherwise a process that goes on would replay ever more commits. Reading it back costs requests.
                self._snapshots.keep(snapshot.on_checkpoint(files, derived_root))

    def reachable(self, state: ObjectStore, since: int | None) -> Sizes:
        """Return the data files, deletion vectors and change files of the versions from `since` on."""
        from lake_core.delta.reached_files import reached

        return reached(self.snapshot(state), state, since)

    def superseded(self, state: ObjectStore, since: int) -> Sizes:
        """Return the keys that the commits after `since` remove for good, and the change files of all but the newest.

        A file of an earlier version is either still in the table, or a later commit removed it.
        """
        from lake_core.delta.reached_files import superseded

        return superseded(state, since)

    def content_problem(self, store: ObjectStore, key: str) -> str | None:
        """Decode all pages of a Parquet file, with their checksums if they have any, or all deletion vectors."""
        from lake_core.delta.content import parquet_problem
        from lake_core.delta.deletion_vector import vector_file_problem

        return vector_file_problem(bytes(store.get(key))) if key.endswith(".bin") else parquet_problem(store, key)

    def collectable(self, key: str) -> bool:
        """Return whether this writer named the file, as for vacuum. Other files may be another program's."""
        return is_own_name(key)

    def oldest_version_read(self, store: ObjectStore, now: dt.datetime) -> int | None:
        """Return the oldest version whose files `delta.deletedFileRetentionDuration` keeps; 0 if it keeps all."""
        from lake_core.delta.commit_time import CommitTimes

        snapshot = self.snapshot(store)
        kept = deleted_file_retention_ms(snapshot.metadata.configuration)
        if kept is None:
            return 0
        times = CommitTimes(snapshot)
        version = times.latest_until(now - dt.timedelta(milliseconds=kept))
        return times.earliest if version is None else version

    def snapshot(self, store: ObjectStore, version: int | None = None) -> Snapshot:
        """Return the snapshot of a state, built on the latest cached one that its log continues.

        Raises what `load_snapshot` raises.
        """
        from lake_core.delta.snapshot import load_snapshot

        if version is not None:
            return load_snapshot(store, version)
        return self._snapshots.load(store)


def _imported_version(after: Snapshot, head: Snapshot) -> int | None:
    """Return the last version that two tables share which were imported from one log.

    Return None for others. The log of a table that was created again begins with that of the one before.
    """
    from lake_core.delta.commit_range import CommitRange, shared_version

    commits = CommitRange.between(None, after)
    shared = shared_version(after, head)
    return None if shared < 0 or commits.since_drop() is not commits else shared
