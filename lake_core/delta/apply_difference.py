"""Application of the difference of two snapshots to a third, as one version.

A publish, a merge and a revert of a lake apply the difference of two snapshots to a third in exactly one commit, so
that a plain reader of the table sees all of it or nothing. The protocol's conflict rules (`conflict`) decide whether
this is allowed, given what each commit recorded of its reads (`read_set`). Cases that only a lake has are decided here:
a table that was dropped, rewritten or made append-only in the meantime.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core import runtime
from lake_core.dataset import (
    NOTHING,
    Applied,
    ApplyContext,
    DatasetConflict,
    Sizes,
)
from lake_core.delta.action import Metadata, SetTransaction
from lake_core.delta.action_fields import ADD_FIELDS, with_fields
from lake_core.delta.changes import changes_of_commit, fits
from lake_core.delta.commit_actions import commit_info, defined_by, encode_operation
from lake_core.delta.commit_file import encode_actions, single_actions
from lake_core.delta.commit_range import ABSORBED_FIELD, WRITES_FIELD, CommitRange, log_etag, rearranges
from lake_core.delta.conflict import Footprint, Reads, check_conflicts
from lake_core.delta.data_file import DataFileWriter
from lake_core.delta.deletion_vector import vector_keys
from lake_core.delta.difference import (
    SnapshotDifference,
    check_applicable,
    check_numbers,
    difference,
    merged_protocol,
    named_alike,
    protocol_properties,
    with_merged_properties,
    with_properties_of,
)
from lake_core.delta.features import is_active, supported_features, upgraded
from lake_core.delta.file_key import file_key
from lake_core.delta.log_segment import commit_key
from lake_core.delta.marked_write import MARKED_FIELD, MarkedWrites, marked_field, marked_writes, sets_marker
from lake_core.delta.net_feed import exist, net_changes
from lake_core.delta.numpy_arrays import texts
from lake_core.delta.operation import Operation
from lake_core.delta.path import data_keys
from lake_core.delta.read_set import READS_FIELD, read_set_texts
from lake_core.delta.reissued_ids import reissued, with_ids_of
from lake_core.delta.row_conflict import VectorChanges, combined
from lake_core.delta.row_tracking import gives_ids
from lake_core.delta.set_transaction import NEVER
from lake_core.errors import ObjectMissing
from lake_core.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate
    from lake_core.store import ObjectStore

_ADD = [name for name, _ in ADD_FIELDS]


def apply_dropped(before: Snapshot | None, head: Snapshot | None, context: ApplyContext, now: int) -> Applied:
    """Drop the head's table, or only take out what it had in `before`.

    Raises DatasetConflict if it differs from `before`, or has not all of that any longer.
    """
    if before is None or head is None:
        return Applied({}, None if head is None else head.version, "DROP TABLE")
    if difference(before, head):
        if context.undoes:
            return replace(_apply_emptied(before, head, context, now), is_kept=True)
        raise DatasetConflict(f"these changes drop it, but it was changed on {context.onto}", kind="Dropped")
    removes = head.files(_ADD)
    # A table that is created at this path later begins without the txn actions of this one.
    markers = [replace(marker, version=NEVER, last_updated=now) for marker in _set_markers(head)]
    operation = Operation("DROP TABLE", {}, head, {"numRemovedFiles": len(removes)}, removes=removes, markers=markers)
    return _committed(operation, head, [Reads.WHOLE_TABLE], (), context, now)


def _apply_emptied(before: Snapshot, head: Snapshot, context: ApplyContext, now: int) -> Applied:
    files = before.files(_ADD)
    lacking = files.filter(pc.invert(pc.is_in(file_key(files), value_set=file_key(head.files(_ADD)))))
    if len(lacking):
        raise DatasetConflict(
            f"others have rewritten or removed {len(lacking)} of the files that are to be taken out, such as "
            f"{lacking['path'][0]}",
            kind="Rewritten",
        )
    undone = [marker for marker in _set_markers(before) if _version_in(head, marker.app_id) == marker.version]
    markers = [replace(marker, version=NEVER, last_updated=now) for marker in undone]
    removes = files if len(files) else None
    operation = Operation("DELETE", {}, head, {"numRemovedFiles": len(files)}, removes=removes, markers=markers)
    return _committed(operation, head, [], (), context, now)


def apply_created(after: Snapshot, commits: CommitRange, context: ApplyContext, now: int) -> Applied:
    """Apply a table that did not exist before: its versions become version 0."""
    operation = Operation(
        commits.operation(),
        commits.parameters(),
        None,
        commits.metrics(),
        restored=_reissued(after.files(_ADD), None, None, after, None, context, now),
        markers=_set_markers(after),
        protocol=after.protocol,
        metadata=after.metadata,
        domains=after.domains,
    )
    changes = _change_actions(None, after, commits, context, now)
    reads, writes = commits.reads(after.metadata), _Writes.of(commits, after.files(_ADD), operation.markers)
    body = _body(operation, None, after.store, reads, changes, context, now, commits.absorbed(), writes)
    return Applied({commit_key(0): body}, 0, operation.name, operation.metrics, _references(operation, after, changes))


def apply_appended(after: Snapshot, commits: CommitRange, head: Snapshot, context: ApplyContext, now: int) -> Applied:
    """Append one table to the other if both sides created it with the same definition.

    The user's own properties are merged, one by one.
    """
    if not _alike(after, head):
        raise DatasetConflict(
            f"it was created on {context.onto} in the meantime, with another schema, partitioning or properties",
            kind="MetadataChanged",
        )
    commits = commits.since_drop()
    markers = _set_markers(after)
    writes = _Writes.of(commits, after.files(_ADD), markers)
    recorded = _recorded(writes.marked, commits, None, head, context)
    if writes.are(recorded):
        return Applied.skip(head.version, recorded)
    writes, files, markers = writes.without(recorded, after.files(_ADD), markers, head)
    known = [marker for marker in markers if head.transaction(marker.app_id) is not None]
    twice = [marker for marker in known if marker.app_id not in writes.settled]
    if twice:
        raise _written_twice(twice[0])
    if not context.by_writes:
        if not context.in_session:
            _check_not_undone(markers, writes.marked, None, head)
        _check_reads_of_nothing(commits.reads(after.metadata), head)
    absorbed = commits.absorbed()
    check_numbers(files, None, after.metadata, head)
    lacking = _lacking(files, commits, absorbed, head, None, context)
    lacking = _reissued(lacking, None, None, after, head, context, now)
    metadata = with_properties_of(after, head)
    if len(files) and not len(lacking) and not markers and metadata is None:
        return Applied({}, head.version, NOTHING)
    metrics = {} if writes.left_out else commits.metrics()
    operation = Operation(commits.operation(), commits.parameters(), head, metrics, restored=lacking, markers=markers)
    if metadata is not None:
        operation = operation.defining(metadata, head.protocol)
    whole = len(lacking) == len(files) and not writes.left_out
    changes = _change_actions(None, after, commits, context, now) if _feeds(head) and whole else ()
    return _committed(operation, head, commits.reads(after.metadata), changes, context, now, absorbed, writes)


def _check_reads_of_nothing(reads: Sequence[Reads | Predicate], head: Snapshot) -> None:
    """Check what commits read of a table that did not exist, against the table that the other side created.

    Raises ConcurrentAppend.
    """
    files = head.files(_ADD)
    created = SnapshotDifference(files, files.slice(0, 0), (), None, None, ()).as_run(head.version)
    for read in reads:
        footprint = Footprint(read, None, None, None)
        check_conflicts(footprint, [created], head.metadata, head.protocol, 0)


def _written_twice(marker: SetTransaction) -> DatasetConflict:
    return DatasetConflict(
        f"application {marker.app_id!r} wrote to it on both sides, beside other writes: those would be lost with it, "
        "or its rows doubled. Publish them apart from each other",
        kind="ConcurrentTransaction",
    )


def _alike(table: Snapshot, other: Snapshot) -> bool:
    """Return whether files of one table can be files of the other: columns, constraints and features are the same.

    The user's own properties do not change what rows mean.
    """
    left, right = table.metadata, other.metadata
    same = (
        left.schema == right.schema
        and left.partition_columns == right.partition_columns
        and protocol_properties(left.configuration) == protocol_properties(right.configuration)
    )
    return same and supported_features(table.protocol) == supported_features(other.protocol)


def _lacking(
    files: pa.Table,
    commits: CommitRange,
    absorbed: Sequence[str],
    head: Snapshot,
    before: Snapshot | None,
    context: ApplyContext,
) -> pa.Table:
    """Return those of these files that the target lacks.

    It may have taken some of the same commits in another way.

    Args:
        files: Files to add to the target.
        commits: The commits that added them.
        absorbed: Files that the same commits added and then replaced or removed.
        head: The target.
        before: The state from which both sides come, if the table existed then.
        context: How the changes are applied.

    Raises:
        DatasetConflict: The target had a file, of these or of those absorbed, that one side alone replaced or removed
            since `before`. With all of these files, its rows would be doubled, or deleted ones return.
    """
    if not len(files) or before is head:
        return files
    others = CommitRange.between(before, head)
    if not others.bodies:
        return files
    had, had_absorbed = others.added(), texts(others.recorded_as_absorbed())
    present = pc.is_in(file_key(files), value_set=file_key(head.files(_ADD)))
    lacking = files.filter(pc.invert(present))
    if context.by_writes:
        return lacking
    lost = lacking.filter(pc.is_in(lacking["path"], value_set=had))["path"].to_pylist()
    lost += _unknown(lacking.filter(pc.is_in(lacking["path"], value_set=had_absorbed))["path"].to_pylist(), before)
    if lost:
        raise DatasetConflict(
            f"{context.onto} already received {len(lost)} of these files, such as {lost[0]!r}, and has rewritten or "
            "removed them since: to add them again would duplicate rows or restore deleted ones. To undo a revert, "
            "revert the revert",
            kind="RewrittenThere",
        )
    if len(lacking) and absorbed:
        received = {*had.to_pylist(), *had_absorbed.to_pylist()}
        suspects = _unknown([path for path in absorbed if path in received], before)
        replaced = commits.replaced(set(suspects), received) if suspects else []
        if replaced:
            raise DatasetConflict(
                f"{context.onto} already received {len(replaced)} of the files that these changes have rewritten or "
                f"removed, such as {replaced[0]!r}: to add the rewritten files would duplicate rows. Take one side "
                "with a merge strategy",
                kind="RewrittenHere",
            )
    return lacking


def _unknown(paths: list[str], before: Snapshot | None) -> list[str]:
    """Return the paths that the log of a state does not know: no commit that both sides share added them."""
    if not paths or before is None:
        return paths
    commits = CommitRange.between(None, before)
    known = {*commits.added().to_pylist(), *commits.recorded_as_absorbed()}
    return [path for path in paths if path not in known]


def apply_recreated(after: Snapshot, commits: CommitRange, head: Snapshot, context: ApplyContext, now: int) -> Applied:
    """Apply a table where one was dropped. Its log continues the old one, because plain readers expect one log."""
    if context.dropped_beside:
        _check_not_undone(_set_markers(after), None, None, head)
    protocol = upgraded(head.protocol, supported_features(after.protocol))
    files = _reissued(after.files(_ADD), None, None, after, head, context, now)
    operation = Operation(
        commits.operation(), commits.parameters(), head, commits.metrics(), restored=files, markers=_set_markers(after)
    )
    operation = operation.defining(after.metadata, protocol)
    return _committed(operation, head, [Reads.WHOLE_TABLE], (), context, now, commits.absorbed())


def apply_replaced(after: Snapshot, commits: CommitRange, head: Snapshot, context: ApplyContext, now: int) -> Applied:
    """Replace the table by another state of it, with its txn actions, so that an undone append can be made again."""
    ours = difference(head, after)
    if not ours:
        return Applied({}, head.version, NOTHING)
    _check_not_append_only(ours, head)
    marked = VectorChanges.of(ours.removes, ours.adds)
    adds = _reissued(marked.without(ours.adds), ours.removes, None, after, head, context, now)
    metrics = {"numRestoredFiles": len(ours.adds), "numRemovedFiles": len(ours.removes)}
    operation = Operation(
        "RESTORE",
        {},
        head,
        metrics,
        restored=pa.concat_tables([with_ids_of(marked.after, head), adds]),
        removes=with_ids_of(ours.removes, head) or None,
        markers=ours.markers,
        domains=ours.domains,
    )
    if ours.metadata is not None or ours.protocol is not None:
        protocol = upgraded(head.protocol, supported_features(after.protocol) - supported_features(head.protocol))
        operation = operation.defining(after.metadata, protocol)
    return _committed(operation, head, [Reads.WHOLE_TABLE], (), context, now, commits.absorbed())


def _check_not_append_only(ours: SnapshotDifference, head: Snapshot, commits: CommitRange | None = None) -> None:
    if len(ours.removes) and head.metadata.configuration.get("delta.appendOnly", "").lower() == "true":
        if commits is not None and commits.is_mixed():
            reason = "these commits add rows and optimize, which cannot be one version: merge up to each commit in turn"
        else:
            reason = "its rows cannot be reverted or changed"
        raise DatasetConflict(f"it is append-only (delta.appendOnly): {reason}", kind="AppendOnlyTable")


def apply_changed(
    before: Snapshot, after: Snapshot, commits: CommitRange, head: Snapshot, context: ApplyContext, now: int
) -> Applied:
    """Apply the difference between two states of a table to the head, as one new version.

    `commits` lead from `before` to `after`. Raises DatasetConflict if the difference cannot be applied.
    """
    ours = difference(before, after)
    if not ours:
        return Applied({}, head.version, NOTHING)
    writes = _Writes.of(commits, ours.adds, ours.markers)
    recorded = _recorded(writes.marked, commits, before, head, context)
    if writes.are(recorded):
        return Applied.skip(head.version, recorded)
    writes, left, markers = writes.without(recorded, ours.adds, ours.markers, head)
    ours = replace(ours, adds=left, markers=markers)
    if not (context.by_writes or context.in_session):
        _check_not_undone(ours.markers, writes.marked, before, head)
    replaced = before.metadata.id != after.metadata.id  # dropped and created again
    reads: Sequence[Reads | Predicate] = [Reads.WHOLE_TABLE] if replaced else commits.reads(before.metadata)
    rearranged = commits.only_rearranges()
    # Commits of a branch that do both become one version, which changes rows as an update of whole files does.
    if not rearranged and context.session is not None:
        commits.check_not_mixed()
    moved = before.version != head.version or log_etag(before.store, before.version) != log_etag(
        head.store, head.version
    )
    meanwhile = difference(before, head if moved else before)
    if gives_ids(head.protocol, head.metadata) and (moved or not commits.continues):
        ours, meanwhile = named_alike(ours, meanwhile)
    if moved:
        ours, checked = with_merged_properties(ours, before, head), [] if context.by_writes else reads
        unsettled = [marker for marker in ours.markers if marker.app_id not in writes.settled]
        # What was published into a table that others had created as well is taken out of that table.
        is_other = context.undoes and not replaced and before.metadata.id != head.metadata.id
        theirs = check_applicable(
            replace(ours, markers=unsettled),
            meanwhile,
            checked,
            before,
            head,
            rearranges=rearranged,
            is_alike=is_other and _alike(before, head),
            now=now,
        )
        vectors_root = MemoryStore() if context.dry_run else context.data_root
        removes, adds = combined(ours.removes, ours.adds, theirs, before, vectors_root, now)
        ours = replace(ours, removes=removes, adds=adds)
    if not rearranged:
        _check_not_append_only(ours, head, commits)
    absorbed = commits.absorbed()
    marked = VectorChanges.of(ours.removes, ours.adds)
    new = marked.without(ours.adds)
    adds = _lacking(new, commits, absorbed, head, before, context)
    whole = len(adds) == len(new)
    adds = _reissued(adds, ours.removes, before, after, head, context, now, continues=commits.continues and not moved)
    ours = replace(ours, adds=pa.concat_tables([with_ids_of(marked.after, head), adds]))
    if not ours:
        return Applied.skip(head.version, writes.left_out) if writes.left_out else Applied({}, head.version, NOTHING)
    operation = Operation(
        commits.operation(),
        commits.parameters(),
        head,
        {} if writes.left_out else commits.metrics(),
        restored=ours.adds,
        removes=with_ids_of(ours.removes, head) or None,
        data_change=not rearranged,
        markers=ours.markers,
        domains=ours.domains,
    )
    if ours.metadata is not None or ours.protocol is not None:
        operation = operation.defining(
            ours.metadata or head.metadata, merged_protocol(head.protocol, before.protocol, after.protocol)
        )
    changes = (
        _change_actions(before, after, commits, context, now, writes.left_paths)
        if _feeds(head) and commits.continues and whole
        else ()
    )
    return _committed(operation, head, reads, changes, context, now, absorbed, writes)


@dataclass(frozen=True, slots=True)
class _Writes:
    """The writes that become a version.

    Attributes:
        count: How many they are; None if that is unknown.
        marked: Those of them with a txn action; None if they are unknown.
        left_out: Those that the target has already, by application id and version.
        left_paths: The files of those.
        settled: Applications of which the target has made no write since that is not left out.
    """

    count: int | None
    marked: MarkedWrites | None
    left_out: Sequence[tuple[str, int]] = ()
    left_paths: Sequence[str] = ()
    settled: frozenset[str] = frozenset()

    @classmethod
    def of(cls, commits: CommitRange, adds: pa.Table, markers: Sequence[SetTransaction]) -> _Writes:
        """Return the writes of some commits, which add some files and set some txn actions."""
        count = commits.writes()
        if count == 1 or not markers:
            return cls(count, {(marker.app_id, marker.version): None for marker in markers})
        return cls(count, None if count is None else marked_writes(commits, adds))

    def are(self, recorded: Sequence[tuple[str, int]]) -> bool:
        """Return whether each of them has a txn action, and all of these are recorded."""
        return bool(recorded) and self.marked is not None and self.count == len(self.marked) == len(recorded)

    def without(
        self, recorded: Sequence[tuple[str, int]], adds: pa.Table, markers: Sequence[SetTransaction], head: Snapshot
    ) -> tuple[_Writes, pa.Table, Sequence[SetTransaction]]:
        """Return the other writes, with their files and txn actions, if all those that are recorded are appends."""
        if not recorded or self.marked is None or self.count is None:
            return self, adds, markers
        paths: list[str] = []
        for marker in recorded:
            own = self.marked[marker]
            if own is None:
                return self, adds, markers
            paths += own
        settled = {app_id for app_id, version in recorded if version == _version_in(head, app_id)}
        marked = {marker: own for marker, own in self.marked.items() if marker not in recorded}
        rest = _Writes(self.count - len(recorded), marked, recorded, paths, frozenset(settled))
        files = adds.filter(pc.invert(pc.is_in(adds["path"], value_set=texts(paths))))
        return rest, files, [marker for marker in markers if (marker.app_id, marker.version) not in recorded]


def _recorded(
    marked: MarkedWrites | None, commits: CommitRange, before: Snapshot | None, head: Snapshot, context: ApplyContext
) -> list[tuple[str, int]]:
    """Return those of the writes with a txn action that the target has.

    A txn action proves that its own write is there, never that those beside it are. A version that went down since
    `before` was undone, so it proves nothing.
    """
    if marked is None or not commits.continues:
        return []
    there = [
        (app_id, version)
        for app_id, version in marked
        if _version_in(before, app_id) < version <= _version_in(head, app_id)
    ]
    newest = [(app_id, version) for app_id, version in there if version == _version_in(head, app_id)]
    # A writer that is late does not know of a later version. Between branches, only the same one is the same.
    if context.session is not None or newest == there:
        return there
    others = CommitRange.between(before, head)
    return [marker for marker in there if marker in newest or sets_marker(others, *marker)]


def _check_not_undone(
    markers: Sequence[SetTransaction], marked: MarkedWrites | None, before: Snapshot | None, head: Snapshot
) -> None:
    """Raise DatasetConflict if the target wrote the same as one of these writes since `before`, and undid it.

    It is the same write, so it must not come back by another way.
    """
    known = {*(marked or ()), *((marker.app_id, marker.version) for marker in markers)}
    rising = [(app_id, version) for app_id, version in sorted(known) if version > _version_in(before, app_id)]
    undone = [(app_id, version) for app_id, version in rising if _version_in(head, app_id) < version]
    if not undone:
        return
    others = CommitRange.between(before, head)
    for app_id, version in undone:
        if sets_marker(others, app_id, version):
            raise DatasetConflict(
                f"version {version} of application {app_id!r} was written there too, and undone: to have it again, "
                "revert what undid it, or write it there again",
                kind="ConcurrentTransaction",
            )


def raised_markers(before: Snapshot | None, after: Snapshot) -> frozenset[tuple[str, int]]:
    """Return the txn actions of the commits that lead from one state to another, as far as their versions rose."""
    final = {(marker.app_id, marker.version) for marker in _set_markers(after)}
    rising = frozenset((app_id, version) for app_id, version in final if version > _version_in(before, app_id))
    if not rising:
        return rising
    marked = marked_writes(CommitRange.between(before, after), after.files(_ADD).slice(0, 0))
    return rising.union(marker for marker in marked or () if marker[1] > _version_in(before, marker[0]))


def _version_in(snapshot: Snapshot | None, app_id: str) -> int:
    version = None if snapshot is None else snapshot.transaction_version(app_id)
    return NEVER if version is None else version


def _set_markers(snapshot: Snapshot) -> Sequence[SetTransaction]:
    rows = snapshot.transactions().select(["appId", "version", "lastUpdated"]).to_pylist()
    return [SetTransaction(row["appId"], row["version"], row["lastUpdated"]) for row in rows if row["version"] >= 0]


def _reissued(
    adds: pa.Table,
    removes: pa.Table | None,
    before: Snapshot | None,
    after: Snapshot,
    head: Snapshot | None,
    context: ApplyContext,
    now: int,
    *,
    continues: bool = False,
) -> pa.Table:
    """Return the files that a change adds with the row ids that they have on the head; see `reissued`."""
    root = None if context.dry_run else context.data_root
    gone = adds.slice(0, 0) if removes is None else removes
    return reissued(adds, gone, before, after, head, continues=continues, data_root=root, now=now)


def _feeds(snapshot: Snapshot) -> bool:
    return is_active("changeDataFeed", snapshot.protocol, snapshot.metadata)


def _change_actions(
    before: Snapshot | None,
    after: Snapshot,
    commits: CommitRange,
    context: ApplyContext,
    now: int,
    left_paths: Sequence[str] = (),
) -> Sequence[dict[str, Any]]:
    """Return the change files of several commits that become one.

    Those of the net change if theirs are gone, or without some files that are left out.
    """
    if not _feeds(after) or context.dry_run:
        return ()
    if left_paths:
        return net_changes(before, after, context.data_root, now, without=left_paths)
    try:
        changes = _each_change(before, after, commits, context, now)
    except ObjectMissing:
        changes = None
    if changes is None:
        return net_changes(before, after, context.data_root, now)
    # Those of a session are younger than any that are collected.
    is_whole = context.session is not None or exist(context.data_root, changes)
    return changes if is_whole else net_changes(before, after, context.data_root, now)


def _each_change(
    before: Snapshot | None, after: Snapshot, commits: CommitRange, context: ApplyContext, now: int
) -> Sequence[dict[str, Any]] | None:
    """Return the change files of several commits, with each step. Raises ObjectMissing.

    If a version has change files, readers take all of its changes from them. So for commits without change files, the
    changes that follow from their adds and removes are written as change files here. None if the files of one cannot be
    read as those of `after`, because a column was dropped or changed its type since.
    """
    recorded = {version: list(single_actions(version, data, "cdc")) for version, data in commits.bodies}
    if len(commits.bodies) == 1 or not any(rearranges(version, data) is False for version, data in commits.bodies):
        return recorded[commits.bodies[0][0]] if len(commits.bodies) == 1 else ()
    definitions = [] if before is None else [before.metadata]
    for version, data in commits.bodies:
        definitions += [Metadata.from_json(body) for body in single_actions(version, data, "metaData")]
    if not all(fits(definition, after.metadata) for definition in definitions):
        return None
    writer = DataFileWriter(context.data_root, after.metadata, now, changes=True)
    for version, data in commits.bodies:
        if not recorded[version] and rearranges(version, data) is False:
            for rows in changes_of_commit(after, version, data):
                writer.add(rows)
    return [
        *(body for bodies in recorded.values() for body in bodies),
        *(file.to_change_json() for file in writer.finish()),
    ]


def _with_first_ids(operation: Operation, head: Snapshot) -> Operation:
    """Return an operation that gives ids to the rows that stay, too, if it is the one that begins to give ids."""
    if gives_ids(head.protocol, head.metadata):
        return operation
    metadata, protocol = defined_by(operation, head)
    if not gives_ids(protocol, metadata):
        return operation
    files = with_fields(head.files(_ADD), ADD_FIELDS)
    stays = pc.is_null(files["baseRowId"])
    if operation.removes is not None:
        stays = pc.and_not(stays, pc.is_in(file_key(files), value_set=file_key(operation.removes)))
    return replace(operation, restated=files.filter(stays))


def _committed(
    operation: Operation,
    head: Snapshot,
    reads: Sequence[Reads | Predicate],
    changes: Sequence[dict[str, Any]],
    context: ApplyContext,
    now: int,
    absorbed: Sequence[str] = (),
    writes: _Writes | None = None,
) -> Applied:
    operation = _with_first_ids(operation, head)
    body = _body(operation, head, head.store, reads, changes, context, now, absorbed, writes)
    version = head.version + 1
    return Applied(
        {commit_key(version): body},
        version,
        operation.name,
        operation.metrics,
        _references(operation, head, changes),
        () if writes is None else tuple(writes.left_out),
    )


def _body(
    operation: Operation,
    head: Snapshot | None,
    store: ObjectStore,
    reads: Sequence[Reads | Predicate],
    changes: Sequence[dict[str, Any]],
    context: ApplyContext,
    now: int,
    absorbed: Sequence[str],
    writes: _Writes | None,
) -> bytes:
    whole = replace(operation, reads=reads[0] if len(reads) == 1 else (Reads.WHOLE_TABLE if reads else Reads.NOTHING))
    info = commit_info(whole, head, store, str(runtime.uuid4()), now)
    info[READS_FIELD] = read_set_texts(reads)
    if absorbed:
        info[ABSORBED_FIELD] = list(absorbed)
    if writes is not None and writes.count is not None:
        info[WRITES_FIELD] = writes.count
    if writes is not None and writes.marked and writes.count not in (None, 1):
        info[MARKED_FIELD] = marked_field(writes.marked)
    if context.session is not None:
        info["lakeSession"] = context.session
    tail = encode_actions([("cdc", body) for body in changes])
    return encode_actions([("commitInfo", info)]) + encode_operation(operation, head, now) + tail


def _references(operation: Operation, state: Snapshot, changes: Sequence[dict[str, Any]]) -> Sequence[str]:
    keys = [] if operation.restored is None else list(reached_keys(operation.restored, state.store))
    paths = pa.chunked_array([texts([body["path"] for body in changes])])
    return [*keys, *data_keys(paths, state.store).to_pylist()]


def reached_keys(files: pa.Table, store: ObjectStore) -> Sizes:
    """Return the keys of data files and of their deletion vectors, with their sizes.

    `files` has path, and size and deletionVector if present.
    """
    sizes = files["size"].to_pylist() if "size" in files.column_names else repeat(None, len(files))
    return {**dict(zip(data_keys(files["path"], store).to_pylist(), sizes, strict=True)), **vector_keys(files, store)}
