"""Object stores: bytes under sorted keys, with conditional put. `open_store` opens one by its location."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from lake_core.store.folder import FolderStore
from lake_core.store.local import LocalStore
from lake_core.store.memory import MemoryStore
from lake_core.store.object_store import ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.open import open_store, store_at

if TYPE_CHECKING:
    from lake_core.store.cloud.azure import AzureBlobStore
    from lake_core.store.cloud.gcs import GCSStore
    from lake_core.store.cloud.s3 import S3Store

__all__ = [
    "AzureBlobStore",
    "FolderStore",
    "GCSStore",
    "LocalStore",
    "MemoryStore",
    "ObjectBytes",
    "ObjectMeta",
    "ObjectStore",
    "S3Store",
    "open_store",
    "store_at",
]


_CLOUDS = {"AzureBlobStore": "azure", "GCSStore": "gcs", "S3Store": "s3"}


def __getattr__(name: str) -> object:
    # obstore is optional.
    if name in _CLOUDS:
        return getattr(import_module(f"lake_core.store.cloud.{_CLOUDS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
