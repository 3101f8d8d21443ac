"""A landing zone: the location of its files, and their listing."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from lake_orch.environment import from_environment
from lake_orch.errors import InvalidDefinition

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file in a listing."""

    key: str
    """Its path below the zone."""
    size: int
    fingerprint: str
    """A value that changes when the file is rewritten: the ETag if the store has one, else size and time."""
    modified: datetime | None = None


@dataclass(frozen=True)
class LandingZone:
    """A folder or prefix on any store that fsspec supports, whose files are appended to a table exactly once.

    Example:
        .. code-block:: python

            zone = LandingZone("flights", "s3://bucket/landing/flights", pattern="*.parquet")
    """

    name: str
    """The permanent name of the source. The application id of its batches is `landing/<name>`."""
    url: str
    pattern: str = "*"
    """The files to land: a glob on the path below the zone, or on its last part.

    Names that begin with `.` or `_` never match.
    """
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The options of fsspec. A value may be an EnvVar, which is read when files are listed."""
    settle: timedelta = timedelta(0)
    """How long a file must not have changed before it lands. Set it for writers that are not atomic."""
    max_files: int = 1000
    """The most files in one batch."""
    max_bytes: int = 64 << 30
    """The most bytes in one batch. A larger file is its own batch."""
    moved_from: str | None = None
    """The URL that the folder had before, if it has moved. Its files have the same names below the new one."""
    assume_landed: int | None = None
    """The last batch that is in a dataset which has forgotten that. An error asks for it."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidDefinition(f"{self.name!r} cannot name a landing zone: use letters, digits, '_', '-' and '.'")
        if not 1 <= self.max_files <= 10_000 or self.max_bytes < 1:
            raise InvalidDefinition(f"landing zone {self.name!r}: max_files is 1 to 10000, max_bytes at least 1")

    @property
    def app_id(self) -> str:
        """Return the application id in the transaction identifiers of the zone's batches."""
        return f"landing/{self.name}"

    def filesystem(self) -> tuple[AbstractFileSystem, str]:
        """Return a filesystem for the zone's files, and the zone's path in it. Listings are not cached."""
        opened: tuple[AbstractFileSystem, str] = url_to_fs(
            self.url,
            **{
                "use_listings_cache": False,
                "skip_instance_cache": True,
                **from_environment(dict(self.storage_options)),
            },
        )
        return opened

    def files(self, now: datetime | None = None) -> list[FoundFile]:
        """List the files that are ready to land, by name. A missing folder has none.

        Raises InvalidDefinition for a name that is not UTF-8, and for a link to a folder.
        """
        filesystem, root = self.filesystem()
        root = root.rstrip("/")
        try:
            files = filesystem.find(root, detail=True)
        except FileNotFoundError:
            return []
        now = now or datetime.now(UTC)
        listed = {path: info for path, info in files.items() if self._matches(path, info, root)}
        counted = (self._counted(path[len(root) + 1 :], path, info, filesystem) for path, info in listed.items())
        return sorted(
            (file for file in counted if file is not None and self._has_settled(file, now)), key=lambda file: file.key
        )

    def _matches(self, path: str, info: Mapping[str, Any], root: str) -> bool:
        if info.get("type") == "directory" or not path.startswith(f"{root}/"):
            return False
        key = path[len(root) + 1 :]
        parts = key.split("/")
        if any(part.startswith((".", "_")) for part in parts):
            return False
        return fnmatch.fnmatchcase(key, self.pattern) or fnmatch.fnmatchcase(parts[-1], self.pattern)

    def _counted(
        self, key: str, path: str, info: Mapping[str, Any], filesystem: AbstractFileSystem
    ) -> FoundFile | None:
        """Return a file of a listing; None for a link without a target."""
        if any("\ud800" <= letter <= "\udfff" for letter in key):
            raise InvalidDefinition(
                f"landing zone {self.name!r} has the file {key!r}, whose name is not UTF-8: rename it, or choose a "
                "pattern that leaves it out"
            )
        try:
            info = followed(filesystem, path, info)
        except FileNotFoundError:
            return None
        if info.get("type") == "directory":
            raise InvalidDefinition(
                f"landing zone {self.name!r} has the link {key!r} to a folder, whose files are not listed: make that "
                "folder a landing zone of its own, or choose a pattern that leaves the link out"
            )
        return file_of(key, info)

    def _has_settled(self, file: FoundFile, now: datetime) -> bool:
        return not self.settle or file.modified is None or now - file.modified >= self.settle


def followed(filesystem: AbstractFileSystem, path: str, info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of what a symbolic link leads to, and any other entry as it is. Raises FileNotFoundError.

    The size and time of the link itself say nothing of a target that is written again.
    """
    target: Mapping[str, Any] = filesystem.info(os.path.realpath(path)) if info.get("islink") else info
    return target


def file_of(key: str, info: Mapping[str, Any]) -> FoundFile:
    """Convert one entry of a listing."""
    tag = next((str(info[name]) for name in ("ETag", "etag", "md5", "checksum") if info.get(name)), None)
    modified = next(
        (info[name] for name in ("LastModified", "mtime", "created", "last_modified", "updated") if info.get(name)),
        None,
    )
    size = int(info.get("size") or 0)
    fingerprint = tag.strip('"') if tag else f"{size}-{modified}"
    if isinstance(modified, int | float):
        modified = datetime.fromtimestamp(modified, UTC)
    if isinstance(modified, datetime):
        modified = modified if modified.tzinfo else modified.replace(tzinfo=UTC)
    return FoundFile(key, size, fingerprint, modified if isinstance(modified, datetime) else None)
