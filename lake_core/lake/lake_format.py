"""The parameters that are fixed when a lake is created: `_lake/format.json`.

A folder with this file at its root is a lake.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed
from lake_core.lake.errors import FolderInUse, LakeAlreadyExists, LakeNotFound, UnsupportedLake

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lake_core.graveler import Profile
    from lake_core.store import ObjectStore

FORMAT_KEY = "_lake/format.json"
ORIGIN_KEY = "_lake/lakefs.json"
"""The manifest of the lakeFS repository that the lake was converted from. Older objects are the repository's."""
VERSION = 3
"""The version of lakes that are created. Version 2 has the batches of a session in its record, version 1 all commits in
each snapshot of the refs journal."""
_READABLE = (1, 2, VERSION)
_PROFILES = ("small", "lakefs")


@dataclass(frozen=True, slots=True)
class LakeFormat:
    """The parameters that every writer of a lake must share."""

    id: str
    profile: str = "small"
    """The size of ranges: `small`, or `lakefs` for lakeFS's parameters."""
    branch: str = "main"
    """The branch that is checked out."""
    version: int = VERSION
    origin: str = ""
    """`lakefs` for a lake that was converted from a lakeFS repository, in its storage namespace; else empty."""

    @property
    def has_batch_keys(self) -> bool:
        """Return whether each batch of a session has its own key in the refs journal."""
        return self.version >= 3

    @property
    def ranges(self) -> Profile:
        """Return the parameters that divide trees into ranges."""
        from lake_core.graveler import LAKEFS, SMALL_RANGES  # with numpy, which no other parameter needs

        return LAKEFS if self.profile == "lakefs" else SMALL_RANGES


def check_no_repository(store: ObjectStore) -> None:
    """Raise FolderInUse if the folder holds the metadata of a lakeFS repository, which the lake's would mix with."""
    meta = next(iter(store.list("_lakefs/")), None)
    if meta is not None and not store.exists(FORMAT_KEY):
        raise FolderInUse(
            f"{store.url()} is the storage namespace of a lakeFS repository, or an export for one: it holds "
            f"{meta.key!r}. Create the lake "
            "in another folder, or go on with the repository: Lake.import_lakefs, `lake init --from-lakefs`"
        )


def create_format(store: ObjectStore, profile: str, now: datetime, *, origin: str = "") -> LakeFormat:
    """Write the format file that makes a folder a lake. Raises LakeAlreadyExists."""
    if profile not in _PROFILES:
        raise ValueError(f"the profile of a lake must be one of {', '.join(_PROFILES)}, not {profile!r}")
    format = LakeFormat(str(runtime.uuid4()), profile, origin=origin)
    body = {
        "format": "lake-orch",
        "version": VERSION,
        "id": format.id,
        "created": now.isoformat(),
        "branch": format.branch,
        "profile": format.profile,
        "hash": "sha256",
        "keys": "utf-8, NFC, not escaped",
    } | ({"origin": origin} if origin else {})
    try:
        store.put(FORMAT_KEY, json.dumps(body, indent=1).encode(), if_absent=True)
    except AlreadyExists:
        raise LakeAlreadyExists(
            f"a lake exists at {store.url()}: open it with Lake.open, or pass exist_ok=True"
        ) from None
    return format


def create_origin(store: ObjectStore, manifest: Mapping[str, str]) -> None:
    """Write the manifest of the lakeFS repository that becomes a lake, unless an interrupted import has."""
    with suppress(AlreadyExists):
        store.put(ORIGIN_KEY, json.dumps(manifest).encode(), if_absent=True)


def read_format(store: ObjectStore) -> LakeFormat:
    """Read the format of the lake at a store's root. Raises LakeNotFound, UnsupportedLake."""
    try:
        body = json.loads(store.get(FORMAT_KEY))
        texts = str(body["id"]), str(body["profile"]), str(body["branch"])
        format = LakeFormat(*texts, version=body["version"], origin=str(body.get("origin", "")))
    except NotFound:
        raise LakeNotFound(
            f"there is no lake at {store.url()}, as {FORMAT_KEY} does not exist: create one with "
            f"Lake.create({store.url()!r})"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UnsupportedLake(f"{FORMAT_KEY} of {store.url()} is damaged: restore it from a backup") from None
    if format.version not in _READABLE or format.profile not in _PROFILES:
        raise UnsupportedLake(
            f"the lake at {store.url()} has format version {format.version}, but this package supports only the "
            f"versions up to {VERSION}: upgrade lake-orch"
        )
    return format


def upgrade_format(store: ObjectStore) -> LakeFormat:
    """Upgrade the format of a lake to the version of this package, and return it.

    Raises LakeNotFound, UnsupportedLake, StoreError.
    """
    while True:
        format = read_format(store)
        if format.version == VERSION:
            return format
        data = store.get(FORMAT_KEY)
        body = json.loads(data) | {"version": VERSION}
        with suppress(PreconditionFailed):  # another process upgrades it
            store.put(FORMAT_KEY, json.dumps(body, indent=1).encode(), if_match=data.etag)
