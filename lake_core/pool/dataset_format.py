"""The dataset format of pools in a lake.

It defines the classes of their objects, their versions, which objects a state needs, and how differences are applied.

The folder of a dataset is a Zed lake with one pool. The lake publishes the branch main of the pool. Version n of the
dataset is entry n + 1 of the journal of the pool's branches: entries count from 1, and versions from 0.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from io import BufferedReader
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any, Final

from lake_core.clock import system_clock
from lake_core.dataset import (
    NOT_EMPTY,
    Applied,
    ApplyContext,
    DatasetComparison,
    DatasetConflict,
    DatasetFormat,
    DatasetStore,
    KeyClass,
    ReadCheck,
    SizedKeys,
)
from lake_core.journal.errors import CorruptEntry
from lake_core.journal.pointer import read_head
from lake_core.pool.apply_difference import PoolApplication, reads_of, touches
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.comparison import compare
from lake_core.pool.config import SEEK_STRIDE, THRESHOLD, Order
from lake_core.pool.config_journal import ConfigCodec, branch_of, open_journal, read_state
from lake_core.pool.contents_cache import ContentsCache
from lake_core.pool.data_object import data_key, seek_index_key
from lake_core.pool.dataset_state import (
    MAIN,
    POOLS,
    DatasetState,
    branches_folder,
    dataset_pool,
    entry_key,
    folder_name,
    head_key,
    last_entry,
    main_of,
    new_pool_id,
    tail_key,
)
from lake_core.pool.errors import InvalidZng, NoSuchPool, OwnedByLake, PoolExists
from lake_core.pool.ksuid import NIL
from lake_core.pool.lake import MAGIC_KEY, PoolLake
from lake_core.pool.marked_writes_of import marked_writes
from lake_core.pool.marker import rising
from lake_core.pool.pool import Pool
from lake_core.pool.read_set import EVERYTHING, read_set
from lake_core.pool.zng.reader import read_payloads
from lake_core.store.object_file import ObjectFile

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from lake_core.pool.commit_store import Change
    from lake_core.pool.inspection import PoolInspection
    from lake_core.store import ObjectStore
    from lake_core.txn import Txn

_KSUID: Final = "[0-9A-Za-z]{27}"
_OBJECT: Final = re.compile(rf"{_KSUID}/(?:data/{_KSUID}(?:-seek)?\.zng|commits/{_KSUID}(?:\.snap)?\.zng)")
_OF_OTHERS: Final = re.compile(rf"{_KSUID}/(?:data/{_KSUID}\.vng|index/.+)|index_rules/[1-9][0-9]*\.zng")
"""Objects that `zed` makes and this package does not read."""
_BRANCH_ENTRY: Final = re.compile(rf"({_KSUID})/branches/([1-9][0-9]*)\.zng")
_POOL_ENTRY: Final = re.compile(r"pools/([1-9][0-9]*)\.zng")
_CONSTANT: Final = re.compile(
    rf"{re.escape(MAGIC_KEY)}|pools/1\.zng|(?:pools|{_KSUID}/branches)/TAIL|index_rules/(?:HEAD|TAIL)"
)
_POINTER: Final = re.compile(rf"(?:pools|{_KSUID}/branches)/HEAD|pools/[1-9][0-9]*\.zng")
_SNAPSHOT_EVERY: Final = 20
"""How many versions are between cached snapshots of commits. At most that many commits are read to open a pool."""
_DERIVED: Final = re.compile(rf"(?:pools|{_KSUID}/branches)/snap\.zng")


class PoolFormat(DatasetFormat):
    """Pools as datasets of a lake."""

    format = "pool"
    description = "a Zed lake with one pool"

    def __init__(self) -> None:
        self._cache = ContentsCache()
        self._pool_ids: dict[str, str] = {}

    # Objects

    def key_class(self, key: str) -> KeyClass | None:
        """Return the class of an object by its key, or None if a pool has no such objects."""
        if _OBJECT.fullmatch(key) or _OF_OTHERS.fullmatch(key):
            return KeyClass.UNIQUE
        if _BRANCH_ENTRY.fullmatch(key) or _CONSTANT.fullmatch(key):
            return KeyClass.LOG
        if _POINTER.fullmatch(key):
            return KeyClass.POINTER
        return KeyClass.DERIVED if _DERIVED.fullmatch(key) else None

    def validate_entry(self, store: DatasetStore, key: str, data: bytes) -> None:
        """Raise OwnedByLake for branches other than main, and for changes to the pools of the Zed lake.

        The pool cannot be renamed or dropped, and a second one cannot be created.
        """
        pool, branch = _POOL_ENTRY.fullmatch(key), _BRANCH_ENTRY.fullmatch(key)
        if pool is not None and int(pool[1]) > 1:
            raise OwnedByLake(
                "a dataset in a lake holds one pool, which cannot be renamed or dropped: "
                "to create another pool, call session.create_pool"
            )
        if branch is not None:
            try:
                names = {action.key for action in ConfigCodec().decode(int(branch[2]), data).actions}
            except CorruptEntry as error:
                raise OwnedByLake(f"{key} is not an entry of a journal of branches: {error}") from None
            if names != {MAIN}:
                raise OwnedByLake(
                    "a pool in a lake has only the branch main: branches and tags belong to the lake and cover all of "
                    "its datasets (lake.create_branch, lake.create_tag)"
                )

    def exists(self, store: ObjectStore) -> bool:
        """Return whether the store holds a Zed lake."""
        return store.exists(MAGIC_KEY)

    def open(self, store: ObjectStore, *, clock: Callable[[], dt.datetime] | None, **options: Any) -> Pool:
        """Return the pool of a dataset, or of a Zed lake outside of a lake."""
        config = dataset_pool(store)
        return Pool(
            store,
            config,
            clock or system_clock,
            main_of(store, config) if store.versioned else None,
            **options,
        )

    def head(
        self, store: ObjectStore, count: int, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """Return the first records. A value that is no record is one of the field `this`."""
        values = self.open(store, clock=None).scan(where=where, columns=columns).records()
        records = [value if isinstance(value, Mapping) else {"this": value} for value in islice(values, count)]
        return list(dict.fromkeys(name for record in records for name in record)), records

    def inspect(self, store: ObjectStore) -> PoolInspection:
        """Return what a person can look at in the pool at its newest commit."""
        from lake_core.pool.inspection import PoolInspection

        return PoolInspection(store, self.open(store, clock=None), self._read(store))

    def instead_of_sql(self, path: str) -> str:
        """Name the commands that print the records, and that make a table of them."""
        quoted = shlex.quote(path)
        return (
            f"{path} is a pool, which SQL does not read: `lake pool scan {quoted}` prints its records, and "
            f"`lake pool export {quoted} --delta TABLE` makes a table of them"
        )

    def find(self, store: ObjectStore, *, clock: Callable[[], dt.datetime] | None, **options: Any) -> Pool | None:
        """Return the pool of a folder, which has the folder's name. The Zed lake may hold others."""
        if not self.exists(store):
            return None
        lake, name = PoolLake.open(store, clock=clock or system_clock), folder_name(store)
        return lake.pool(name, **options) if any(config.name == name for config in lake.pools()) else None

    def create(
        self,
        store: ObjectStore,
        *args: Any,
        clock: Callable[[], dt.datetime] | None,
        key: str | Sequence[str] = "ts",
        order: Order = "desc",
        seek_stride: int = SEEK_STRIDE,
        threshold: int = THRESHOLD,
        exist_ok: bool = False,
        **options: Any,
    ) -> Pool:
        """Create a pool as `PoolLake.create_pool` does, with the name of the dataset's folder."""
        if exist_ok and store.versioned and self.exists(store):
            return self.open(store, clock=clock)
        lake = PoolLake.create(store, clock=clock or system_clock, exist_ok=exist_ok and not store.versioned)
        name = folder_name(store)
        try:
            return lake.create_pool(
                name,
                key=key,
                order=order,
                seek_stride=seek_stride,
                threshold=threshold,
                id=new_pool_id(store) if store.versioned else None,
            )
        except PoolExists:
            if store.versioned or not exist_ok:
                raise
            return lake.pool(name)

    def import_keys(self, store: ObjectStore) -> Sequence[str]:
        """List the journals of a Zed lake with one pool. Raises NoSuchPool for one with several, or none."""
        lake = PoolLake.open(store)
        pools = lake.pools()
        if len(pools) != 1:
            names = ", ".join(repr(pool.name) for pool in pools) or "none"
            raise NoSuchPool(
                f"a dataset must be a Zed lake with one pool, but the one at {store.url()} has {names}: "
                "move each pool into its own Zed lake"
            )
        lake.pool(pools[0].name).tip()
        folders = ("index_rules/", "pools/", f"{branches_folder(pools[0].id)}/")
        keys = [MAGIC_KEY, *(meta.key for folder in folders for meta in store.list(folder))]
        purged = {
            folder
            for folder in folders
            if store.exists(f"{folder}TAIL") and not store.get(f"{folder}TAIL").startswith(b"1 ")
        }
        fixed = (KeyClass.LOG, KeyClass.POINTER)
        return [
            key for key in keys if self.key_class(key) in fixed or (key.endswith("/snap.zng") and key[:-8] in purged)
        ]

    # Versions

    def version(self, store: ObjectStore) -> int | None:
        """Return the version: one less than the number of the newest entry of the journal of branches."""
        if not self.exists(store):
            return None
        number = last_entry(store, branches_folder(self._pool_id(store)))
        return number - 1 if number else None

    def _pool_id(self, store: ObjectStore) -> str:
        """Return the id of a dataset's pool.

        If the store is the dataset's folder, and has the pool of the lake's states, return that pool's id.
        """
        url = store.url()
        if store.versioned:
            self._pool_ids[url] = dataset_pool(store).id
            return self._pool_ids[url]
        known = self._pool_ids.get(url)
        return known if known is not None and store.exists(head_key(branches_folder(known))) else dataset_pool(store).id

    def log_keys(self, store: ObjectStore, version: int) -> Sequence[str]:
        """List the entry of the journal of branches, for the first version after all objects that never change."""
        folder = branches_folder(self._pool_id(store) if self.exists(store) else new_pool_id(store))
        entry = entry_key(folder, version + 1)
        if version:
            return [entry]
        constants = [
            "index_rules/TAIL",
            "index_rules/HEAD",
            tail_key(POOLS),
            entry_key(POOLS, 1),
            tail_key(folder),
            MAGIC_KEY,
        ]
        return [*(key for key in constants if store.exists(key)), entry]

    def pointer_keys(self, store: ObjectStore) -> Sequence[str]:
        """List the later entries of the journal of pools, and HEAD of both journals."""
        if not self.exists(store):
            return []
        entries = [
            key for number in range(2, last_entry(store, POOLS) + 1) if store.exists(key := entry_key(POOLS, number))
        ]
        heads = [head_key(POOLS), head_key(branches_folder(self._pool_id(store)))]
        return [*entries, *(key for key in heads if store.exists(key))]

    def is_behind(self, pointer: str, store: ObjectStore, other: ObjectStore) -> bool:
        """Compare the numbers of entries. A Zed lake whose pool is gone is never ahead."""
        if _POOL_ENTRY.fullmatch(pointer):
            return False
        older, newer = (read_head(side, pointer).value or 0 for side in (store, other))
        try:
            return older < newer and (pointer != head_key(POOLS) or dataset_pool(other).id == dataset_pool(store).id)
        except NoSuchPool:
            return False

    def apply(
        self, base: ObjectStore | None, incoming: ObjectStore | None, target: ObjectStore | None, context: ApplyContext
    ) -> Applied:
        """Apply the commits between two states of a pool to a third state.

        Raises DatasetConflict.
        """
        before, after, head = (None if store is None else self._read(store) for store in (base, incoming, target))
        newest = after or head
        if newest is None:
            return Applied({}, None, "DROP")
        application = PoolApplication(CommitStore(context.data_root, newest.config.id), context)
        if after is None:
            return Applied({}, None, "DROP") if head is None else application.drop(before, head)
        if head is None:
            if before is not None:
                raise DatasetConflict(f"it was dropped on {context.onto} in the meantime", kind="Dropped")
            return application.create(after)
        if context.recreated or context.replaces:
            return application.replace(after, head)
        return application.change(before, after, head)

    def read_check(self, before: ObjectStore | None, after: ObjectStore | None) -> ReadCheck | None:
        """Return the check of the reads that the commits between two states recorded. A drop has read everything."""
        changes = self._changes(before, after)
        reads = read_set([EVERYTHING] if after is None else reads_of(changes))
        if not reads:
            return None

        only_deletes = after is not None and all(change.commit.carries for change in changes)

        def check(before: ObjectStore | None, after: ObjectStore | None, *, comes: bool) -> bool:
            # Without records that were added, there would only be less to delete.
            only_removed = only_deletes and not comes
            state = after or before
            if state is None or before is None or after is None:
                is_added = before is None and only_removed
                return state is not None and not is_added and bool(self._read(state).objects)
            others = self._changes(before, after)
            return touches(reads, others, self._read(before), self._read(after), only_removed=only_removed)

        return check

    def rearranges(self, before: ObjectStore | None, after: ObjectStore | None) -> bool:
        """Return whether the commits between two states are compactions."""
        changes = () if before is None else self._changes(before, after)
        return bool(changes) and all(change.commit.carries and not change.reads for change in changes)

    def raised_markers(self, before: ObjectStore | None, after: ObjectStore | None) -> AbstractSet[Txn]:
        """Return the markers of the commits that lead from one state to another, as far as their versions rose."""
        if after is None:
            return frozenset()
        old = {} if before is None else self._read(before).markers
        raised = rising(old, self._read(after).markers)
        final = {(application, marker.version) for application, marker in raised.items()}
        return final.union(marked_writes(self._changes(before, after), old, ()) or ()) if final else final

    def _changes(self, before: ObjectStore | None, after: ObjectStore | None) -> Sequence[Change]:
        """Return the commits that lead from one state to another, the newest first."""
        if after is None:
            return ()
        state = self._read(after)
        start = NIL if before is None else self._read(before).branch.commit
        commits = CommitStore(after.data_root, state.config.id)
        return list(takewhile(lambda change: change.commit.id != start, commits.changes(state.branch.commit)))

    def compare(
        self, before: ObjectStore | None, after: ObjectStore | None, *, sample: int, most_rows: int
    ) -> DatasetComparison:
        """Compare the records of the data objects that differ."""
        store = after or before
        assert store is not None
        old, new = (None if side is None else self._read(side) for side in (before, after))
        return compare(old, new, store.data_root, sample=sample, most_rows=most_rows)

    def _read(self, store: ObjectStore) -> DatasetState:
        return DatasetState.read(store, self._cache)

    # Garbage

    def reachable(self, state: ObjectStore, since: int | None) -> SizedKeys:
        """List the commits of the whole history, and the data objects of the versions.

        The history is reachable, because plain readers walk it. So are all objects of branches and pools that other
        clients made in the folder.
        """
        return SizedKeys(self._reached(state, since))

    def _reached(self, state: ObjectStore, since: int | None) -> Iterator[tuple[str, int | None]]:
        pool = dataset_pool(state)
        commits = CommitStore(state, pool.id)
        journal = open_journal(state, branches_folder(pool.id), system_clock)
        branches = read_state(journal)
        first = branches if since is None else journal.state_at(min(since + 1, branches.number))
        tips = {branch_of(branches, MAIN).commit: branch_of(first, MAIN).commit}
        if not state.versioned:
            tips |= {branch.commit: branch.commit for branch in branches.values() if branch.name != MAIN}
            for folder in state.list_folders():
                if re.fullmatch(_KSUID, folder) and folder != pool.id:
                    metas = state.list(f"{folder}/")
                    yield from ((meta.key, None) for meta in metas if self.key_class(meta.key) is KeyClass.UNIQUE)
        for tip in tips:
            yield from ((key, NOT_EMPTY) for key in _commit_keys(state, commits, tip))
        objects = {id: each for tip, oldest in tips.items() for id, each in commits.objects_since(tip, oldest).items()}
        for id, each in objects.items():
            yield data_key(pool.id, id), each.size
            yield seek_index_key(pool.id, id), NOT_EMPTY

    def content_problem(self, store: ObjectStore, key: str) -> str | None:
        """Decode the frames of values and types of an object that this package reads."""
        if not _OBJECT.fullmatch(key):
            return None
        try:
            with BufferedReader(ObjectFile(store, key)) as file:
                for _ in read_payloads(file):
                    pass
        except InvalidZng as error:
            return str(error)
        return None

    def write_derived(
        self, state: ObjectStore, derived_root: ObjectStore, now: dt.datetime, *, due: bool = False
    ) -> None:
        """Cache the data objects as of the newest commit, at an interval of versions."""
        version = self.version(state)
        if due or (version and version % _SNAPSHOT_EVERY == 0):
            newest = self._read(state)
            CommitStore(derived_root, newest.config.id).write_snapshot(newest.branch.commit)

    def collectable(self, key: str) -> bool:
        """Return whether an object may be deleted once no state reaches it."""
        return _OBJECT.fullmatch(key) is not None


def _commit_keys(state: ObjectStore, commits: CommitStore, tip: str) -> Iterator[str]:
    """Yield the keys of a commit and those before it, and of the newest cached snapshot only.

    Each key comes before its commit is read.
    """
    is_cached = False
    for id in chain([tip], (commit.parent for commit in commits.log(tip))):
        if id != NIL:
            yield commits.key(id)
            if not is_cached and state.exists(commits.snapshot_key(id)):
                is_cached = True
                yield commits.snapshot_key(id)
