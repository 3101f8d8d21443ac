"""Paths of data files: hostile input on the way in, percent-encoded once on the way out.

Protocol sections: Add File and Remove File (path: an RFC 2396 URI, relative to the table's root or absolute).
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import PathOutsideTable
from lake_core.errors import InvalidKey
from lake_core.store import ObjectStore
from lake_core.store.key import check_key

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HIVE_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f-\x9f\u2028\u2029{\[\]^]")
_LONGEST_FOLDER = 200
_NOT_PLAIN = r"[%:\x00-\x1f\x7f]|^/|//|/$|^$|(^|/)\.\.?(/|$)"
_SAFE = "/:=@!$&'()*+,;~"


def data_key(path: str, store: ObjectStore) -> str:
    """The store's key of a data file, from its path as the log spells it: decoded exactly once.

    Raises PathOutsideTable for everything that does not lie under the table's root.
    """
    if _SCHEME.match(path) or path.startswith("/"):
        key = _inside(path, store)
    else:
        key = unquote(path)
    try:
        check_key(key)
    except InvalidKey as error:
        raise PathOutsideTable(f"the log names the data file {path!r}, which is not under the table's root: {error}") from None
    return key


def data_keys(paths: pa.ChunkedArray, store: ObjectStore) -> pa.ChunkedArray:
    """`data_key` of many paths; plain relative ones, which need no decoding, are not looked at one by one."""
    if not pc.any(pc.match_substring_regex(paths, _NOT_PLAIN)).as_py():
        return paths
    return pa.chunked_array([pa.array([data_key(path, store) for path in paths.to_pylist()], pa.string())])


def encode_path(key: str) -> str:
    """A key of the store as the log spells it: a relative URI."""
    return quote(key, safe=_SAFE)


def partition_folder(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """The folder of a partition's files by Hive's convention: `a=1/b=x/`, special characters escaped, null by its stand-in."""
    return "".join(f"{_folder_name(name, value)}/" for name, value in zip(names, values, strict=True))


def _folder_name(name: str, value: str | None) -> str:
    folder = f"{_hive_escape(name)}={'__HIVE_DEFAULT_PARTITION__' if value is None else _hive_escape(value)}"
    if len(folder.encode()) <= _LONGEST_FOLDER:
        return folder
    # Values are read from the log alone, so a folder's name only has to be one.
    return f"{_hive_escape(name)[:32]}=sha256-{hashlib.sha256(folder.encode()).hexdigest()[:32]}"


def _hive_escape(text: str) -> str:
    return _HIVE_ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _inside(path: str, store: ObjectStore) -> str:
    root = store.url().rstrip("/") + "/"
    whole = unquote(path)
    if whole.startswith("/"):
        whole = f"file://{whole}"
    elif whole.startswith("file:/") and not whole.startswith("file://"):
        whole = f"file://{whole[len('file:') :]}"
    whole = re.sub(r"^s3[an]://", "s3://", whole)
    if not whole.startswith(root):
        raise PathOutsideTable(
            f"the log names the data file {path!r}, which is not under the table's root {root}. A table that borrows another's files "
            f"(a shallow clone) is not read here: open it with the client that made it, or copy its data"
        )
    return whole[len(root) :]
