"""Names of data files, which distinguish this writer's uncommitted files from files of other writers.

This writer's names hold a UUID of version 7 at a position where no other writer puts one. A name proves nothing about
the content of a file.
"""

from __future__ import annotations

import re
import uuid

from lake_core import runtime

CHANGES_FOLDER = "_change_data/"

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TIME_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_NAMED_TIME = re.compile(_TIME_UUID)
_OWN = re.compile(rf"(part|cdc)-00000-{_TIME_UUID}-c000(\.[a-z0-9]+)?\.parquet|deletion_vector_{_TIME_UUID}\.bin")
_DELTA_WRITERS = re.compile(
    rf"(part|cdc)-[0-9]{{5}}-{_UUID}[-.]c[0-9]{{3}}(\.[a-z0-9]+)?\.parquet|deletion_vector_{_UUID}\.bin"
)


def new_name(now: int, *, changes: bool = False, compression: str = ".zstd") -> str:
    """Return a name that was never used before for a data file, or for a change file.

    `now`: milliseconds since the epoch. `compression`: what the name says of it, which no reader relies on.
    """
    return f"{'cdc' if changes else 'part'}-00000-{time_uuid(now)}-c000{compression}.parquet"


def new_vector_name(now: int) -> tuple[str, uuid.UUID]:
    """Return a name that was never used before for a file of deletion vectors, and the UUID in it.

    `now`: milliseconds since the epoch.
    """
    identity = time_uuid(now)
    return f"deletion_vector_{identity}.bin", identity


def time_uuid(now: int) -> uuid.UUID:
    """Return a UUID of version 7: the time in milliseconds since the epoch, then random bits."""
    body = (now & (1 << 48) - 1) << 80 | int.from_bytes(runtime.random_bytes(10), "big")
    return uuid.UUID(int=body & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62)


def named_time(key: str) -> int:
    """Return the time in the last part of a key, in milliseconds since the epoch, or 0 if it has none."""
    match = _NAMED_TIME.search(key.rsplit("/", 1)[-1])
    return 0 if match is None else uuid.UUID(match[0]).int >> 80


def is_own_name(key: str) -> bool:
    """Return whether this writer may have named the file: as `new_name` does, with or without partition folders.

    A copy in another folder has such a name too, so other folders do not count. Change files are only in their folder.
    """
    *folders, name = key.removeprefix(CHANGES_FOLDER).split("/")
    match = _OWN.fullmatch(name)
    return (
        match is not None
        and (match[1] == "cdc") == key.startswith(CHANGES_FOLDER)
        and all("=" in folder for folder in folders)
    )


def is_delta_name(key: str) -> bool:
    """Return whether a file is named as Delta writers do (delta-spark, delta-rs).

    Files that Spark writes without Delta have such names too.
    """
    return _DELTA_WRITERS.fullmatch(key.rsplit("/", 1)[-1]) is not None


def is_hidden(key: str, partition_folders: tuple[str, ...] = ()) -> bool:
    """Return whether a key is outside of a table's data: in the log, or under a name that begins with `_` or `.`.

    `partition_folders`: how the names of folders begin that are not hidden, such as `.p=` for a partition column `.p`.
    """
    if key[0] not in "_." and "/_" not in key and "/." not in key:
        return False
    return any(
        (part.startswith(".") and not part.startswith(partition_folders)) or (part.startswith("_") and "=" not in part)
        for part in key.removeprefix(CHANGES_FOLDER).split("/")
    )
