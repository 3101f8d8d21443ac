"""Copies of Zarr groups into repositories, with attributes, fill values, names of dimensions and codecs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import zarr
from xarray.backends.zarr import FillValueCoder
from zarr.core.buffer.core import default_buffer_prototype
from zarr.core.sync import sync

from lake_core.icechunk.errors import InvalidArrayMetadata
from lake_core.icechunk.store import IcechunkStore
from lake_core.icechunk.zarr_import import import_keys

if TYPE_CHECKING:
    from lake_core.icechunk.session import Session

_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute in which xarray keeps the names of dimensions in Zarr v2."""


def copy_group(group: zarr.Group, session: Session) -> None:
    """Replace all nodes of a session by a group and what is in it, at any depth.

    Nodes of Zarr v3 are copied byte by byte. Arrays of v2 are written anew, compressed as Zarr does it by default,
    because v3 does not have all codecs of v2.

    Raises InvalidArrayMetadata for arrays that Zarr v3 cannot hold.
    """
    if group.metadata.zarr_format == 2:
        _copy_v2(group, session)
        return
    store, prefix = group.store, f"{group.path}/" if group.path else ""
    keys = sync(_list(store, prefix))
    session.store.sync_clear()
    import_keys([key[len(prefix) :] for key in keys], lambda some: sync(_read(store, prefix, some)), session)


async def _list(store: Any, prefix: str) -> list[str]:
    return sorted([key async for key in store.list_prefix(prefix)])


async def _read(store: Any, prefix: str, keys: list[str]) -> list[bytes]:
    prototype = default_buffer_prototype()
    buffers = await asyncio.gather(*(store.get(prefix + key, prototype) for key in keys))
    missing = [key for key, buffer in zip(keys, buffers, strict=True) if buffer is None]
    if missing:
        raise InvalidArrayMetadata(f"{missing[0]!r} was deleted while its group was copied: copy it again")
    return [buffer.to_bytes() for buffer in buffers]


def _copy_v2(group: zarr.Group, session: Session) -> None:
    for path, node in group.members(max_depth=None):
        if isinstance(node, zarr.Array) and node.dtype.fields is not None and not node.dtype.isnative:
            # Zarr 3.1 stores the bytes of such records in the wrong order.
            raise InvalidArrayMetadata(f"the array {path!r} has records of another byte order: convert them first")
    store = IcechunkStore(session)
    target = zarr.open_group(store, mode="w", attributes=dict(group.attrs))
    for path, node in group.members(max_depth=None):
        if isinstance(node, zarr.Group):
            target.create_group(path, attributes=dict(node.attrs))
            continue
        attributes = dict(node.attrs)
        names: Any = attributes.pop(_DIMENSIONS, None)
        if names is not None and node.fill_value is not None and "_FillValue" not in attributes:
            # Xarray reads the fill value of v2 as a missing value, and that of v3 as any other.
            attributes["_FillValue"] = FillValueCoder.encode(node.fill_value, node.dtype)
        zarr.from_array(
            store,
            data=node,
            name=path,
            chunks=node.chunks,
            shards=None,
            filters="auto",
            compressors="auto",
            serializer="auto",
            fill_value=node.fill_value,
            attributes=attributes,
            dimension_names=names,
            zarr_format=3,
        )
