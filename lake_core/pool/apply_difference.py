"""Applies the difference between two states of a pool to a third one, in a single commit."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from lake_core.dataset import NOTHING, Applied, ApplyContext, DatasetConflict
from lake_core.journal import Action, Add, Entry, Update
from lake_core.journal.entry import EPOCH
from lake_core.pool.action import Action as CommitAction
from lake_core.pool.action import AddObject, DeleteObject
from lake_core.pool.commit import Commit
from lake_core.pool.config import BranchConfig, PoolConfig
from lake_core.pool.config_journal import ConfigCodec
from lake_core.pool.data_object import DataObject, data_key, seek_index_key
from lake_core.pool.dataset_state import MAIN, POOLS, DatasetState, branches_folder, entry_key, head_key, tail_key
from lake_core.pool.errors import DamagedLake
from lake_core.pool.heirs import heirs
from lake_core.pool.ksuid import NIL, new_ksuid
from lake_core.pool.lake import empty_lake
from lake_core.pool.marked_writes_of import marked_writes
from lake_core.pool.marker import rising, version_of
from lake_core.pool.read_set import EVERYTHING, has_read, read_set
from lake_core.pool.value import NULL_VALUE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lake_core.pool.commit_store import Change, CommitStore
    from lake_core.pool.marked_write import MarkedWrites
    from lake_core.pool.marker import Marker, Markers

_SHOWN = 5
"""How many data objects a message lists."""


@dataclass(frozen=True, slots=True)
class PoolApplication:
    """An application of the difference between two states of a pool to the branch main of a third one.

    Attributes:
        commits: The pool's commits, in the dataset's folder.
        context: The lake's side of the application.
    """

    commits: CommitStore
    context: ApplyContext
    _read: dict[tuple[str, str], Sequence[Change]] = field(default_factory=dict, init=False)
    """What `_changes_since` has read."""

    def create(self, after: DatasetState) -> Applied:
        """Create the pool with one commit that adds what it holds."""
        _, marked = self._writes(None, after, after.objects, after.markers)
        change = _Change((), tuple(after.objects.values()), after.markers, after.config, marked or {})
        commit = self._commit(NIL, change, after)
        branch = BranchConfig(after.branch.ts, MAIN, commit)
        folder = branches_folder(after.config.id)
        puts = {
            **empty_lake(),
            entry_key(POOLS, 1): _encoded(1, Add(after.config.name, after.config)),
            head_key(POOLS): b"1",
            entry_key(folder, 1): _encoded(1, Add(MAIN, branch)),
            tail_key(folder): b"1 0",
            head_key(folder): b"1",
        }
        return Applied(puts, 0, "CREATE", _summary((), after.objects.values()), self._references(commit, after.objects))

    def replace(self, after: DatasetState, head: DatasetState) -> Applied:
        """Replace the content of the head by that of another state."""
        config = replace(after.config, id=head.config.id, name=head.config.name, ts=head.config.ts)
        added, removed = _added_and_removed(head, after)
        change = _Change(tuple(removed.values()), tuple(added.values()), after.markers, config)
        return self._write(change, head, "REPLACE", after)

    def drop(self, before: DatasetState | None, head: DatasetState) -> Applied:
        """Empty the head, or only take out what it had before.

        Plain readers then see that its values are gone. Raises DatasetConflict.
        """
        if before is not None and before.objects.keys() != head.objects.keys():
            if self.context.undoes:
                return replace(self._take_out(before, head), is_kept=True)
            raise DatasetConflict(f"these changes drop it, but it was changed on {self.context.onto}", kind="Rewritten")
        change = _Change(tuple(head.objects.values()), (), {}, head.config)
        return self._write(change, head, "DROP")

    def _take_out(self, before: DatasetState, head: DatasetState) -> Applied:
        lacking = [each for id, each in before.objects.items() if id not in head.objects]
        if lacking:
            raise DatasetConflict(_message(lacking, self.context.onto), kind="Rewritten")
        markers = {app: marker for app, marker in head.markers.items() if before.markers.get(app) != marker}
        change = _Change(tuple(before.objects.values()), (), markers, head.config)
        return self._write(change, head, "DELETE", head)

    def change(self, before: DatasetState | None, after: DatasetState, head: DatasetState) -> Applied:
        """Apply the difference between two states to the head.

        Raises DatasetConflict where the two contradict each other.
        """
        self._check_same_pool(after, head)
        added, removed = _added_and_removed(before, after)
        raised = rising(_markers(before), after.markers)
        writes, marked = self._writes(before, after, added, raised)
        recorded = self._recorded(marked or {}, before, after, head)
        if recorded and marked is not None and writes == len(marked) == len(recorded):
            return Applied.skip(None, recorded)
        left_out: Sequence[tuple[str, int]] = ()
        if marked is not None and writes is not None and all(marked[marker] is not None for marker in recorded):
            left_out = recorded
            gone_ids = {id for marker in left_out for id in marked[marker] or ()}
            added = {id: each for id, each in added.items() if id not in gone_ids}
            marked = {marker: ids for marker, ids in marked.items() if marker not in left_out}
        if not (self.context.by_writes or self.context.in_session):
            final = ((application, marker.version) for application, marker in raised.items())
            self._check_not_undone({*(marked or ()), *final}, before, head)
        config = self._merged_config(before, after, head, removed)
        markers = self._merged_markers(before, after, head, left_out)
        new = [each for each in added.values() if each.id not in head.objects]
        gone = [each for each in removed.values() if each.id not in head.objects]
        if not self.context.by_writes:
            self._check_reads(before, after, head)
            if new:
                self._check_not_received(new, before, after, head)
        is_part = bool(new) or len(gone) < len(removed)
        if gone and (
            self.context.by_writes or is_part or self._live_on({each.id for each in gone}, before, after, head)
        ):
            raise DatasetConflict(_message(gone, self.context.onto), kind="ObjectDeleted")
        change = _Change(() if gone else tuple(removed.values()), tuple(new), markers, config, marked or {}, left_out)
        return self._write(change, head, "COMMIT", after, NIL if before is None else before.branch.commit)

    def _writes(
        self, before: DatasetState | None, after: DatasetState, added: Collection[str], raised: Markers
    ) -> tuple[int | None, MarkedWrites | None]:
        """Return how many writes a difference is, and those with a marker. Each is None if that is unknown."""
        changes = self._changes_between(before, after)
        count = _writes(changes)
        if count == 1 or not raised:
            return count, {(application, marker.version): None for application, marker in raised.items()}
        return count, None if count is None else marked_writes(changes, _markers(before), added)

    def _write(
        self,
        change: _Change,
        head: DatasetState,
        operation: str,
        after: DatasetState | None = None,
        start: str | None = None,
    ) -> Applied:
        version = head.branch_entries
        rewrites_config = change.config != head.config
        is_empty = not change.removed and not change.added and change.markers == head.markers and not rewrites_config
        if is_empty and operation == "COMMIT":
            return Applied.skip(None, change.left_out) if change.left_out else Applied({}, version - 1, NOTHING)
        commit = self._commit(head.branch.commit, change, after, start)
        folder = branches_folder(head.config.id)
        puts = {
            entry_key(folder, version + 1): _encoded(version + 1, Update(MAIN, replace(head.branch, commit=commit))),
            head_key(folder): b"%d" % (version + 1),
        }
        if rewrites_config:
            number = head.pool_entries + 1
            puts |= {
                entry_key(POOLS, number): _encoded(number, Update(change.config.name, change.config)),
                head_key(POOLS): b"%d" % number,
            }
        references = self._references(commit, [each.id for each in change.added])
        summary, left_out = _summary(change.removed, change.added), tuple(change.left_out)
        return Applied(puts, version, operation, summary, references, left_out)

    def _commit(self, parent: str, change: _Change, after: DatasetState | None, start: str | None = None) -> str:
        """Write the commit, and return its id. Write nothing in a dry run.

        Args:
            parent: The commit before it.
            change: Its changes.
            after: The state that is applied.
            start: The commit that `after` is compared with; by default the parent. If there is a single commit between
                the two, its author, message and meta are used. If that commit is equal to the one to write, its id is
                returned.
        """
        if parent == NIL and not change.added and not change.markers:
            return NIL
        start = parent if start is None else start
        changes = () if after is None else self._changes_since(start, after.branch.commit)
        single = changes[0].commit if len(changes) == 1 and changes[0].commit.parent == start else None
        if (
            single is not None
            and after is not None
            and start == parent
            and change.is_made_by(changes[0].actions)
            and change.markers == after.markers
        ):
            return single.id
        id = new_ksuid(self.context.now)
        if self.context.dry_run:
            return id
        author, meta = "", NULL_VALUE
        message = (
            f"Session {self.context.session} of the lake"
            if self.context.session
            else f"Brought onto {self.context.onto}"
        )
        if single is not None:
            author, message, meta, absorbed = single.author, single.message, single.meta, single.absorbed
        else:
            absorbed = () if after is None else tuple(sorted(self._absorbed(start, after)))
        writes = _writes(changes)
        commit = Commit(
            id,
            parent,
            0,
            author,
            self.context.now,
            message,
            meta,
            change.markers,
            absorbed=absorbed,
            reads=(EVERYTHING,) if after is None else read_set(reads_of(changes)),
            carries=bool(changes) and all(each.commit.carries for each in changes),
            writes=None if writes is None else writes - len(change.left_out),
            marked={} if writes in (None, 1) else change.marked,
        )
        self.commits.write(commit, change.actions())
        return id

    def _references(self, commit: str, objects: Collection[str]) -> list[str]:
        pool = self.commits.folder
        keys = [] if commit == NIL else [self.commits.key(commit)]
        for id in objects:
            keys += [data_key(pool, id), seek_index_key(pool, id)]
        return keys

    def _check_not_received(
        self, new: Sequence[DataObject], before: DatasetState | None, after: DatasetState, head: DatasetState
    ) -> None:
        """Raise DatasetConflict if the head had an object that one side has deleted since `before`.

        That is one of the new objects, or one that they replace. With the new objects, its records would be doubled, or
        deleted ones return.
        """
        start = NIL if before is None else before.branch.commit
        received = set() if start == head.branch.commit else self._added_since(start, head.branch.commit)
        lost, replaced = received & {each.id for each in new}, set[str]()
        if received and not lost:
            replaced = received & self._absorbed(start, after)
        if lost or replaced:
            known = set[str]()
            with suppress(DamagedLake):  # commits past the retention of an imported pool are gone
                known = self._added_since(NIL, start)
            lost, replaced = lost - known, replaced - known
        if replaced:
            replaced = self._replaced(start, after, replaced, received)
        if lost:
            raise DatasetConflict(
                f"{self.context.onto} already received {_listed(lost)}, and has deleted or rewritten them since: to "
                "add them again would duplicate records or restore deleted ones",
                kind="RewrittenThere",
            )
        if replaced:
            raise DatasetConflict(
                f"{self.context.onto} already received {_listed(replaced)}, which these changes have deleted or "
                "rewritten: to add what they became would duplicate records. Take one side with a merge strategy",
                kind="RewrittenHere",
            )

    def _replaced(self, start: str, after: DatasetState, ids: set[str], received: set[str]) -> set[str]:
        """Return those data objects that were deleted by a commit whose own data objects were not all received."""
        replaced: set[str] = set()
        for change in self._changes_since(start, after.branch.commit):
            if not received.issuperset(change.added):
                replaced |= ids.intersection(change.replaced)
        return replaced

    def _live_on(self, gone: set[str], before: DatasetState | None, after: DatasetState, head: DatasetState) -> bool:
        """Return whether the head may still hold the records of deleted data objects, in other data objects.

        It does not if commits since `before` deleted all of these objects, and the head has none of their heirs. Heirs
        that `after` has too do not count: the head has received the same deletion.
        """
        start = NIL if before is None else before.branch.commit
        changes = self._changes_since(start, head.branch.commit)
        deleted = {id for change in changes for id in change.replaced}
        return not gone <= deleted or bool(heirs(changes, gone, after.objects.keys()) & head.objects.keys())

    def _absorbed(self, start: str, after: DatasetState) -> set[str]:
        """Return the data objects that were added and deleted between a commit and a state."""
        return self._added_since(start, after.branch.commit) - after.objects.keys()

    def _added_since(self, start: str, tip: str) -> set[str]:
        """Return the data objects that the commits of a tip added or absorbed, without those that lead to `start`."""
        ids: set[str] = set()
        for change in self._changes_since(start, tip):
            ids.update(change.added, change.commit.absorbed)
        return ids

    def _changes_since(self, start: str, tip: str) -> Sequence[Change]:
        """Return the commits of a tip, the newest first, without those that lead to `start`."""
        if (start, tip) not in self._read:
            self._read[start, tip] = self._read_since(start, tip)
        return self._read[start, tip]

    def _read_since(self, start: str, tip: str) -> Sequence[Change]:
        others = {start}
        chain = self.commits.log(start)
        changes: dict[str, Change] = {}
        for change in self.commits.changes(tip):
            changes[change.commit.id] = change
            if change.commit.parent in others:
                break
            # In step, so that two long logs are read only as far as to their fork.
            if (other := next(chain, None)) is not None:
                others |= {other.id, other.parent}
            if others & changes.keys():
                break
        return list(takewhile(lambda change: change.commit.id not in others, changes.values()))

    def _recorded(
        self, marked: MarkedWrites, before: DatasetState | None, after: DatasetState, head: DatasetState
    ) -> Sequence[tuple[str, int]]:
        """Return those of the writes with a marker that the head has.

        A marker proves that its own write is there, never that those beside it are. One that went down since `before`
        was undone, so it proves nothing.
        """
        there: list[tuple[str, int]] = []
        others: MarkedWrites | None = None
        for application, version in marked:
            recorded, earlier = head.markers.get(application), _markers(before).get(application)
            if recorded is None or recorded.version < version or (earlier is not None and version <= earlier.version):
                continue
            if self.context.by_writes and recorded == after.markers.get(application):
                continue  # a copy, whose data objects may be lacking
            # A writer that is late does not know of a later version. Between branches, only the same one is the same.
            if recorded.version > version and self.context.session is None:
                if others is None:
                    others = marked_writes(self._changes_between(before, head), _markers(before), ()) or {}
                if (application, version) not in others:
                    continue
            there.append((application, version))
        return there

    def _check_not_undone(
        self, marked: Collection[tuple[str, int]], before: DatasetState | None, head: DatasetState
    ) -> None:
        """Raise DatasetConflict if the head recorded one of these writes since `before`, and undid it.

        It is the same write, so it must not come back by another way.
        """
        undone = {
            (application, version)
            for application, version in marked
            if application not in head.markers or head.markers[application].version < version
        }
        for change in self._changes_between(before, head) if undone else ():
            recorded = {(application, marker.version) for application, marker in (change.commit.markers or {}).items()}
            again = sorted(undone.intersection(recorded.union(change.commit.marked)))
            if again:
                raise DatasetConflict(
                    f"version {again[0][1]} of application {again[0][0]!r} was written there too, and undone: to have "
                    "it again, revert what undid it, or write it there again",
                    kind="ConcurrentTransaction",
                )

    def _check_reads(self, before: DatasetState | None, after: DatasetState, head: DatasetState) -> None:
        """Raise DatasetConflict if the difference read what the head has changed since `before`."""
        if (NIL if before is None else before.branch.commit) == head.branch.commit:
            return
        reads = reads_of(self._changes_between(before, after))
        if reads and touches(reads, self._changes_between(before, head), before, head, only_added=True):
            raise DatasetConflict(
                f"{self.context.onto} has added or removed records among those that these changes replace or delete",
                kind="ReadChanged",
            )

    def _changes_between(self, before: DatasetState | None, after: DatasetState) -> Sequence[Change]:
        return self._changes_since(NIL if before is None else before.branch.commit, after.branch.commit)

    def _check_same_pool(self, after: DatasetState, head: DatasetState) -> None:
        if after.config.id != head.config.id:
            raise DatasetConflict(
                f"{self.context.onto} has a different pool at this path, {head.config.name!r} ({head.config.id})",
                kind="OtherPool",
            )

    def _merged_config(
        self, before: DatasetState | None, after: DatasetState, head: DatasetState, removed: Mapping[str, DataObject]
    ) -> PoolConfig:
        """Return the merged configuration of both sides. Raises DatasetConflict where they sort by different keys."""
        if _sorting(after.config) == _sorting(head.config):
            return head.config
        if before is not None and _sorting(after.config) == _sorting(before.config):
            return head.config if not after.objects.keys() - before.objects.keys() else self._refuse_key(after, head)
        if (
            before is not None
            and _sorting(head.config) == _sorting(before.config)
            and head.objects.keys() <= removed.keys()
        ):
            return replace(after.config, id=head.config.id, name=head.config.name, ts=head.config.ts)
        return self._refuse_key(after, head)

    def _refuse_key(self, after: DatasetState, head: DatasetState) -> PoolConfig:
        ours, theirs = (f"{'.'.join(each.config.keys[0])}:{each.config.order}" for each in (after, head))
        raise DatasetConflict(f"it is sorted by {theirs} on {self.context.onto}, but by {ours} here", kind="OtherKey")

    def _merged_markers(
        self,
        before: DatasetState | None,
        after: DatasetState,
        head: DatasetState,
        left_out: Collection[tuple[str, int]],
    ) -> dict[str, Marker]:
        """Return the head's markers and those that `after` changed, but for those of what is left out.

        Raises DatasetConflict where both sides changed the same one.
        """
        old, merged = _markers(before), dict(head.markers)
        for application in old.keys() | after.markers.keys():
            earlier, later = old.get(application), after.markers.get(application)
            if earlier == later or (later is not None and (application, later.version) in left_out):
                continue
            there = head.markers.get(application)
            is_settled = there is not None and (application, there.version) in left_out
            if not is_settled and there != later and version_of(there) != version_of(earlier):
                raise DatasetConflict(
                    f"a write of the application {application!r} was also recorded on {self.context.onto}, beside "
                    "other changes: repeat those in a separate session, or give them identifiers (txn=)",
                    kind="ConcurrentTransaction",
                )
            if later is None:
                merged.pop(application, None)
            else:
                merged[application] = later
        return merged


@dataclass(frozen=True, slots=True)
class _Change:
    """The changes of a commit to the head."""

    removed: Sequence[DataObject]
    added: Sequence[DataObject]
    markers: Markers
    config: PoolConfig
    marked: MarkedWrites = field(default_factory=dict)
    """The writes with a marker that it contains."""
    left_out: Sequence[tuple[str, int]] = ()
    """The writes that the head has already, by application id and version."""

    def actions(self) -> list[CommitAction]:
        """Return the actions of the commit."""
        return [*(DeleteObject(each.id) for each in self.removed), *(AddObject(each) for each in self.added)]

    def is_made_by(self, actions: Sequence[CommitAction]) -> bool:
        """Return whether actions make the same change."""
        return sorted(map(_identity, actions)) == sorted(map(_identity, self.actions()))


def _added_and_removed(
    before: DatasetState | None, after: DatasetState
) -> tuple[dict[str, DataObject], dict[str, DataObject]]:
    earlier: Mapping[str, DataObject] = {} if before is None else before.objects
    added = {id: each for id, each in after.objects.items() if id not in earlier}
    return added, {id: each for id, each in earlier.items() if id not in after.objects}


def _markers(state: DatasetState | None) -> Markers:
    return {} if state is None else state.markers


def _writes(changes: Sequence[Change]) -> int | None:
    """Return how many writes commits are; None if that is unknown."""
    counts = [change.commit.writes for change in changes]
    return None if None in counts else sum(count for count in counts if count is not None)


def reads_of(changes: Iterable[Change]) -> list[str]:
    """Return what commits have read; see `read_set`."""
    return [read for change in changes for read in change.reads]


def touches(
    reads: Sequence[str],
    changes: Sequence[Change],
    before: DatasetState | None,
    after: DatasetState,
    *,
    only_added: bool = False,
    only_removed: bool = False,
) -> bool:
    """Return whether commits between two states added or removed records that may be among what was read.

    With `only_added`, only records that are there now count: those that are gone as well conflict by their objects.
    With `only_removed`, only those that are gone count.
    """
    objects = dict(after.objects if before is None else {**before.objects, **after.objects})
    objects |= {
        action.object.id: action.object
        for change in changes
        for action in change.actions
        if isinstance(action, AddObject)
    }
    earlier: Collection[str] = () if before is None else before.objects.keys()
    added = {id for change in changes if not change.commit.carries for id in change.added}.difference(earlier)
    if only_added:
        return has_read(reads, [objects[id] for id in added & after.objects.keys()], after.config)
    # A commit that carries records on, and has read none, is a compaction: it removes no record.
    removed = {id for change in changes if not change.commit.carries or change.reads for id in change.deleted}
    removed -= after.objects.keys()
    changed = removed if only_removed else added | removed
    return has_read(reads, [objects[id] for id in changed if id in objects], after.config)


def _identity(action: CommitAction) -> tuple[bool, str]:
    return (True, action.object.id) if isinstance(action, AddObject) else (False, action.id)


def _sorting(config: PoolConfig) -> tuple[object, ...]:
    return config.keys, config.order


def _encoded(number: int, action: Action) -> bytes:
    return ConfigCodec().encode(Entry(number, EPOCH, "", (action,)))


def _summary(removed: Collection[DataObject], added: Collection[DataObject]) -> dict[str, int]:
    return {
        "objects_added": len(added),
        "objects_removed": len(removed),
        "records_added": sum(each.count for each in added),
        "records_removed": sum(each.count for each in removed),
    }


def _listed(ids: Collection[str]) -> str:
    shown = ", ".join(sorted(ids)[:_SHOWN])
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"the data object{'s' * (len(ids) > 1)} {shown}{more}"


def _message(gone: Sequence[DataObject], onto: str) -> str:
    verb = "are" if len(gone) > 1 else "is"
    return f"these changes remove {_listed([each.id for each in gone])}, which {verb} no longer on {onto}"
