"""The folder of an export: whether one may be written there, and what an earlier one has written."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from lake_core import runtime
from lake_core.errors import NotFound
from lake_core.graveler import Commit, Graveler
from lake_core.graveler.export import EarlierExport
from lake_core.lake.errors import FolderInUse
from lake_core.lake.lake_format import FORMAT_KEY

if TYPE_CHECKING:
    from lake_core.graveler import Exported
    from lake_core.store import ObjectStore

MARKER = "_lakefs/lake-orch-export.json"
"""The file that names the exported lake and what was written. It comes first: an interrupted export is continued."""
_EXPORTED = re.compile(
    rf"_lakefs/(?:[0-9a-f]{{64}}|refs_manifest\.json)|data/[0-9a-f]{{4}}/[0-9a-f]{{64}}|{re.escape(MARKER)}"
)
_LAKEFS = ("_lakefs/", "data/")
"""Where a lakeFS server writes."""
_LAST = "\U0010ffff"
_RULES = 1
"""The version of the rules by which trees are exported. Those that were exported by other rules are built again."""
_SECONDS = 30.0
"""How often an export that is under way stores what it has written."""


class ExportFolder(EarlierExport):
    """A folder that takes the export of a lake.

    Args:
        target: The folder.
        lake: The lake's id.
        is_live: Whether a lakeFS server works in it too.

    Raises FolderInUse for a folder that holds a lake, or more than an earlier export of this one and, if it is live,
    what the server wrote.
    """

    def __init__(self, target: ObjectStore, lake: str, *, is_live: bool = False) -> None:
        super().__init__()
        self._target = target
        self._lake = lake
        self._body: dict[str, Any] = {}
        self._saved = runtime.monotonic()
        if target.exists(FORMAT_KEY):
            raise FolderInUse(f"{target.url()} is a lake: export into an empty folder")
        body = _read_marker(target)
        self.is_new = body.get("lake") != lake
        """Whether nothing was exported there before."""
        other = _other_key(target, () if self.is_new or not is_live else _LAKEFS, is_empty=self.is_new)
        if other is not None:
            raise FolderInUse(
                f"{target.url()} holds {other!r}, which is not from an earlier export of this lake: "
                "export into an empty folder, or, if a lakeFS server has written there since, mirror onto the server"
            )
        if self.is_new:
            self._write()
        else:
            self._body = body
            present = {meta.key for meta in target.list("_lakefs/")}
            trees: dict[str, str] = body.get("trees", {}) if body.get("rules") == _RULES else {}
            self.trees = {tree: name for tree, name in trees.items() if not name or f"_lakefs/{name}" in present}

    def read_commits(self) -> None:
        """Read the commits of the earlier export, which stand in for those that the lake has collected since."""
        dump = self._body.get("dump")
        if not dump or self._body.get("rules") != _RULES:
            return
        records = Graveler(self._target).scan(dump)
        commits = {record.key.decode(): Commit.decode(record.value) for record in records}
        self.commits = {old: commits[new] for old, new in self._body["commits"].items() if new in commits}

    def save(self) -> None:
        """Store what was written, unless that was done a moment ago."""
        if runtime.monotonic() - self._saved > _SECONDS:
            self._write()

    def finish(self, exported: Exported, *, history: bool) -> None:
        """Store what a whole export has written. Without history its commits are not to be continued."""
        if history:
            names = {old: commit.id for old, commit in self.commits.items()}
            self._body |= {"commits": names, "dump": exported.manifest["commits_meta_range_id"]}
        self._write()

    def _write(self) -> None:
        self._body |= {"lake": self._lake, "rules": _RULES, "trees": self.trees}
        self._target.put(MARKER, json.dumps(self._body).encode())
        self._saved = runtime.monotonic()


def _read_marker(target: ObjectStore) -> dict[str, Any]:
    """Return what the marker says, nothing where there is none. Raises FolderInUse for one that is damaged."""
    try:
        return dict(json.loads(target.get(MARKER)))
    except NotFound:
        return {}
    except (ValueError, TypeError):
        raise FolderInUse(f"{MARKER} of {target.url()} is damaged: export into an empty folder") from None


def _other_key(target: ObjectStore, allowed: tuple[str, ...], *, is_empty: bool) -> str | None:
    """Return a key that no earlier export has written. Folders that are allowed are not looked into."""
    start_after = ""
    while True:
        for meta in target.list(start_after=start_after):
            folder = next((prefix for prefix in allowed if meta.key.startswith(prefix)), None)
            if folder is not None:
                start_after = f"{folder}{_LAST}"
                break
            if is_empty or not _EXPORTED.fullmatch(meta.key):
                return meta.key
        else:
            return None
