"""Folders of one pool: Zed lakes whose only pool has the folder's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.pool.errors import NoSuchPool, NotALake, PoolExists
from lake_core.pool.lake import MAGIC_KEY, PoolLake
from lake_core.store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.pool.pool import Pool


def find_pool(location: str, *, storage_options: Mapping[str, object] | None = None) -> Pool | None:
    """Return the pool of a folder, or None if there is none.

    Raises NotALake if its Zed lake is damaged, UnsupportedLakeVersion.
    """
    if not open_store(location, storage_options=storage_options).exists(MAGIC_KEY):
        return None
    lake = PoolLake.open(location, storage_options=storage_options)
    name = _name(location)
    return lake.pool(name) if any(config.name == name for config in lake.pools()) else None


def open_pool(location: str, *, storage_options: Mapping[str, object] | None = None) -> Pool:
    """Return the pool of a folder. Raises NoSuchPool, UnsupportedLakeVersion."""
    try:
        return PoolLake.open(location, storage_options=storage_options).pool(_name(location))
    except NotALake as error:
        raise NoSuchPool(str(error)) from None


def create_pool(location: str, *, storage_options: Mapping[str, object] | None = None, **options: Any) -> Pool:
    """Create the pool of a folder, or open it if it exists.

    `options`: those of `PoolLake.create_pool`.
    """
    lake = PoolLake.create(location, storage_options=storage_options, exist_ok=True)
    try:
        return lake.create_pool(_name(location), **options)
    except PoolExists:
        return lake.pool(_name(location))


def _name(location: str) -> str:
    return location.rstrip("/").rpartition("/")[2]
