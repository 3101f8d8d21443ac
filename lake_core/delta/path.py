"""Paths of data files in the log. They are checked and decoded when they are read, and percent-encoded when written.

Other writers may leave `.`, `..` and empty parts in them. Such a path is one file with the path without them, as for
delta-spark (RFC 2396, section 5.2).

Protocol sections: Add File and Remove File (path: an RFC 2396 URI, relative to the table's root or absolute).
"""

from __future__ import annotations

import hashlib
import re
from os import PathLike
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import PathOutsideTable
from lake_core.delta.numpy_arrays import text_bytes
from lake_core.errors import InvalidKey
from lake_core.store import ObjectStore, open_store
from lake_core.store.key import check_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HIVE_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f-\x9f\u2028\u2029{\[\]^]")
_LONGEST_FOLDER = 200
_NOT_PLAIN = r"[%:\x00-\x1f\x7f]|^/|//|/$|^$|(^|/)\.\.?(/|$)"
_DOTTED = r"(?:^|/)\.\.?/|[^:]//"
"""Parts of a path that name no folder."""
_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?/")
"""What an absolute path begins with."""
_SAFE = "/:=@!$&'()*+,;~"


def data_key(path: str, store: ObjectStore) -> str:
    """Return the store's key of a data file from its path in the log, which is decoded exactly once.

    Raises PathOutsideTable for every path that is not under the table's root.
    """
    return locate(path, (store,))[1]


def data_keys(paths: pa.ChunkedArray, store: ObjectStore) -> pa.ChunkedArray:
    """Return the same as `data_key`, for many paths.

    This is faster, because relative paths that need no decoding are not handled one by one.
    """
    if _are_plain(paths):
        return paths
    return pa.chunked_array([pa.array([data_key(path, store) for path in paths.to_pylist()], pa.string())])


def locate(path: str, roots: Sequence[ObjectStore]) -> tuple[int, str]:
    """Return the root that a data file is under, and its key there.

    The first root is the table's, the only one of relative paths.

    Raises PathOutsideTable for everything that is under none of them.
    """
    plain = _without_dots(path)
    if not (_SCHEME.match(path) or path.startswith("/")):
        return 0, _checked(unquote(plain), path)
    whole = _absolute(unquote(plain))
    for number, root in enumerate(roots):
        start = root.url().rstrip("/") + "/"
        if whole.startswith(start):
            return number, _checked(whole[len(start) :], path)
    allowed = ", ".join(root.url() for root in roots[1:]) or "none"
    raise PathOutsideTable(
        f"the log names the data file {path!r}, which is not under the table's root {roots[0].url()}. If "
        "the table uses files of another one (a shallow clone) and you trust its log, open it with "
        f"DeltaTable.open(…, allowed_roots=[the folder of those files]). Allowed now: {allowed}"
    )


def _are_plain(paths: pa.ChunkedArray) -> bool:
    """Return whether all paths are relative, and are keys as they stand."""
    return all(map(_are_surely_plain, paths.chunks)) or not pc.any(pc.match_substring_regex(paths, _NOT_PLAIN)).as_py()


def _are_surely_plain(paths: pa.StringArray) -> bool:
    """Return whether paths are plain by their bytes. This is four times faster than a search in each path."""
    if not len(paths):
        return True
    offsets = np.frombuffer(paths.buffers()[1], np.int32)[paths.offset : paths.offset + len(paths) + 1]
    if paths.null_count or not np.diff(offsets).all():
        return False
    text = np.frombuffer(text_bytes(paths), np.uint8)
    first, last = text[offsets[:-1] - offsets[0]], text[offsets[1:] - offsets[0] - 1]
    if ((first == ord("/")) | (last == ord("/")) | (last == ord("."))).any() or text.min() < ord(" "):
        return False
    return not any((text == byte).any() for byte in b"%:\x7f") and not _may_have_dots(paths)


def same_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return paths in a form that is equal for those of one file: `./a`, `p/../a` and `a`, or `file:///a` and `/a`."""
    if pc.any(pc.starts_with(paths, "file:")).as_py():
        paths = pc.replace_substring_regex(paths, "^file:(//)?/", "/")
    if not any(map(_may_have_dots, paths.chunks)):
        return paths
    dotted = pc.match_substring_regex(paths, _DOTTED)
    if not pc.any(dotted).as_py():
        return paths
    plain = pa.array([_without_dots(path) for path in paths.filter(dotted).to_pylist()], pa.string())
    return pa.chunked_array([pc.replace_with_mask(paths.combine_chunks(), dotted.combine_chunks(), plain)])


def _may_have_dots(paths: pa.StringArray) -> bool:
    """Return whether a slash comes after a dot or a slash. This is ten times faster than a search in each path."""
    text = np.frombuffer(text_bytes(paths), np.uint8)
    before = text[np.flatnonzero(text[1:] == ord("/"))]
    return bool(((before == ord(".")) | (before == ord("/"))).any())


def _without_dots(path: str) -> str:
    """Return a path, as it is in the log, without `.` and empty parts, and without the parts that `..` leaves."""
    if not re.search(_DOTTED, path):
        return path
    start = _AUTHORITY.match(path)
    prefix = start[0] if start else ""
    kept: list[str] = []
    for part in path[len(prefix) :].split("/"):
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    return prefix + "/".join(kept)


def locate_all(paths: pa.ChunkedArray, roots: Sequence[ObjectStore]) -> tuple[list[str], dict[int, ObjectStore]]:
    """Return the keys of many paths and, by row number, the stores of those outside of the table, as `locate`."""
    if _are_plain(paths):
        return paths.to_pylist(), {}
    located = [locate(path, roots) for path in paths.to_pylist()]
    return [key for _, key in located], {row: roots[number] for row, (number, _) in enumerate(located) if number}


def open_roots(
    locations: Sequence[str | PathLike[str] | ObjectStore], options: Mapping[str, Any]
) -> tuple[ObjectStore, ...]:
    """Open the folders in which a caller allows a log to name files. They are only read."""
    if isinstance(locations, (str, PathLike, ObjectStore)):
        raise ValueError(f"allowed_roots must be a list of locations: [{locations!r}]")
    return tuple(
        location
        if isinstance(location, ObjectStore)
        else open_store(
            _one_scheme(location) if isinstance(location, str) else location, storage_options=options, read_only=True
        )
        for location in locations
    )


def encode_path(key: str) -> str:
    """Encode a key of the store for the log, as a relative URI."""
    return quote(key, safe=_SAFE)


def partition_folder(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """Return the folder of a partition's files by Hive's convention, such as `a=1/b=x/`.

    Special characters are escaped, and null becomes its placeholder.
    """
    return "".join(f"{_folder_name(name, value)}/" for name, value in zip(names, values, strict=True))


def _folder_name(name: str, value: str | None) -> str:
    folder = f"{_hive_escape(name)}={'__HIVE_DEFAULT_PARTITION__' if value is None else _hive_escape(value)}"
    if len(folder.encode()) <= _LONGEST_FOLDER:
        return folder
    # Values are read only from the log, so any valid folder name is possible.
    return f"{_hive_escape(name)[:32]}=sha256-{hashlib.sha256(folder.encode()).hexdigest()[:32]}"


def _hive_escape(text: str) -> str:
    return _HIVE_ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _absolute(path: str) -> str:
    """Convert a decoded absolute path to the URL form that stores use."""
    if path.startswith("/"):
        return f"file://{path}"
    if path.startswith("file:/") and not path.startswith("file://"):
        return f"file://{path[len('file:') :]}"
    return _one_scheme(path)


def _one_scheme(url: str) -> str:
    """Replace Hadoop's names for S3 by those that stores use."""
    return re.sub(r"^s3[an]://", "s3://", url)


def _checked(key: str, path: str) -> str:
    try:
        check_key(key)
    except InvalidKey as error:
        if key.startswith("../"):
            raise PathOutsideTable(
                f"the log names the data file {path!r}, which leads out of the table's root"
            ) from None
        raise PathOutsideTable(
            f"the log names the data file {path!r}, which cannot be a file's path: {error}"
        ) from None
    return key
