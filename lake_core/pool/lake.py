"""A Zed lake, which holds pools by their names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.clock import AwareClock, system_clock
from lake_core.errors import AlreadyExists, NotFound
from lake_core.journal import Action, Add, Delete, State
from lake_core.journal.errors import KeyExists
from lake_core.pool.config import SEEK_STRIDE, THRESHOLD, BranchConfig, Order, PoolConfig
from lake_core.pool.config_journal import open_journal, read_state
from lake_core.pool.errors import (
    DamagedLake,
    InvalidPoolConfig,
    InvalidZng,
    LakeExists,
    NoSuchPool,
    NotALake,
    PoolExists,
    UnsupportedLakeVersion,
)
from lake_core.pool.ksuid import NIL, new_ksuid
from lake_core.pool.marker import TXN_RETENTION
from lake_core.pool.metadata import Record, named_record, nanoseconds_of, read_metadata, type_name
from lake_core.pool.pool import Pool
from lake_core.pool.types import INT64, STRING
from lake_core.pool.value import Value
from lake_core.pool.zng.writer import encode_values
from lake_core.store import ObjectStore, store_at

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

MAGIC_KEY = "lake.zng"
_MAGIC = "ZED LAKE"
_MAGIC_TYPE = "lake.LakeMagic"
_VERSION = 3


class PoolLake:
    """A Zed lake of version 3. `PoolLake.open` returns one."""

    def __init__(
        self, store: ObjectStore, clock: AwareClock = system_clock, *, txn_retention: timedelta | None = TXN_RETENTION
    ) -> None:
        self._store = store
        self._clock = clock
        self._txn_retention = txn_retention
        self._pools = open_journal(store, "pools", clock)

    def __repr__(self) -> str:
        return f"PoolLake({self._store!r})"

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, object] | None = None,
        read_only: bool = False,
        clock: AwareClock = system_clock,
        txn_retention: timedelta | None = TXN_RETENTION,
    ) -> PoolLake:
        """Return the lake at a location.

        Args:
            location: A path or URL as `open_store` takes it, or a store whose root is the lake.
            storage_options: Those of the store.
            read_only: Whether the caller only reads. Then the location is not probed for whether it can be written
                safely.
            clock: Returns the time, by which commits are dated.
            txn_retention: How long the transaction identifiers of `load(txn=...)` count. None means forever. Each
                commit holds those that count.

        Raises:
            NotALake: The location does not hold a Zed lake.
            UnsupportedLakeVersion: Its version is not 3.
        """
        store = store_at(location, storage_options, read_only=read_only)
        _check_magic(store)
        return cls(store, clock, txn_retention=txn_retention)

    @classmethod
    def create(
        cls,
        location: str | os.PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, object] | None = None,
        exist_ok: bool = False,
        clock: AwareClock = system_clock,
        txn_retention: timedelta | None = TXN_RETENTION,
    ) -> PoolLake:
        """Create a lake without pools, and return it.

        Args:
            location: A path or URL as `open_store` takes it, or a store whose root becomes the lake.
            storage_options: Those of the store.
            exist_ok: Whether to return a lake that already exists.
            clock: Returns the time, by which commits are dated.
            txn_retention: How long the transaction identifiers of `load(txn=...)` count. None means forever. Each
                commit holds those that count.

        Raises:
            LakeExists: The location already holds a lake.
            NotALake: There is an object `lake.zng` that does not belong to a Zed lake.
        """
        store = store_at(location, storage_options)
        if not store.exists(MAGIC_KEY):
            is_created = False
            for key, data in empty_lake().items():
                try:
                    store.put(key, data, if_absent=True)
                    is_created = key == MAGIC_KEY
                except AlreadyExists:
                    continue
            if is_created:
                return cls(store, clock, txn_retention=txn_retention)
        if not exist_ok:
            raise LakeExists(f"there is already a Zed lake at {store!r}; open it, or pass exist_ok=True")
        _check_magic(store)
        return cls(store, clock, txn_retention=txn_retention)

    def create_pool(
        self,
        name: str,
        *,
        key: str | Sequence[str] = "ts",
        order: Order = "desc",
        seek_stride: int = SEEK_STRIDE,
        threshold: int = THRESHOLD,
        id: str | None = None,
    ) -> Pool:
        """Create a pool with an empty branch `main`, and return it.

        Args:
            name: Its name.
            key: The key that its values are sorted by: a field, or a path of fields as `a.b` or a sequence of names.
            order: The direction of the sort.
            seek_stride: After how many bytes of keys a seek index gets its next entry.
            threshold: After how many bytes of values a load begins a new data object.
            id: Its id, which no pool of the lake has had before; by default a new one.

        Raises:
            InvalidPoolConfig: The configuration is not valid. Nothing was written.
            PoolExists: The lake already has a pool of that name.
            DamagedLake: The journal of pools cannot be read.
        """
        now = self._clock()
        path = tuple(key.split(".")) if isinstance(key, str) else tuple(key)
        config = PoolConfig(
            nanoseconds_of(now), _checked_name(name), id or new_ksuid(now), (path,), order, seek_stride, threshold
        )
        if name in read_state(self._pools):
            raise PoolExists(f"the lake already has a pool {name!r}; choose another name, or drop that pool first")
        branches = open_journal(self._store, f"{config.id}/branches", self._clock)
        branches.create()
        branches.append(lambda state: [] if "main" in state else [Add("main", BranchConfig(config.ts, "main", NIL))])
        try:
            self._pools.append(lambda state: [Add(name, config)])
        except KeyExists:
            raise PoolExists(
                f"the lake already has a pool {name!r}; choose another name, or drop that pool first"
            ) from None
        return self._pool(config)

    def rename_pool(self, name: str, new_name: str) -> None:
        """Rename a pool. Raises NoSuchPool, PoolExists, InvalidPoolConfig, DamagedLake."""
        _checked_name(new_name)

        def plan(state: State) -> list[Action]:
            return [Delete(name), Add(new_name, replace(_pool_of(state, name), name=new_name))]

        read_state(self._pools)
        try:
            self._pools.append(plan)
        except KeyExists:
            raise PoolExists(
                f"the lake already has a pool {new_name!r}; choose another name, or drop that pool first"
            ) from None

    def drop_pool(self, name: str) -> None:
        """Drop a pool, and delete all of its objects. Raises NoSuchPool, DamagedLake."""
        config = _pool_of(read_state(self._pools), name)

        def plan(state: State) -> list[Action]:
            if _pool_of(state, name).id != config.id:
                raise NoSuchPool(
                    f"another writer dropped the pool {name!r} and created a new one of that name; "
                    "drop again to drop the new one"
                )
            return [Delete(name)]

        self._pools.append(plan)
        self._store.delete([each.key for each in self._store.list(f"{config.id}/")])

    def pools(self) -> list[PoolConfig]:
        """Return the configurations of the pools in the order of their names. Raises DamagedLake."""
        return list(read_state(self._pools).values())

    def pool(self, name: str) -> Pool:
        """Return a pool. Raises NoSuchPool, DamagedLake."""
        return self._pool(_pool_of(read_state(self._pools), name))

    def _pool(self, config: PoolConfig) -> Pool:
        return Pool(self._store, config, self._clock, txn_retention=self._txn_retention)


def empty_lake() -> dict[str, bytes]:
    """Return the objects of a lake without pools by their keys. The last one makes it a lake."""
    # Version 1.6 of `zed` cannot open a lake without the second journal.
    journals = {
        f"{folder}/{name}": data
        for folder in ("pools", "index_rules")
        for name, data in (("TAIL", b"1 0"), ("HEAD", b"0"))
    }
    magic = {"magic": Value.of(STRING, _MAGIC), "version": Value.of(INT64, _VERSION)}
    return {**journals, MAGIC_KEY: encode_values([named_record(_MAGIC_TYPE, magic)])}


def _pool_of(state: State, name: str) -> PoolConfig:
    config = state.get(name)
    if not isinstance(config, PoolConfig):
        raise NoSuchPool(f"the lake has no pool {name!r}; its pools are {', '.join(state) or 'none'}")
    return config


def _checked_name(name: str) -> str:
    if not name or "/" in name or "@" in name or not name.isprintable():
        raise InvalidPoolConfig(f"a pool cannot be named {name!r}; use printable characters other than '/' and '@'")
    return name


def _check_magic(store: ObjectStore) -> None:
    try:
        values = read_metadata(store, MAGIC_KEY)
    except NotFound:
        raise NotALake(
            f"there is no Zed lake at {store!r}, as {MAGIC_KEY} does not exist; create one with PoolLake.create"
        ) from None
    except DamagedLake as error:
        raise NotALake(f"there is no Zed lake at {store!r}: {error}") from None
    try:
        if len(values) != 1 or type_name(values[0]) != _MAGIC_TYPE or Record(values[0]).text("magic") != _MAGIC:
            raise NotALake(f"there is no Zed lake at {store!r}: {MAGIC_KEY} does not contain {_MAGIC!r}")
        version = Record(values[0]).integer("version")
    except InvalidZng as error:
        raise NotALake(f"there is no Zed lake at {store!r}: {MAGIC_KEY} is damaged: {error}") from None
    if version != _VERSION:
        raise UnsupportedLakeVersion(
            f"the Zed lake at {store!r} has version {version}, but only version {_VERSION} is supported"
        )
