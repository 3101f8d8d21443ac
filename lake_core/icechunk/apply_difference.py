"""Applies the difference between two snapshots as one new snapshot on top of a third."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lake_core.dataset import DatasetConflict
from lake_core.icechunk.ancestry import ancestry, parent_of
from lake_core.icechunk.change_set import ChangeSet
from lake_core.icechunk.commit import Commit
from lake_core.icechunk.conflict import Conflict, ConflictType
from lake_core.icechunk.conflict_detector import RebaseStep
from lake_core.icechunk.difference import Difference, difference
from lake_core.icechunk.folders import CHUNKS, MANIFESTS, SNAPSHOTS, TRANSACTIONS
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id, encode_ids
from lake_core.icechunk.manifest import ReferenceKind, is_in
from lake_core.icechunk.marker import Marker, live_markers, recorded_markers, version_of, writes_between
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, Node, Snapshot, microseconds, sort_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from lake_core.dataset import ApplyContext
    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.config import RepositoryConfig

_ANY_TIME = 0
"""The time for markers that count for ever."""
_SHOWN = 5
"""How many conflicts, and chunks of each, a message lists."""


@dataclass(frozen=True, slots=True)
class AppliedSnapshot:
    """The result of applying a difference to a snapshot."""

    snapshot_id: bytes
    difference: Difference
    """The difference between the snapshot and its parent."""
    references: tuple[str, ...]
    """The objects that the repository reaches now and did not reach before."""


@dataclass(frozen=True, slots=True)
class SnapshotApplication:
    """An application of the difference between two snapshots to the head of a branch."""

    assets: AssetManager
    config: RepositoryConfig
    now: datetime
    message: str
    onto: str
    """The name of the branch in messages."""
    dry_run: bool = False
    """Whether to write nothing. Then the id of the later snapshot is returned."""

    def create(self, after: Snapshot) -> AppliedSnapshot:
        """Create a repository, unless the branch has one, with a first snapshot of the contents of `after`."""
        initial = self.assets.snapshot(INITIAL_SNAPSHOT)
        if parent_of(self.assets, after.snapshot_id) in (None, INITIAL_SNAPSHOT):
            created = difference(self.assets, initial, after)
            applied = AppliedSnapshot(after.snapshot_id, created, tuple(new_objects(created, initial, after)))
        else:
            applied = self.replace(initial, after)
        return replace(applied, references=(SNAPSHOTS + encode_id(INITIAL_SNAPSHOT), *applied.references))

    def replace(self, head: Snapshot, after: Snapshot) -> AppliedSnapshot:
        """Write a snapshot on top of the head with the contents of `after`."""
        ours = difference(self.assets, head, after)
        return self._write(ours, head, after.nodes, ChangeSet(), after, self._markers(after))

    def change(
        self, base: Snapshot, after: Snapshot, head: Snapshot, *, shares_groups: bool = False
    ) -> AppliedSnapshot | None:
        """Apply the difference between `base` and `after` to the head.

        Args:
            base: The earlier snapshot.
            after: The later one.
            head: The head of the branch.
            shares_groups: Whether groups that both sides created are the same if their metadata is.

        Returns:
            The result; None if the head already has all of the difference.

        Raises:
            DatasetConflict: The difference conflicts with the changes of the head.
        """
        markers = self._merged_markers(base, after, head)
        ours = difference(self.assets, base, after)
        if ours.is_empty() and markers == self._markers(head):
            return self._rearrange(ours, head)
        if head.snapshot_id != base.snapshot_id:
            theirs = difference(self.assets, base, head)
            if not theirs.is_empty():
                return self._rebase(_without_equal_values(ours, head, shares_groups), theirs, markers)
        return self._write(ours, head, after.nodes, ChangeSet(), after, markers)

    def take_out(self, before: Snapshot, head: Snapshot) -> AppliedSnapshot | None:
        """Erase the chunks of an earlier snapshot from the head. The arrays and groups stay.

        Returns:
            The result; None if the head has none of them.

        Raises:
            DatasetConflict: The head has other values in one of these chunks.
        """
        nodes = {
            path: replace(node, manifests=()) if isinstance(node, ArrayNode) else node
            for path, node in before.nodes.items()
        }
        ours = difference(self.assets, before, replace(before, nodes=nodes))
        theirs = difference(self.assets, before, head)
        undone, there = self._markers(before), self._markers(head)
        markers = {
            app_id: marker for app_id, marker in there.items() if version_of(undone.get(app_id)) != version_of(marker)
        }
        return self._rebase(ours, theirs, markers)

    def _rearrange(self, ours: Difference, head: Snapshot) -> AppliedSnapshot | None:
        """Apply rewritten manifests to the head. Arrays whose manifests the head has changed keep those of the head."""
        rearranged = _rearranged_nodes(ours.before, ours.after, head)
        if not rearranged:
            return None
        return self._write(ours, head, {**head.nodes, **rearranged}, ChangeSet(), ours.after, self._markers(head))

    def _rebase(self, ours: Difference, theirs: Difference, markers: Mapping[str, Marker]) -> AppliedSnapshot | None:
        head = theirs.after
        if ours.is_empty() and markers == self._markers(head):
            return None
        changes = ours.change_set()
        _check_moves(ours, theirs, self.onto)
        conflicts = RebaseStep(ours.before, head, theirs.log(), changes).conflicts()
        conflicts = conflicts or list(_cut_off(ours, theirs, changes))
        if conflicts:
            raise DatasetConflict(_message(conflicts, self.onto), kind=conflicts[0].conflict_type.name)
        nodes, merged = _merged_nodes(ours, theirs, changes)
        return self._write(ours, head, nodes, merged, ours.after, markers)

    def _write(
        self,
        ours: Difference,
        head: Snapshot,
        nodes: Mapping[str, Node],
        changes: ChangeSet,
        after: Snapshot,
        markers: Mapping[str, Marker],
    ) -> AppliedSnapshot:
        if len({node.node_id for node in nodes.values()}) < len(nodes):
            raise DatasetConflict(
                f"these changes bring back an array or group that {self.onto} has at another path: delete it there "
                "first",
                kind="MovedNode",
            )
        if self.dry_run:
            return AppliedSnapshot(after.snapshot_id, ours, ())
        prepared = replace(
            head,
            nodes={path: nodes[path] for path in sorted(nodes, key=sort_key)},
            manifest_files={**after.manifest_files, **head.manifest_files},
        )
        commit = Commit(self.assets, self.config, lambda: self.now, self.message, {})
        writes = writes_between(self.assets, ours.before, after) if markers else None
        snapshot = commit.write(changes, prepared, log=ours.log(), markers=markers, writes=writes)
        return AppliedSnapshot(snapshot.snapshot_id, ours, tuple(new_objects(ours, head, snapshot)))

    # Markers

    def _markers(self, snapshot: Snapshot) -> dict[str, Marker]:
        return recorded_markers(self.assets, snapshot, microseconds(self.now), None)

    def _merged_markers(self, base: Snapshot, after: Snapshot, head: Snapshot) -> dict[str, Marker]:
        """Return the head's markers with those that changed from `base` to `after`.

        Raises DatasetConflict where both sides have changed the same one.
        """
        before, ours, theirs = (self._markers(snapshot) for snapshot in (base, after, head))
        merged = dict(theirs)
        for app_id in before.keys() | ours.keys():
            old, new = before.get(app_id), ours.get(app_id)
            if old == new:
                continue
            there = theirs.get(app_id)
            if there != new and version_of(there) != version_of(old):
                raise DatasetConflict(
                    f"a write of the application {app_id!r} was also recorded on {self.onto}",
                    kind="ConcurrentTransaction",
                )
            if new is None:
                merged.pop(app_id, None)
            else:
                merged[app_id] = new
        return merged


def raised_markers(assets: AssetManager, base: Snapshot | None, after: Snapshot) -> dict[str, Marker]:
    """Return the markers whose versions rose from one snapshot to another."""
    before = {} if base is None else recorded_markers(assets, base, _ANY_TIME, None)
    return {
        app_id: marker
        for app_id, marker in recorded_markers(assets, after, _ANY_TIME, None).items()
        if app_id not in before or marker.version > before[app_id].version
    }


def is_recorded(
    assets: AssetManager, base: Snapshot | None, after: Snapshot, head: Snapshot, context: ApplyContext
) -> bool:
    """Return whether each of the writes that the difference is has a marker, and the head has made those itself.

    A marker proves that its own write is there, never that those beside it are. One that went down since `base` was
    undone, so it proves nothing.
    """
    raised = raised_markers(assets, base, after)
    if not raised or writes_between(assets, base, after) != len(raised):
        return False
    before = {} if base is None else recorded_markers(assets, base, _ANY_TIME, None)
    on_head = recorded_markers(assets, head, _ANY_TIME, None)
    for app_id, marker in raised.items():
        recorded = on_head.get(app_id)
        if recorded is None or recorded in (before.get(app_id), marker):
            return False
        # A writer that is late does not know of a later version. Between branches, only the same one is the same.
        is_late = context.session is not None and recorded.version > marker.version
        if recorded.version != marker.version and not is_late:
            return False
    return True


def check_not_undone(assets: AssetManager, base: Snapshot | None, after: Snapshot, head: Snapshot) -> None:
    """Raise DatasetConflict if the head recorded one of the markers that rose since `base`, and undid it.

    It is the same write, so it must not come back by another way.
    """
    on_head = recorded_markers(assets, head, _ANY_TIME, None)
    undone = {
        app_id: marker.version
        for app_id, marker in raised_markers(assets, base, after).items()
        if app_id not in on_head or on_head[app_id].version < marker.version
    }
    for snapshot in ancestry(assets, head.snapshot_id) if undone else ():
        if base is not None and snapshot.snapshot_id == base.snapshot_id:
            return
        for app_id, marker in live_markers(snapshot, _ANY_TIME, None).items():
            if undone.get(app_id) == marker.version:
                raise DatasetConflict(
                    f"version {marker.version} of application {app_id!r} was written there too, and undone: to have "
                    "it again, revert what undid it, or write it there again",
                    kind="ConcurrentTransaction",
                )


def share_values(left: Difference, right: Difference) -> bool:
    """Return whether two differences set the same chunk, or changed the same array or group.

    Either may have moved it: then only its id is the same.
    """
    nodes, others = ([*each.created.values(), *each.updated.values(), *each.deleted.values()] for each in (left, right))
    if not {node.path for node in nodes}.isdisjoint(node.path for node in others):
        return True
    if not {node.node_id for node in nodes}.isdisjoint(node.node_id for node in others):
        return True
    return any(
        is_in(left.chunks[node_id].coordinates().T, right.chunks[node_id].coordinates().T).any()
        for node_id in left.chunks.keys() & right.chunks.keys()
    )


def _rearranged_nodes(base: Snapshot, after: Snapshot, head: Snapshot) -> dict[str, Node]:
    """Return the head's arrays with new manifests, by path.

    They are those that `after` has rewritten and the head has not changed since `base`. The references in these
    manifests must be the same in `base` and `after`.
    """
    rearranged: dict[str, Node] = {}
    for path, node in after.nodes.items():
        before, existing = base.nodes.get(path), head.nodes.get(path)
        if not (isinstance(node, ArrayNode) and isinstance(before, ArrayNode) and isinstance(existing, ArrayNode)):
            continue
        is_same_array = node.node_id == before.node_id == existing.node_id
        if is_same_array and node.manifests != before.manifests and existing.manifests == before.manifests:
            rearranged[path] = replace(existing, manifests=node.manifests)
    return rearranged


def _check_moves(ours: Difference, theirs: Difference, onto: str) -> None:
    """Raise DatasetConflict if one side moved an array or group that the other deleted."""
    ids = {node.node_id for node in theirs.after.nodes.values()}
    for node_id, move in ours.moved.items():
        if node_id not in ids:
            raise DatasetConflict(f"{move.from_path} is moved here, and was deleted on {onto}", kind="MovedNode")
    for node_id, node in ours.deleted.items():
        if node_id not in ours.moved and node_id in theirs.moved:
            raise DatasetConflict(f"{node.path} is deleted here, and was moved on {onto}", kind="MovedNode")


def _cut_off(ours: Difference, theirs: Difference, changes: ChangeSet) -> Iterator[Conflict]:
    """Yield the chunks that the head has written where `ours` makes their array smaller.

    Icechunk's rules let them go. A lake does not: a write that comes leaves no other one out.
    """
    for path, node in ours.updated.items():
        bounds, chunks = changes.bounds.get(node.node_id), theirs.chunks.get(node.node_id)
        if bounds is None or chunks is None:
            continue
        written = chunks.written.index
        is_outside = (written >= np.array(bounds, np.int64)[:, None]).any(axis=0)
        if is_outside.any():
            yield Conflict(ConflictType.ChunkDoubleUpdate, path, written[:, is_outside].T)


def _merged_nodes(ours: Difference, theirs: Difference, changes: ChangeSet) -> tuple[dict[str, Node], ChangeSet]:
    """Apply nodes that do not conflict to the head.

    Args:
        ours: The difference that is applied.
        theirs: The changes of the head.
        changes: `ours` as changes on top of the snapshot that both start from.

    Returns:
        The nodes by path, and the changes to the manifests of arrays whose chunks both sides have changed.
    """
    head = theirs.after
    nodes = {path: node for path, node in head.nodes.items() if node.node_id not in ours.deleted}
    nodes |= ours.created
    merged = ChangeSet()
    for path, node in ours.after.nodes.items():
        if path in ours.created or (node.node_id not in ours.chunks and path not in ours.updated):
            continue
        existing = head.nodes[path]
        if not (isinstance(node, ArrayNode) and isinstance(existing, ArrayNode)):
            nodes[path] = node
            continue
        document = node if path in ours.updated else existing
        if node.node_id not in theirs.chunks:
            nodes[path] = replace(document, manifests=node.manifests)
            continue
        nodes[path] = merged.nodes[path] = replace(document, manifests=existing.manifests)
        if node.node_id in changes.chunks:
            merged.chunks[node.node_id] = changes.chunks[node.node_id]
        if node.node_id in changes.bounds:
            merged.bounds[node.node_id] = changes.bounds[node.node_id]
    return nodes, merged


def _without_equal_values(ours: Difference, head: Snapshot, shares_groups: bool) -> Difference:
    """Return a difference without the groups and attributes that the head has got with the same values.

    Chunks and shapes stay. Two writes of the same values are two: each of two appends makes an array longer.
    """
    existing = head.nodes
    created = {
        path: node
        for path, node in ours.created.items()
        if not (shares_groups and isinstance(node, GroupNode) and _is_equal_group(existing.get(path), node))
    }
    updated = {
        path: node
        for path, node in ours.updated.items()
        if _is_reshaped(ours, node) or not _has_document(existing.get(path), node)
    }
    return replace(ours, created=created, updated=updated)


def _is_equal_group(existing: Node | None, node: GroupNode) -> bool:
    return isinstance(existing, GroupNode) and existing.user_data == node.user_data


def _is_reshaped(ours: Difference, node: Node) -> bool:
    before = ours.before.nodes.get(node.path)
    return (
        isinstance(node, ArrayNode)
        and isinstance(before, ArrayNode)
        and (before.shape, before.chunk_shape, before.chunk_runs) != (node.shape, node.chunk_shape, node.chunk_runs)
    )


def _has_document(existing: Node | None, node: Node) -> bool:
    return existing is not None and existing.node_id == node.node_id and existing.user_data == node.user_data


def _message(conflicts: list[Conflict], onto: str) -> str:
    listed = []
    for conflict in conflicts[:_SHOWN]:
        chunks = conflict.conflicted_chunks or []
        more = " …" if len(chunks) > _SHOWN else ""
        where = f", chunks {', '.join(map(str, chunks[:_SHOWN]))}{more}" if chunks else ""
        listed.append(f"{conflict.path or 'the repository'}{where}: {conflict.conflict_type.value}")
    more = f"; and {len(conflicts) - _SHOWN} more" if len(conflicts) > _SHOWN else ""
    return f"{'; '.join(listed)}{more} (ours is what is brought in, theirs is {onto})"


def new_objects(ours: Difference, head: Snapshot, snapshot: Snapshot) -> Iterator[str]:
    """Yield the keys of what a snapshot reaches and the head does not. `ours` is the difference between the two."""
    name = encode_id(snapshot.snapshot_id)
    yield SNAPSHOTS + name
    yield TRANSACTIONS + name
    for manifest_id in snapshot.manifest_files.keys() - head.manifest_files.keys():
        yield MANIFESTS + encode_id(manifest_id)
    for change in ours.chunks.values():
        written = change.written
        native = np.unique(written.chunk_id[written.kind == ReferenceKind.NATIVE], axis=0)
        for identifier in encode_ids(native):
            yield CHUNKS + identifier
