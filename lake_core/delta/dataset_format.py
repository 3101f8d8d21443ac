"""What a lake must know of Delta tables: the classes of their files, and how a difference becomes one version.

A publish, a merge, a revert of a lake all bring the net difference of two snapshots onto a third, as exactly one commit, so that a
plain reader of the table never sees half of it. The protocol's conflict rules decide whether that is sound, with what each commit
recorded of its reads (`scope`).
"""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core import runtime
from lake_core.clock import now_ms
from lake_core.dataset import (
    NOTHING,
    SKIPPED,
    Applied,
    ApplyContext,
    DatasetComparison,
    DatasetConflict,
    DatasetFormat,
    DatasetStore,
    KeyClass,
)
from lake_core.delta.action import SetTransaction
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.changes import COMMIT_TIMESTAMP, COMMIT_VERSION, read_changes
from lake_core.delta.checkpoint_writer import write_checkpoint
from lake_core.delta.commit_file import change_files, encode_actions, parse_run, single_actions
from lake_core.delta.commit_range import CommitRange, log_etag, rearranges
from lake_core.delta.commit_time import CommitTimes
from lake_core.delta.comparison import compare
from lake_core.delta.conflict import Reads
from lake_core.delta.data_file import DataFileWriter
from lake_core.delta.deletion_vector import vector_keys
from lake_core.delta.difference import SnapshotDifference, check_applicable, difference, merged_protocol
from lake_core.delta.errors import ConcurrentModification
from lake_core.delta.features import MANAGED, is_active, supported_features, upgraded
from lake_core.delta.file_name import is_own_name
from lake_core.delta.log_segment import LOG_FOLDER, SIDECARS_FOLDER, commit_key, list_log, log_exists
from lake_core.delta.path import data_keys
from lake_core.delta.properties import checkpoint_interval, deleted_file_retention_ms
from lake_core.delta.read_set import READS_FIELD, read_set_texts
from lake_core.delta.replay import file_key
from lake_core.delta.set_transaction import NEVER
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.delta.table import DeltaTable
from lake_core.delta.transaction import Operation, commit_info, encode_operation
from lake_core.errors import NotFound
from lake_core.expression import Predicate
from lake_core.store import ObjectStore

_COMMIT = re.compile(rf"{LOG_FOLDER}/([0-9]{{20}})\.json")
_DERIVED = re.compile(rf"{LOG_FOLDER}/(?:([0-9]{{20}})\..*(?:parquet|crc|compacted\.json|checkpoint\..*)|_.*)")
_ADD = [name for name, _ in ADD_FIELDS]
_CACHED = 64
"""Snapshots that are kept to build later ones on."""
_LOOKED_UP = 16


class DeltaFormat(DatasetFormat):
    """Delta tables as datasets of a lake."""

    format = "delta"
    derived_prefix = f"{LOG_FOLDER}/"

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, int, str], Snapshot] = OrderedDict()
        self._lock = threading.Lock()

    def key_class(self, key: str) -> KeyClass | None:
        if not key.startswith(f"{LOG_FOLDER}/"):
            return KeyClass.UNIQUE
        if _COMMIT.fullmatch(key):
            return KeyClass.LOG
        return KeyClass.DERIVED if _DERIVED.fullmatch(key) else None

    def exists(self, store: ObjectStore) -> bool:
        return log_exists(store)

    def open(self, store: ObjectStore, *, clock: Callable[[], dt.datetime] | None, **options: Any) -> DeltaTable:
        if options:
            return DeltaTable.open(store, clock=clock, **options)
        return DeltaTable.at(self.snapshot(store), clock)

    def create(
        self, store: DatasetStore, *args: Any, clock: Callable[[], dt.datetime] | None, managed: bool = True, **options: Any
    ) -> DeltaTable:
        """`DeltaTable.create`. `managed`: only the lake may write the table; other clients read it, and refuse to write."""
        properties = dict(options.pop("properties", None) or {})
        if managed:
            properties = {f"delta.feature.{MANAGED}": "supported"} | properties
        return DeltaTable.create(store, *args, properties=properties, clock=clock, **options)

    def convert(self, store: DatasetStore, *, clock: Callable[[], dt.datetime] | None, **options: Any) -> DeltaTable:
        """`DeltaTable.convert`: the files stay where they are."""
        return DeltaTable.convert(store, clock=clock, **options)

    def import_keys(self, place: ObjectStore) -> Sequence[str]:
        """The commits, and where the first ones were cleaned up, the newest checkpoint with what belongs to it."""
        listing = list_log(place)
        keys = [commit_key(version) for version in sorted(listing.commits)]
        if 0 not in listing.commits and listing.checkpoints:
            keys += listing.checkpoints[-1].keys
            keys += [meta.key for meta in place.list(f"{SIDECARS_FOLDER}/")]
        return keys

    def is_managed(self, store: ObjectStore) -> bool:
        return MANAGED in supported_features(self.snapshot(store).protocol)

    def release(self, store: DatasetStore) -> None:
        """A commit that takes the lake's feature off the table."""
        table = DeltaTable.at(self.snapshot(store))
        protocol = table.protocol
        rest = supported_features(protocol) - {MANAGED}
        if rest != supported_features(protocol):
            without = replace(protocol, writer_features=rest)
            table.operate(lambda snapshot, _: Operation("DROP FEATURE", {"featureName": MANAGED}, snapshot, protocol=without), None)

    def version(self, store: ObjectStore) -> int | None:
        return self.snapshot(store).version if log_exists(store) else None

    def validate_entry(self, store: DatasetStore, key: str, data: bytes) -> None:
        """A session either rearranges a table or changes it: else nobody could tell which of the rows are new."""
        match = _COMMIT.fullmatch(key)
        if match is not None and int(match[1]) and store.provisional and b'"dataChange":' in data:
            before = store.base
            after = self.snapshot(store)
            commits = CommitRange.between(None if before is None else self.snapshot(before), after)
            # A log that was brought in may hold any history: what counts is what the session does behind it.
            brought = self.version(store.place) if before is None else None
            own = [commit for commit in commits.bodies if brought is None or commit[0] > brought]
            CommitRange([*own, (int(match[1]), data)], continues=True).only_rearranges()

    def apply(self, base: ObjectStore | None, incoming: ObjectStore | None, target: ObjectStore | None, context: ApplyContext) -> Applied:
        now = now_ms(lambda: context.now)
        before, after, head = (None if store is None else self.snapshot(store) for store in (base, incoming, target))
        try:
            if after is None:
                return _dropped(before, head, context, now)
            if head is None:
                if before is not None:
                    raise DatasetConflict(f"it was dropped on {context.onto} meanwhile", kind="Dropped")
                return _created(after, CommitRange.between(None, after), context, now)
            if context.recreated:
                return _recreated(after, CommitRange.between(None, after), head, context, now)
            if context.replaces:
                return _replaced(after, head, context, now)
            if before is None:
                return _appended(after, CommitRange.between(None, after), head, context, now)
            return _changed(before, after, CommitRange.between(before, after), head, context, now)
        except ConcurrentModification as error:
            raise DatasetConflict(error.reason, kind=type(error).__name__) from error

    def compare(self, before: ObjectStore | None, after: ObjectStore | None, *, sample: int, most_rows: int) -> DatasetComparison:
        old, new = (None if store is None else self.snapshot(store) for store in (before, after))
        return compare(old, new, sample=sample, most_rows=most_rows)

    def log_keys(self, store: ObjectStore, version: int) -> Sequence[str]:
        return [commit_key(version)]

    def derived_from(self, key: str) -> str | None:
        if key.startswith(f"{SIDECARS_FOLDER}/"):
            return ""
        match = _DERIVED.fullmatch(key)
        return None if match is None or match[1] is None else commit_key(int(match[1]))

    def write_derived(self, state: ObjectStore, place: ObjectStore, now: dt.datetime, *, due: bool = False) -> None:
        snapshot = self.snapshot(state)
        if due or (snapshot.version and snapshot.version % checkpoint_interval(snapshot.metadata.configuration) == 0):
            write_checkpoint(replace(snapshot, store=place), now_ms(lambda: now))

    def reachable(self, state: ObjectStore, since: int | None) -> Iterator[str]:
        """Data files, deletion vectors and change files of the versions from `since` on."""
        latest = self.snapshot(state)
        first = latest if since is None or since >= latest.version else self.snapshot(state, since)
        roots = latest.roots[0]
        yield from _keys_of(first.files(["path", "deletionVector"]), state)
        keys = list(latest.metadata.partition_keys.values())
        runs = latest.since(first)
        commits = [commit for run in runs for commit in zip(run.versions, run.sources, strict=True)]
        with suppress(NotFound):  # cleaned up before the table came into the lake
            commits.append((first.version, bytes(state.get(commit_key(first.version)))))
        for run in runs:
            yield from _keys_of(run.adds, roots)
        for version, data in commits:
            yield from data_keys(change_files(version, data, keys)["path"], state).to_pylist()

    def collectable(self, key: str) -> bool:
        """Whether this writer gave the file its name, as for vacuum: any other file may be somebody's own."""
        return is_own_name(key)

    def oldest_version_read(self, store: ObjectStore, now: dt.datetime) -> int | None:
        snapshot = self.snapshot(store)
        kept = deleted_file_retention_ms(snapshot.metadata.configuration)
        if kept is None:
            return 0
        times = CommitTimes(snapshot)
        found = times.latest_until(now - dt.timedelta(milliseconds=kept))
        return times.earliest if found is None else found

    def snapshot(self, store: ObjectStore, version: int | None = None) -> Snapshot:
        """The snapshot of a state, from the latest one at hand that its log continues. Raises as `load_snapshot`."""
        if version is not None:
            return load_snapshot(store, version)
        url = store.url()
        with self._lock:
            known = [(at, tag) for place, at, tag in self._cache if place == url]
        for at, tag in sorted(known, reverse=True)[:_LOOKED_UP]:
            if log_etag(store, at) == tag:
                with self._lock:
                    found = self._cache.get((url, at, tag))
                if found is not None:
                    return self._keep(url, replace(found, store=store).refreshed())
        return self._keep(url, load_snapshot(store))

    def _keep(self, url: str, snapshot: Snapshot) -> Snapshot:
        tag = log_etag(snapshot.store, snapshot.version)
        if tag is not None:
            with self._lock:
                self._cache[url, snapshot.version, tag] = snapshot
                self._cache.move_to_end((url, snapshot.version, tag))
                while len(self._cache) > _CACHED:
                    self._cache.popitem(last=False)
        return snapshot


def _keys_of(files: pa.Table, store: ObjectStore) -> Iterator[str]:
    yield from data_keys(files["path"], store).to_pylist()
    if "deletionVector" in files.column_names and files["deletionVector"].null_count < len(files):
        yield from vector_keys(files, store)


def _dropped(before: Snapshot | None, head: Snapshot | None, context: ApplyContext, now: int) -> Applied:
    if before is None or head is None:
        return Applied({}, None if head is None else head.version, "DROP TABLE")
    if difference(before, head):
        raise DatasetConflict(f"it was changed on {context.onto}, and is dropped here", kind="Dropped")
    removes = head.files(_ADD)
    # A table of this path that is created later begins without the markers of this one.
    markers = [replace(marker, version=NEVER, last_updated=now) for marker in _set_markers(head)]
    operation = Operation("DROP TABLE", {}, head, {"numRemovedFiles": len(removes)}, removes=removes, markers=markers)
    return _committed(operation, head, [Reads.WHOLE_TABLE], (), context, now)


def _created(after: Snapshot, commits: CommitRange, context: ApplyContext, now: int) -> Applied:
    """A table that was not there: its versions become version 0."""
    operation = Operation(
        commits.operation(),
        commits.parameters(),
        None,
        commits.metrics(),
        restored=after.files(_ADD),
        markers=_set_markers(after),
        protocol=after.protocol,
        metadata=after.metadata,
        domains=after.domains,
    )
    changes = _change_actions(after, commits, context, now)
    body = _body(operation, None, after.store, [], changes, context, now)
    return Applied({commit_key(0): body}, 0, operation.name, operation.metrics, _references(operation, after, changes))


def _appended(after: Snapshot, commits: CommitRange, head: Snapshot, context: ApplyContext, now: int) -> Applied:
    """Both sides created the table: the later one becomes an append to the other, if they mean the same table."""
    if not _alike(after, head):
        raise DatasetConflict(
            f"it was created on {context.onto} meanwhile, with another schema or partitioning, or other properties", kind="MetadataChanged"
        )
    markers = _set_markers(after)
    recorded = [marker for marker in markers if head.transaction(marker.app_id) is not None]
    if recorded:
        if len(recorded) == len(markers) and all((head.transaction_version(m.app_id) or 0) >= m.version for m in recorded):
            return Applied({}, head.version, SKIPPED)
        raise DatasetConflict(f"application {recorded[0].app_id!r} wrote to it on both sides", kind="ConcurrentTransaction")
    files = after.files(_ADD)
    lacking = _lacking(files, head, None, context)
    if len(files) and not len(lacking) and not markers:
        return Applied({}, head.version, NOTHING)
    operation = Operation(commits.operation(), commits.parameters(), head, commits.metrics(), restored=lacking, markers=markers)
    changes = _change_actions(after, commits, context, now) if _feeds(head) and len(lacking) == len(files) else ()
    return _committed(operation, head, [], changes, context, now)


def _alike(one: Snapshot, other: Snapshot) -> bool:
    """Whether files of one table may become files of the other: the same columns, constraints and features."""
    left, right = one.metadata, other.metadata
    same = left.schema == right.schema and left.partition_columns == right.partition_columns and left.configuration == right.configuration
    return same and supported_features(one.protocol) == supported_features(other.protocol)


def _lacking(files: pa.Table, head: Snapshot, before: Snapshot | None, context: ApplyContext) -> pa.Table:
    """Those of these files that the target does not have already: it took some of the same commits in another way.

    Raises DatasetConflict for one that it had and gave up since `before`: put back, its rows would be doubled, or deleted ones return.
    """
    if not len(files) or before is head:
        return files
    commits = CommitRange.between(before, head).bodies
    if not commits:
        return files
    had = parse_run(commits, (), None).adds["path"]
    known = pc.is_in(file_key(files), value_set=file_key(head.files(_ADD)))
    lost = files.filter(pc.and_(pc.is_in(files["path"], value_set=had), pc.invert(known)))
    if len(lost):
        raise DatasetConflict(
            f"{context.onto} took {len(lost)} of these files earlier (cherry-picked, merged, or imported too), such as "
            f"{lost['path'][0].as_py()!r}, and has rewritten or removed them since: to put them back would double rows, or bring deleted "
            f"ones back. To undo a revert, revert that",
            kind="RewrittenThere",
        )
    return files.filter(pc.invert(known))


def _recreated(after: Snapshot, commits: CommitRange, head: Snapshot, context: ApplyContext, now: int) -> Applied:
    """A table where one was dropped: its log goes on, as plain readers expect of a log."""
    protocol = upgraded(head.protocol, supported_features(after.protocol))
    files = after.files(_ADD)
    operation = Operation(commits.operation(), commits.parameters(), head, commits.metrics(), restored=files, markers=_set_markers(after))
    return _committed(operation.defining(after.metadata, protocol), head, [Reads.WHOLE_TABLE], (), context, now)


def _replaced(after: Snapshot, head: Snapshot, context: ApplyContext, now: int) -> Applied:
    """Make the table what another state of it is, markers too: an append that is gone may be made again."""
    ours = difference(head, after)
    if not ours:
        return Applied({}, head.version, NOTHING)
    _check_not_append_only(ours, head)
    metrics = {"numRestoredFiles": len(ours.adds), "numRemovedFiles": len(ours.removes)}
    operation = Operation(
        "RESTORE", {}, head, metrics, restored=ours.adds, removes=ours.removes or None, markers=ours.markers, domains=ours.domains
    )
    if ours.metadata is not None or ours.protocol is not None:
        protocol = upgraded(head.protocol, supported_features(after.protocol) - supported_features(head.protocol))
        operation = operation.defining(after.metadata, protocol)
    return _committed(operation, head, [Reads.WHOLE_TABLE], (), context, now)


def _check_not_append_only(ours: SnapshotDifference, head: Snapshot) -> None:
    if len(ours.removes) and head.metadata.configuration.get("delta.appendOnly", "").lower() == "true":
        raise DatasetConflict("it is append-only (delta.appendOnly): rows can't be taken back or changed", kind="AppendOnlyTable")


def _changed(before: Snapshot, after: Snapshot, commits: CommitRange, head: Snapshot, context: ApplyContext, now: int) -> Applied:
    ours = difference(before, after)
    if not ours:
        return Applied({}, head.version, NOTHING)
    if ours.markers and _recorded(ours, commits, before, head):
        return Applied({}, head.version, SKIPPED)
    replaced = before.metadata.id != after.metadata.id  # dropped and created again
    reads = [Reads.WHOLE_TABLE] if replaced else commits.reads(before.metadata)
    rearranged = commits.only_rearranges()
    moved = before.version != head.version or log_etag(before.store, before.version) != log_etag(head.store, head.version)
    if moved:
        check_applicable(ours, reads, before, head, rearranges=rearranged, now=now)
    if not rearranged:
        _check_not_append_only(ours, head)
    adds = _lacking(ours.adds, head, before, context)
    whole, ours = len(adds) == len(ours.adds), replace(ours, adds=adds)
    if not ours:
        return Applied({}, head.version, NOTHING)
    operation = Operation(
        commits.operation(),
        commits.parameters(),
        head,
        commits.metrics(),
        restored=ours.adds,
        removes=ours.removes if len(ours.removes) else None,
        data_change=not rearranged,
        markers=ours.markers,
        domains=ours.domains,
    )
    if ours.metadata is not None or ours.protocol is not None:
        operation = operation.defining(ours.metadata or head.metadata, merged_protocol(head.protocol, before.protocol, after.protocol))
    changes = _change_actions(after, commits, context, now) if _feeds(head) and commits.continues and whole else ()
    return _committed(operation, head, reads, changes, context, now)


def _recorded(ours: SnapshotDifference, commits: CommitRange, before: Snapshot, head: Snapshot) -> bool:
    """Whether the target has every one of these batches already: each commit carried a marker, and each is recorded there."""
    if not commits.bodies or not all(any(True for _ in single_actions(version, data, "txn")) for version, data in commits.bodies):
        return False  # what goes back, such as a revert, lowers markers: a later one there does not mean that it was done
    for marker in ours.markers:
        found, earlier = head.transaction_version(marker.app_id), before.transaction_version(marker.app_id)
        if found is None or found == earlier or found < marker.version:
            return False
    return bool(ours.markers)


def _set_markers(snapshot: Snapshot) -> Sequence[SetTransaction]:
    rows = snapshot.transactions().select(["appId", "version", "lastUpdated"]).to_pylist()
    return [SetTransaction(row["appId"], row["version"], row["lastUpdated"]) for row in rows if row["version"] >= 0]


def _feeds(snapshot: Snapshot) -> bool:
    return is_active("changeDataFeed", snapshot.protocol, snapshot.metadata)


def _change_actions(after: Snapshot, commits: CommitRange, context: ApplyContext, now: int) -> Sequence[dict[str, Any]]:
    """The change files of several commits that become one. A version that has any is read by them alone, so they tell all of it:
    what the commits left to their adds and removes is written down.
    """
    if not _feeds(after) or context.dry_run:
        return ()
    own = {version: list(single_actions(version, data, "cdc")) for version, data in commits.bodies}
    if len(commits.bodies) == 1 or not any(rearranges(version, data) is False for version, data in commits.bodies):
        return own[commits.bodies[0][0]] if len(commits.bodies) == 1 else ()
    writer = DataFileWriter(context.place, after.metadata, now, changes=True)
    for version, data in commits.bodies:
        if not own[version] and rearranges(version, data) is False:
            for batch in read_changes(after, version, version, None, None):
                rows = pa.Table.from_batches([batch]).drop_columns([COMMIT_VERSION, COMMIT_TIMESTAMP])
                writer.add(rows)
    return [*(body for bodies in own.values() for body in bodies), *(file.to_change_json() for file in writer.finish())]


def _committed(
    operation: Operation,
    head: Snapshot,
    reads: Sequence[Reads | Predicate],
    changes: Sequence[dict[str, Any]],
    context: ApplyContext,
    now: int,
) -> Applied:
    body = _body(operation, head, head.store, reads, changes, context, now)
    version = head.version + 1
    return Applied({commit_key(version): body}, version, operation.name, operation.metrics, _references(operation, head, changes))


def _body(
    operation: Operation,
    head: Snapshot | None,
    store: ObjectStore,
    reads: Sequence[Reads | Predicate],
    changes: Sequence[dict[str, Any]],
    context: ApplyContext,
    now: int,
) -> bytes:
    whole = replace(operation, reads=reads[0] if len(reads) == 1 else (Reads.WHOLE_TABLE if reads else Reads.NOTHING))
    info = commit_info(whole, head, store, str(runtime.uuid4()), now)
    info[READS_FIELD] = read_set_texts(reads)
    if context.session is not None:
        info["lakeSession"] = context.session
    tail = encode_actions([("cdc", body) for body in changes])
    return encode_actions([("commitInfo", info)]) + encode_operation(operation, now) + tail


def _references(operation: Operation, state: Snapshot, changes: Sequence[dict[str, Any]]) -> Sequence[str]:
    assert operation.restored is not None or not changes
    keys = [] if operation.restored is None else list(_keys_of(operation.restored, state.store))
    paths = pa.chunked_array([pa.array([body["path"] for body in changes], pa.string())])
    return [*keys, *data_keys(paths, state.store).to_pylist()]
