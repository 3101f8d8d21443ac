"""Where the files of an output are."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lake_core.errors import NotFound
from lake_core.store import ObjectMeta, ObjectStore
from lake_orch.assets.files.encoding import EXTENSIONS
from lake_orch.assets.files.owner import FOLDER
from lake_orch.errors import InvalidDefinition
from lake_orch.location import PATH_METADATA, checked_path


@dataclass(frozen=True, slots=True)
class FileLocation:
    """The location of one file, or of one file for each partition."""

    stem: str
    extension: str
    """Empty if the value's format decides."""

    def below(self, *parts: str) -> FileLocation:
        """Return the location of a part. Characters that paths do not allow are percent-encoded."""
        return FileLocation("/".join([self.stem, *map(_quoted, parts)]), self.extension)

    def of(self, key: Mapping[str, str] | None) -> FileLocation:
        """Return the location of a partition's file, by the keys of its dimensions."""
        return self if key is None else self.below(*(part for _, part in sorted(key.items())))

    def depth_below(self, other: FileLocation) -> int:
        """Return the number of parts that its path has below another one."""
        return self.stem.count("/") - other.stem.count("/")

    def find(self, files: ObjectStore) -> str:
        """Return the path of the existing file. Raises NotFound."""
        paths = [f"{self.stem}{self.extension}"] if self.extension else [meta.key for meta in self.existing(files)]
        if not paths:
            raise NotFound(
                f"no file {self.stem}.* ({', '.join(EXTENSIONS.values())}): materialize the asset first", key=self.stem
            )
        return paths[0]

    def existing(self, files: ObjectStore) -> list[ObjectMeta]:
        """Return the existing file, or the files with any extension if the value's format decides it."""
        if self.extension:
            try:
                return [files.head(f"{self.stem}{self.extension}")]
            except NotFound:
                return []
        names = [f"{self.stem}{extension}" for extension in EXTENSIONS.values()]
        return [meta for meta in files.list(f"{self.stem}.") if meta.key in names]


def file_location(asset_key: Sequence[str] | None, metadata: Mapping[str, Any], prefix: str) -> FileLocation:
    """Return the location of an output's file. Raises InvalidDefinition."""
    if PATH_METADATA in metadata:
        location = FileLocation(*posixpath.splitext(checked_path(metadata[PATH_METADATA])))
    elif asset_key is not None:
        location = FileLocation(checked_path("/".join([prefix, *asset_key])), "")
    else:
        raise InvalidDefinition(
            f"the output of an op has no asset key to name its file: give it the metadata {PATH_METADATA!r}"
        )
    if location.stem.split("/")[0] == FOLDER:
        raise InvalidDefinition(f"{FOLDER} holds the owners of files: choose another path than {location.stem!r}")
    return location


def _quoted(part: str) -> str:
    quoted = quote(part, safe=" !#$&'()+,-;=@[]^_`{}~.:")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
