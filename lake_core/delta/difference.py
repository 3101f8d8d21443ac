"""The net difference of two snapshots of a table, which a lake applies to a third when it publishes or merges.

However many versions are between two snapshots, the difference consists of file actions, the definition and txn
actions. The protocol's conflict rules check it against the difference between the first snapshot and the target, and it
becomes one commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.action import DomainMetadata, Metadata, Protocol, SetTransaction
from lake_core.delta.action_fields import ADD_FIELDS, REMOVE_FIELDS, with_fields
from lake_core.delta.commit_file import CommitRun
from lake_core.delta.conflict import Footprint, Isolation, Reads, check_conflicts
from lake_core.delta.copied_file import Copies
from lake_core.delta.errors import MetadataChanged
from lake_core.delta.features import supported_features, upgraded
from lake_core.delta.file_key import file_key, identity
from lake_core.delta.identity import gave_numbers, with_highest_marks
from lake_core.delta.numpy_arrays import empty_table, integers, mask, texts
from lake_core.delta.replay import live_files, named_keys, transactions
from lake_core.delta.row_conflict import VectorChanges, check_rows, holding, without_changes
from lake_core.delta.row_tracking import DOMAIN as ROW_IDS_DOMAIN
from lake_core.delta.scan import plan_scan
from lake_core.delta.set_transaction import NEVER
from lake_core.delta.stricter import stricter_part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate

_ADD = [name for name, _ in ADD_FIELDS]
_NAMES = ["path", "size", "tags"]
"""The fields in which a copy differs from its origin, apart from the row ids."""
_PROTOCOL = "delta."
"""How the names of the protocol's properties begin."""


@dataclass(frozen=True, slots=True)
class SnapshotDifference:
    """The net difference from one snapshot to another."""

    adds: pa.Table
    """File actions in force after, not before (columns of `action_fields.ADD_FIELDS`)."""
    removes: pa.Table
    """File actions in force before, not after (the same columns)."""
    markers: Sequence[SetTransaction]
    """Txn actions that were set, or set back to their earlier version (`NEVER` if there was none)."""
    metadata: Metadata | None
    """The table's definition after, if it differs."""
    protocol: Protocol | None
    domains: Sequence[DomainMetadata]

    def __bool__(self) -> bool:
        files = len(self.adds) or len(self.removes)
        return bool(files or self.markers or self.domains or self.metadata is not None or self.protocol is not None)

    def as_run(self, version: int) -> CommitRun:
        """Return the difference as if one commit had made it, for the conflict rules."""
        removes = with_fields(self.removes, REMOVE_FIELDS)
        updated = [marker.last_updated for marker in self.markers]
        markers = pa.table(
            {
                "appId": texts([marker.app_id for marker in self.markers]),
                "version": integers(np.array([marker.version for marker in self.markers], np.int64)),
                "lastUpdated": pc.if_else(
                    mask(np.array([time is not None for time in updated], np.bool_)),
                    integers(np.array([time or 0 for time in updated], np.int64)),
                    scalar(None, pa.int64()),
                ),
            }
        )
        adds, removes, markers = (_numbered(table, version) for table in (self.adds, removes, markers))
        return CommitRun(
            versions=(version,),
            adds=adds,
            removes=removes,
            transactions=markers,
            protocol=self.protocol,
            metadata=self.metadata,
            domains=tuple(self.domains),
            sources=(b"",),
        )


def _numbered(table: pa.Table, version: int) -> pa.Table:
    commits = pa.repeat(scalar(version, pa.int64()), len(table))
    return table.append_column("commit", commits).append_column("position", integers(np.arange(len(table))))


def difference(before: Snapshot, after: Snapshot) -> SnapshotDifference:
    """Return the net difference from `before` to `after`, independent of the commits between them."""
    if before is after:
        return SnapshotDifference(_nothing(), _nothing(), (), None, None, ())
    tail = after.known_since(before)
    if tail is None:
        old, new = before.files(_ADD), after.files(_ADD)
    else:
        # Only the files that the commits name can differ.
        new = live_files(None, tail, _ADD, vectors=False)
        old = before.files_named(_ADD, named_keys(tail))
    old_keys, new_keys = file_key(old), file_key(new)
    return SnapshotDifference(
        with_fields(new.filter(pc.invert(pc.is_in(new_keys, value_set=old_keys))), ADD_FIELDS),
        with_fields(old.filter(pc.invert(pc.is_in(old_keys, value_set=new_keys))), ADD_FIELDS),
        changed_markers(before, after),
        None if before.metadata == after.metadata else after.metadata,
        None if before.protocol == after.protocol else after.protocol,
        changed_domains(before, after),
    )


def changed_domains(before: Snapshot, after: Snapshot) -> Sequence[DomainMetadata]:
    """Return the domain metadata that differs, as it is in `after`, and what is gone as removed."""
    then = {domain.domain: domain for domain in before.domains}
    now = {domain.domain: domain for domain in after.domains}
    gone = [replace(domain, removed=True) for name, domain in then.items() if name not in now]
    return [*(domain for name, domain in now.items() if then.get(name) != domain), *gone]


def named_alike(ours: SnapshotDifference, theirs: SnapshotDifference) -> tuple[SnapshotDifference, SnapshotDifference]:
    """Return two differences from one state, both by the files that are there after the second.

    A file of one side that is a copy of another's, or its origin, is the same file. So it is no change that the first
    difference has the copy in its place, or the second.
    """
    copies = Copies.among(ours.adds, ours.removes, theirs.adds, theirs.removes)
    if not len(copies.files):
        return ours, theirs
    kept = pc.invert(pc.is_in(file_key(ours.removes), value_set=file_key(theirs.removes)))
    there = pa.concat_tables([theirs.adds, ours.removes.filter(kept)])
    return _by_names_of(there, copies, ours), _by_names_of(there, copies, theirs)


def _by_names_of(there: pa.Table, copies: Copies, difference: SnapshotDifference) -> SnapshotDifference:
    """Return a difference by other names of its files, without those that are on both of its sides then."""
    known = copies.origins(there["path"])
    adds, removes = (_renamed(files, copies, there, known) for files in (difference.adds, difference.removes))
    old, new = file_key(removes), file_key(adds)
    return replace(
        difference,
        adds=adds.filter(pc.invert(pc.is_in(new, value_set=old))),
        removes=removes.filter(pc.invert(pc.is_in(old, value_set=new))),
    )


def _renamed(files: pa.Table, copies: Copies, there: pa.Table, known: pa.ChunkedArray) -> pa.Table:
    others = there.take(pc.index_in(copies.origins(files["path"]), value_set=known))
    is_there = others["path"].is_valid()
    columns = {
        name: pc.if_else(is_there, others[name], files[name]) if name in _NAMES else files[name]
        for name in files.column_names
    }
    return pa.table(columns, files.schema)


def file_changes(before: Snapshot | None, after: Snapshot | None) -> tuple[pa.Table, pa.Table]:
    """Return the add actions of files that only the later snapshot has, and those of files that only the earlier has.

    None stands for a table that does not exist.
    """
    if before is not None and after is not None:
        change = difference(before, after)
        return change.adds, change.removes
    adds, removes = (_nothing() if each is None else each.files(_ADD) for each in (after, before))
    return adds, removes


def _nothing() -> pa.Table:
    return empty_table(pa.schema(list(ADD_FIELDS)))


def changed_markers(before: Snapshot, after: Snapshot) -> Sequence[SetTransaction]:
    """Return the txn actions that differ, as they are in `after`."""
    tail = after.known_since(before)
    if tail is not None:
        latest = _markers(transactions(None, tail))
        earlier = {app_id: before.last_transaction(app_id) or _UNSET for app_id in latest}
        return [marker for app_id, marker in latest.items() if earlier[app_id].version != marker.version]
    old, new = _markers(before.transactions()), _markers(after.transactions())
    changed = [marker for app_id, marker in new.items() if old.get(app_id, _UNSET).version != marker.version]
    dropped = [marker for app_id, marker in old.items() if app_id not in new and marker.version != NEVER]
    return [*changed, *(replace(marker, version=NEVER) for marker in dropped)]


_UNSET = SetTransaction("", NEVER, None)


def _markers(actions: pa.Table) -> dict[str, SetTransaction]:
    rows = actions.select(["appId", "version", "lastUpdated"]).to_pylist()
    return {row["appId"]: SetTransaction(row["appId"], row["version"], row["lastUpdated"]) for row in rows}


def with_merged_properties(ours: SnapshotDifference, base: Snapshot, target: Snapshot) -> SnapshotDifference:
    """Return a difference with the metadata that it leads to on the target, where both sides may have changed that.

    Only properties of the user's own are merged, one by one. Those of the protocol, and the schema, conflict where they
    are checked.

    Raises MetadataChanged if both sides gave a property of the user's own other values, or rows the same numbers.
    """
    before, after, head = base.metadata, ours.metadata, target.metadata
    if after is not None and after.id == before.id:
        after = with_highest_marks(after, before)  # an undo gives no number back
        ours = replace(ours, metadata=None if after == before else after)
    if ours.metadata is None or after is None or before == head:
        return ours
    if after == head:
        check_numbers(ours.adds, before, after, target)
        return replace(ours, metadata=None)
    is_new = after.id != before.id  # dropped and created again
    ours_only, theirs_only = (_differ_in_own_properties(before, metadata) for metadata in (after, head))
    if is_new or not (ours_only or theirs_only):
        return ours
    kept = (head if ours_only else after).configuration
    merged = {**protocol_properties(kept), **_merged_own(before.configuration, after.configuration, target)}
    metadata = replace(head if ours_only else after, configuration=merged)
    return replace(ours, metadata=None if metadata == head else metadata)


def check_numbers(adds: pa.Table, before: Metadata | None, after: Metadata, target: Snapshot) -> None:
    """Check that rows which are added to a target that has given as many numbers of identity columns have other ones.

    `before`: the definition from which both sides come, if the table existed then. Raises MetadataChanged unless these
    are rows that the target has, in the same files.
    """
    if gave_numbers(before, after):
        known = pc.is_in(file_key(adds), value_set=file_key(target.files(_ADD)))
        if not pc.all(known).as_py():
            raise MetadataChanged("both sides gave the same numbers of an identity column", version=target.version)


def _merged_own(before: Mapping[str, str], after: Mapping[str, str], target: Snapshot) -> dict[str, str]:
    """Return the user's own properties of a target with those that changed. Raises MetadataChanged."""
    head = target.metadata.configuration
    merged = {name: value for name, value in head.items() if not name.startswith(_PROTOCOL)}
    for name in before.keys() | after.keys():
        old, new, there = (each.get(name) for each in (before, after, head))
        if name.startswith(_PROTOCOL) or new == old:
            continue
        if there not in (old, new):
            raise MetadataChanged(f"both sides have set the property {name!r}", version=target.version)
        if new is None:
            merged.pop(name, None)
        else:
            merged[name] = new
    return merged


def with_properties_of(created: Snapshot, target: Snapshot) -> Metadata | None:
    """Return the definition of a target with the user's own properties of a table that was created as well.

    None if it has them. Raises MetadataChanged if a property of both has other values.
    """
    own = _merged_own({}, created.metadata.configuration, target)
    configuration = {**protocol_properties(target.metadata.configuration), **own}
    metadata = replace(target.metadata, configuration=configuration)
    return None if metadata == target.metadata else metadata


def protocol_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are the protocol's, not the user's own."""
    return {name: value for name, value in configuration.items() if name.startswith(_PROTOCOL)}


def _differ_in_own_properties(before: Metadata, after: Metadata) -> bool:
    """Return whether two definitions differ in nothing but properties that are not the protocol's."""

    def protocol_only(metadata: Metadata) -> Metadata:
        return replace(metadata, configuration=protocol_properties(metadata.configuration))

    return protocol_only(before) == protocol_only(after)


def check_applicable(
    ours: SnapshotDifference,
    changes: SnapshotDifference,
    reads: Sequence[Reads | Predicate],
    base: Snapshot,
    target: Snapshot,
    *,
    rearranges: bool,
    is_alike: bool = False,
    now: int,
) -> VectorChanges:
    """Check that a difference from `base`, whose commits made these reads, can be applied to `target`.

    `changes` lead from `base` to `target`. With `rearranges`, the difference changes no data. With `is_alike`, `target`
    is another table with the same definition. `now` is in milliseconds.

    Returns the files that the target has with other deletion vectors, on top of which the difference goes (`combined`).

    Raises a ConcurrentModification if it cannot.
    """
    theirs = VectorChanges.of(changes.removes, changes.adds)
    if not changes:
        return theirs
    run = without_changes(changes.as_run(target.version), theirs)
    if is_alike:
        run = replace(run, metadata=None)
    # Between the commits of a lake, the user's own properties are merged. They do not change what rows mean.
    is_new = ours.metadata is not None and ours.metadata.id != base.metadata.id
    if run.metadata is not None and not is_new and _differ_in_own_properties(base.metadata, run.metadata):
        run = replace(run, metadata=None)
        if ours.metadata is not None and _differ_in_own_properties(base.metadata, ours.metadata):
            ours = replace(ours, metadata=None)
    for read in reads or [Reads.NOTHING]:
        footprint = _footprint(read, ours, base, rearranges)
        check_conflicts(footprint, [run], base.metadata, base.protocol, now, holding(target))
        check_rows(footprint, VectorChanges.of(ours.removes, ours.adds), theirs, base, target.version)
    if ours.metadata is not None and not is_new and len(run.adds):
        stricter = stricter_part(base.metadata, ours.metadata, run.adds)
        if stricter is not None:
            raise MetadataChanged(f"rows were added that may not fit {stricter}", version=target.version)
    return theirs


def _footprint(read: Reads | Predicate, ours: SnapshotDifference, base: Snapshot, rearranges: bool) -> Footprint:
    read_files = ours.removes
    if not isinstance(read, Reads):
        files = plan_scan(base, None, read).files
        read_files = pa.concat_tables([identity(files), identity(ours.removes)])
    return Footprint(
        read,
        read_files,
        ours.removes,
        None,
        Isolation.SNAPSHOT if rearranges else Isolation.SERIALIZABLE,
        ours.protocol is not None,
        ours.metadata,
        frozenset(domain.domain for domain in ours.domains if domain.domain != ROW_IDS_DOMAIN),
        frozenset(marker.app_id for marker in ours.markers),
    )


def merged_protocol(target: Protocol, before: Protocol, after: Protocol) -> Protocol:
    """Return the target's protocol with the features added, and without those dropped, between `before` and `after`.

    Raises UnsupportedWriterFeature.
    """
    if before == after:
        return target
    merged = upgraded(target, supported_features(after) - supported_features(before))
    dropped = supported_features(before) - supported_features(after)
    if merged.writer_features is None or not dropped:
        return merged
    readers = None if merged.reader_features is None else merged.reader_features - dropped
    return replace(merged, writer_features=merged.writer_features - dropped, reader_features=readers)
