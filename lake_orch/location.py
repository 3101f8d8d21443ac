"""Paths of assets' tables below the root of a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lake_orch.errors import InvalidDefinition

PATH_METADATA = "lake/path"
TABLES = "tables"


def table_path(asset_key: Sequence[str] | None, definition_metadata: Mapping[str, Any]) -> str:
    """Return the table's path relative to the lake's root: metadata `lake/path`, else `tables/<asset key>`.

    Raises InvalidDefinition for a path outside the root, and for an output of an op without a path.
    """
    if PATH_METADATA in definition_metadata:
        return checked_path(definition_metadata[PATH_METADATA])
    if asset_key is None:
        raise InvalidDefinition(
            f"the output of an op has no asset key to name its table: give it the metadata {PATH_METADATA!r}"
        )
    return checked_path("/".join([TABLES, *asset_key]))


def checked_path(path: object) -> str:
    """Check a path below the root, and return it without its outer slashes. Raises InvalidDefinition for any other."""
    text = path.strip("/") if isinstance(path, str) else ""
    if not text or "://" in text or any(part in ("", ".", "..") for part in text.split("/")):
        raise InvalidDefinition(
            f"a table's path must be relative to the lake's root, without '..' or empty parts; got {path!r}"
        )
    return text


def table_name(path: str) -> str:
    """Return the name that the UI shows for a table: its path with dots, without the folder `tables`."""
    return path.removeprefix(f"{TABLES}/").replace("/", ".")
