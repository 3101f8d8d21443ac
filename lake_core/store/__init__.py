"""Object stores: bytes under sorted keys, with conditional put. `open_store` opens one by its location."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.store.folder import FolderStore
from lake_core.store.local import LocalStore
from lake_core.store.memory import MemoryStore
from lake_core.store.object_store import ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.open import open_store, store_at

if TYPE_CHECKING:
    from lake_core.store.cloud.s3 import S3Store

__all__ = [
    "FolderStore",
    "LocalStore",
    "MemoryStore",
    "ObjectBytes",
    "ObjectMeta",
    "ObjectStore",
    "S3Store",
    "open_store",
    "store_at",
]


def __getattr__(name: str) -> object:
    # s3fs is optional and slow to import.
    if name == "S3Store":
        from lake_core.store.cloud.s3 import S3Store

        return S3Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
