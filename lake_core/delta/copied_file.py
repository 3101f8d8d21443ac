"""Files that hold the rows of others, in their order, with the row ids of another log.

A merge between branches writes a file again if its rows took ids with them that say something else on the other side.
The copy and its origin are one file wherever two branches are compared: a tag of the copy names the origin.
Protocol section: Row Tracking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.action_fields import TEXTS
from lake_core.delta.path import same_paths

ORIGIN_TAG: Final = "lakeRowsOf"
_COPY = pa.schema([("path", pa.string()), ("tags", TEXTS)])


@dataclass(frozen=True, slots=True)
class Copies:
    """Files that are copies: their add actions."""

    files: pa.Table

    @classmethod
    def among(cls, *files: pa.Table) -> Copies:
        """Return those among some files, given as add actions with path and tags."""
        tagged = [each.filter(_tag(each).is_valid()).select(_COPY.names) for each in files]
        return cls(pa.concat_tables([_COPY.empty_table(), *tagged]))

    def origins(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the origin of each file, which is itself for others, in a form that is equal for one file."""
        plain = same_paths(paths)
        known = pc.index_in(plain, value_set=same_paths(self.files["path"]))
        return pc.coalesce(same_paths(_tag(self.files)).take(known), plain)


def _tag(files: pa.Table) -> pa.ChunkedArray:
    return pc.map_lookup(files["tags"], scalar(ORIGIN_TAG), "first")


def tag_of(origin: str) -> tuple[str, str]:
    """Return the tag of a copy."""
    return ORIGIN_TAG, origin
