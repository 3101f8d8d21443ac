"""A Zed lake: pools by their names."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lake_core.clock import AwareClock, system_clock
from lake_core.errors import NotFound
from lake_core.pool.config import PoolConfig
from lake_core.pool.config_journal import open_journal, read_state
from lake_core.pool.errors import DamagedLake, InvalidZng, NoSuchPool, NotALake, UnsupportedLakeVersion
from lake_core.pool.metadata import Record, read_metadata, type_name
from lake_core.pool.pool import Pool
from lake_core.store import ObjectStore, open_store

MAGIC_KEY = "lake.zng"
_MAGIC = "ZED LAKE"
_VERSION = 3


class PoolLake:
    """A Zed lake of version 3. `PoolLake.open` returns one."""

    def __init__(self, store: ObjectStore, clock: AwareClock = system_clock) -> None:
        self._store = store
        self._clock = clock
        self._pools = open_journal(store, "pools", clock)

    def __repr__(self) -> str:
        return f"PoolLake({self._store!r})"

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, object] | None = None,
        clock: AwareClock = system_clock,
    ) -> PoolLake:
        """Return the lake at a location.

        Args:
            location: A path or URL as `open_store` takes it, or a store whose root is the lake.
            storage_options: Those of the store.
            clock: Tells the time of what is written.

        Raises:
            NotALake: No Zed lake stands there.
            UnsupportedLakeVersion: Its version is not 3.
        """
        store = location if isinstance(location, ObjectStore) else open_store(location, storage_options=storage_options)
        _check_magic(store)
        return cls(store, clock)

    def pools(self) -> list[PoolConfig]:
        """Return the configurations of the pools in the order of their names. Raises DamagedLake."""
        return list(read_state(self._pools).values())

    def pool(self, name: str) -> Pool:
        """Return a pool. Raises NoSuchPool, DamagedLake."""
        state = read_state(self._pools)
        config = state.get(name)
        if not isinstance(config, PoolConfig):
            raise NoSuchPool(f"the lake has no pool {name!r}; its pools are {', '.join(state) or 'none'}")
        return Pool(self._store, config, self._clock)


def _check_magic(store: ObjectStore) -> None:
    try:
        values = read_metadata(store, MAGIC_KEY)
    except NotFound:
        raise NotALake(f"no Zed lake stands at {store!r}: it has no {MAGIC_KEY}; create one with PoolLake.create") from None
    except DamagedLake as error:
        raise NotALake(f"no Zed lake stands at {store!r}: {error}") from None
    try:
        if len(values) != 1 or type_name(values[0]) != "lake.LakeMagic" or Record(values[0]).text("magic") != _MAGIC:
            raise NotALake(f"no Zed lake stands at {store!r}: {MAGIC_KEY} does not say {_MAGIC!r}")
        version = Record(values[0]).integer("version")
    except InvalidZng as error:
        raise NotALake(f"no Zed lake stands at {store!r}: {MAGIC_KEY} is damaged: {error}") from None
    if version != _VERSION:
        raise UnsupportedLakeVersion(f"the lake at {store!r} has the version {version}, and only {_VERSION} can be read")
