"""Imports of plain Zarr v3 hierarchies into repositories.

Chunks are copied. A virtual reference would hold the absolute URL of an object that other commits own and that moves
with the lake, and every reader would have to authorize its container; a native one can only lead to an object below
`chunks/`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

from lake_core.icechunk.errors import InvalidArrayMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lake_core.icechunk.session_state import SessionState
    from lake_core.store import ObjectStore

T = TypeVar("T")

_METADATA = "zarr.json"
_AT_ONCE = 64


def import_zarr(source: ObjectStore, session: SessionState) -> None:
    """Write the groups, arrays and chunks of a Zarr v3 hierarchy to a session. Other files are left out.

    Raises InvalidArrayMetadata where there is no hierarchy, or a `zarr.json` is not valid.
    """
    keys = [meta.key for meta in source.list()]
    if not any(_is_document(key) for key in keys):
        raise InvalidArrayMetadata(
            f"there is no zarr.json below {source.url()}: only Zarr v3 hierarchies can be imported"
        )
    import_keys(keys, lambda some: source.get_many([(key, None, None) for key in some]), session)


def import_keys(keys: Sequence[str], read: Callable[[list[str]], Iterable[Any]], session: SessionState) -> None:
    """Write the groups, arrays and chunks of the keys of a Zarr v3 hierarchy to a session, byte by byte.

    Args:
        keys: The keys of the hierarchy, below its root.
        read: Returns the bytes of some keys, in their order.
        session: The session to write to.

    Raises InvalidArrayMetadata if a `zarr.json` is not valid.
    """
    documents = sorted(filter(_is_document, keys), key=len)
    arrays: dict[str, re.Pattern[str]] = {}
    for some in _batched(documents, _AT_ONCE):
        for key, data in zip(some, read(some), strict=True):
            path = key[: -len(_METADATA)].rstrip("/")
            document, chunk_key = _imported(key, bytes(data))
            session.set_metadata(f"/{path}", document)
            if chunk_key is not None:
                arrays[path] = chunk_key
    chunks = [chunk for key in keys if (chunk := _chunk(key, arrays)) is not None]
    for part in _batched(chunks, _AT_ONCE):
        for (_, path, index), data in zip(part, read([key for key, _, _ in part]), strict=True):
            session.write_chunk(f"/{path}", index, data)


def _batched(items: list[T], length: int) -> Iterator[list[T]]:
    """Yield lists of at most `length` items, in their order."""
    for start in range(0, len(items), length):
        yield items[start : start + length]


def _is_document(key: str) -> bool:
    return key == _METADATA or key.endswith(f"/{_METADATA}")


def _imported(key: str, data: bytes) -> tuple[bytes, re.Pattern[str] | None]:
    """Return a `zarr.json` for the repository, and for an array the pattern of its chunks' keys below its own."""
    try:
        document: dict[str, Any] = json.loads(data)
        if document["node_type"] != "array":
            # The metadata of all nodes in one document would be out of date after the next change.
            copied = document.pop("consolidated_metadata", None) is not None
            return json.dumps(document).encode() if copied else data, None
        dimensions = len(document["shape"])
        encoding = document["chunk_key_encoding"]
        name = encoding if isinstance(encoding, str) else encoding["name"]
        separator = {"default": "/", "v2": "."}[name] if isinstance(encoding, str) else None
        separator = separator or encoding.get("configuration", {}).get("separator", {"default": "/", "v2": "."}[name])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidArrayMetadata(
            f"{key!r} is not the zarr.json of a Zarr v3 array or group: repair or delete it first"
        ) from None
    numbers = re.escape(separator).join(["(0|[1-9][0-9]*)"] * dimensions)
    if name == "v2":
        return _with_default_keys(document), re.compile(numbers or "0")
    pattern = re.compile(f"c{re.escape(separator)}{numbers}" if dimensions else "c")
    return (data if separator == "/" else _with_default_keys(document)), pattern


def _with_default_keys(document: dict[str, Any]) -> bytes:
    """Return a `zarr.json` whose chunks have keys as in a repository."""
    encoding = {"name": "default", "configuration": {"separator": "/"}}
    return json.dumps({**document, "chunk_key_encoding": encoding}).encode()


def _chunk(key: str, arrays: dict[str, re.Pattern[str]]) -> tuple[str, str, tuple[int, ...]] | None:
    """Return the path of the array and the index of the chunk that a key stands for."""
    path = key
    while path:
        path = path.rpartition("/")[0]
        pattern = arrays.get(path)
        if pattern is not None:
            match = pattern.fullmatch(key[len(path) + 1 if path else 0 :])
            return None if match is None else (key, path, tuple(map(int, match.groups())))
    return None
