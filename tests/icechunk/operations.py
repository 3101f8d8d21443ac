"""Changes of a session, by name, through Zarr: for sessions of this package and of icechunk alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import zarr

FILL = -1


def create_base(session: Any) -> None:
    """Write what both sessions begin with."""
    root = zarr.create_group(session.store, attributes={"v": 0})
    group = root.create_group("g", attributes={"v": 0})
    group.create_group("sub")
    for path, length, chunk in [("a", 4, 1), ("b", 2, 1), ("g/x", 4, 2)]:
        array = root.create_array(path, shape=(length,), chunks=(chunk,), dtype="i4", fill_value=FILL, compressors=None)
        array[:] = np.arange(length)


def array(session: Any, path: str) -> Any:
    return zarr.open_array(session.store, path=path)


def set_attribute(path: str) -> Callable[[Any, str, int], None]:
    def operation(session: Any, side: str, value: int) -> None:
        zarr.open(session.store, path=path, mode="r+").attrs["v"] = side

    return operation


def resize(path: str, length: int) -> Callable[[Any, str, int], None]:
    return lambda session, side, value: array(session, path).resize((length,))


def append(session: Any, side: str, value: int) -> None:
    array(session, "a").resize((6,))
    array(session, "a")[4:6] = value


def write(path: str, first: int, end: int, value: int | None = None) -> Callable[[Any, str, int], None]:
    def operation(session: Any, side: str, own_value: int) -> None:
        array(session, path)[first:end] = own_value if value is None else value

    return operation


def erase(key: str) -> Callable[[Any, str, int], None]:
    return lambda session, side, value: asyncio.run(session.store.delete(key))


def delete(path: str) -> Callable[[Any, str, int], None]:
    def operation(session: Any, side: str, value: int) -> None:
        del zarr.open_group(session.store)[path]

    return operation


def create_array(path: str) -> Callable[[Any, str, int], None]:
    def operation(session: Any, side: str, value: int) -> None:
        zarr.create_array(
            session.store, name=path, shape=(2,), chunks=(1,), dtype="i4", fill_value=FILL, compressors=None
        )[:] = value

    return operation


def create_group(path: str) -> Callable[[Any, str, int], None]:
    def operation(session: Any, side: str, value: int) -> None:
        zarr.create_group(session.store, path=path, attributes={"v": side})

    return operation


def recreate(session: Any, side: str, value: int) -> None:
    delete("a")(session, side, value)
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(1,), dtype="i4", fill_value=FILL, compressors=None)[
        :
    ] = value


def several(*operations: Callable[[Any, str, int], None]) -> Callable[[Any, str, int], None]:
    def operation(session: Any, side: str, value: int) -> None:
        for single in operations:
            single(session, side, value)

    return operation


OPERATIONS: dict[str, Callable[[Any, str, int], None]] = {
    "append to /a (resize 6, write chunks 4 and 5)": append,
    "attrs of /": set_attribute(""),
    "attrs of /a": set_attribute("a"),
    "attrs of /g": set_attribute("g"),
    "attrs of /g/x": set_attribute("g/x"),
    "create and delete /n in one session": several(create_array("n"), delete("n")),
    "create array /g/new": create_array("g/new"),
    "create array /g/sub/new": create_array("g/sub/new"),
    "create array /m": create_array("m"),
    "create array /n": create_array("n"),
    "create group /n": create_group("n"),
    "delete /a": delete("a"),
    "delete /g (with all in it)": delete("g"),
    "delete /g/sub": delete("g/sub"),
    "delete /g/x": delete("g/x"),
    "delete and recreate /a": recreate,
    "erase chunk 0 of /a": erase("a/c/0"),
    "replace group /g/sub by an array": several(delete("g/sub"), create_array("g/sub")),
    "resize /a to 2": resize("a", 2),
    "resize /a to 6": resize("a", 6),
    "write chunk 0 of /a": write("a", 0, 1),
    "write chunk 0 of /g/x": write("g/x", 0, 1),
    "write chunk 3 of /a": write("a", 3, 4),
    "write chunks 0 and 1 of /a": write("a", 0, 2),
    "write the same bytes to chunk 0 of /a": write("a", 0, 1, 5),
}
"""Called with a session, the name of its side, and the value that the side writes."""


def state(session: Any) -> dict[str, Any]:
    """Return the attributes and values of all nodes, by absolute path."""
    root = zarr.open_group(session.store, mode="r")
    members: dict[str, Any] = {"/": root, **{"/" + name: member for name, member in root.members(max_depth=None)}}
    return {path: _describe(member) for path, member in members.items()}


def _describe(member: Any) -> dict[str, Any]:
    attributes = {"attrs": dict(member.attrs)}
    return {**attributes, "values": member[...].tolist()} if isinstance(member, zarr.Array) else attributes


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes that differ, as they are now; None for those that are gone."""
    return {path: after.get(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
