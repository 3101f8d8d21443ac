"""The pool of a dataset in one state of a lake.

The dataset's folder is a Zed lake, and the lake publishes only this pool of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from lake_core.clock import system_clock
from lake_core.journal import ZED_NAMING, Delete, State, StateRecord
from lake_core.journal.errors import CorruptEntry
from lake_core.journal.pointer import read_head
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.config_journal import ConfigCodec, branch_of, open_journal, read_state
from lake_core.pool.errors import DamagedLake, NoSuchPool
from lake_core.pool.ksuid import SIZE, format_ksuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake_core.pool.config import BranchConfig, PoolConfig
    from lake_core.pool.contents_cache import ContentsCache
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.marker import Markers
    from lake_core.store import ObjectStore

MAIN = "main"
POOLS = "pools"
_CACHED = 16


@dataclass(frozen=True, slots=True)
class DatasetState:
    """The branch main of a pool.

    Attributes:
        config: The pool.
        pool_entries: How many entries the journal of pools has.
        branch: The branch.
        branch_entries: How many entries the journal of the pool's branches has.
        objects: The data objects by their ids.
        markers: The last version of each application that wrote with a marker.
    """

    config: PoolConfig
    pool_entries: int
    branch: BranchConfig
    branch_entries: int
    objects: Mapping[str, DataObject]
    markers: Markers

    @classmethod
    def read(cls, store: ObjectStore, cache: ContentsCache) -> DatasetState:
        """Return the state of the Zed lake in a store.

        Args:
            store: The store.
            cache: Contents that were read before.

        Raises:
            NoSuchPool: It has no pool.
            NoSuchBranch: The pool has no branch main.
            DamagedLake: It cannot be read.
        """
        config = dataset_pool(store)
        branches = main_of(store, config)
        branch = branch_of(branches, MAIN)
        contents = cache.read(CommitStore(store.data_root, config.id), branch.commit)
        return cls(config, last_entry(store, POOLS), branch, branches.number, contents.objects, contents.markers)


def dataset_pool(store: ObjectStore) -> PoolConfig:
    """Return the pool of a dataset. That is the oldest one: other clients have created the others in the folder later.

    Raises NoSuchPool, DamagedLake.
    """
    if not store.versioned:
        return _oldest(store, read_state(open_journal(store, POOLS, system_clock)).values())
    # In a state of a lake, looking up an entry is free; reading one may not be.
    last = last_entry(store, POOLS)
    etags = tuple(store.head(entry_key(POOLS, number)).etag for number in range(1, last + 1))
    return _pool_of_entries(_PoolsJournal(store, etags))


@dataclass(frozen=True, slots=True)
class _PoolsJournal:
    """The journal of pools in a state of a lake. Those with the same entries are equal."""

    store: ObjectStore = field(compare=False)
    etags: tuple[str, ...]


@lru_cache(_CACHED)
def _pool_of_entries(journal: _PoolsJournal) -> PoolConfig:
    return _oldest(journal.store, read_state(open_journal(journal.store, POOLS, system_clock)).values())


def _oldest(store: ObjectStore, pools: Iterable[PoolConfig]) -> PoolConfig:
    try:
        return min(pools, key=lambda pool: (pool.ts, pool.id))
    except ValueError:
        raise NoSuchPool(f"the Zed lake at {store!r} has no pool; create one first") from None


def main_of(store: ObjectStore, pool: PoolConfig) -> State:
    """Return the newest state of a pool's branches; in a lake, only of the branch main. Raises DamagedLake."""
    folder = branches_folder(pool.id)
    last = last_entry(store, folder) if store.versioned else 0
    # Each entry holds the whole state of its branches.
    for number in range(last, 0, -1):
        key = entry_key(folder, number)
        if not store.exists(key):
            break
        try:
            entry = ConfigCodec().decode(number, store.get(key))
        except CorruptEntry as error:
            raise DamagedLake(f"{key} cannot be read: {error}; restore it from a backup", key) from None
        for action in reversed(entry.actions):
            if action.key == MAIN:
                records = {} if isinstance(action, Delete) else {MAIN: StateRecord(action.value, number, entry.time)}
                return State.of(last, entry.time, records)
    return read_state(open_journal(store, folder, system_clock))


def folder_name(store: ObjectStore) -> str:
    """Return the name of a store's folder, which is the name of a pool that is created there."""
    return store.url().rstrip("/").rpartition("/")[2]


def new_pool_id(store: ObjectStore) -> str:
    """Return the id of a pool that is created in a store's folder.

    It is the same in all sessions that create the pool, so that their data objects are in one folder.
    """
    return format_ksuid(bytes(4) + sha256(f"lake pool {folder_name(store)}".encode()).digest()[: SIZE - 4])


def branches_folder(pool_id: str) -> str:
    """Return the folder of the journal of a pool's branches."""
    return f"{pool_id}/branches"


def entry_key(folder: str, number: int) -> str:
    """Return the key of a journal's entry."""
    return f"{folder}/{ZED_NAMING.entry(number)}"


def head_key(folder: str) -> str:
    """Return the key of a journal's HEAD."""
    return f"{folder}/{ZED_NAMING.head}"


def tail_key(folder: str) -> str:
    """Return the key of a journal's TAIL."""
    return f"{folder}/{ZED_NAMING.tail}"


def last_entry(store: ObjectStore, folder: str) -> int:
    """Return the number of a journal's last entry; 0 where there is none."""
    if store.versioned and store.exists(entry_key(folder, 1)):
        low, high = 1, 2
        while store.exists(entry_key(folder, high)):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if store.exists(entry_key(folder, middle)) else (low, middle)
        return low
    number = read_head(store, head_key(folder)).value or 0
    # HEAD may be behind the entries, and ahead of them in a state with a forked log.
    while number and not store.exists(entry_key(folder, number)):
        number -= 1
    while store.exists(entry_key(folder, number + 1)):
        number += 1
    return number
