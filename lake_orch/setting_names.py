"""Which settings have an effect where: the names of metadata `lake/…`, by the format that an IO manager stores.

A setting without an effect would be a promise that nobody keeps, so it is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from lake_orch.errors import InvalidDefinition

Format: TypeAlias = Literal["tables", "arrays", "pools", "files"]

OUTPUT_SETTINGS: Mapping[Format, frozenset[str]] = {
    "tables": frozenset(
        f"lake/{name}"
        for name in (
            *("mode", "owner", "path", "schema_mode", "naive_timestamps", "merge", "replace_where", "partition_by"),
            *("cluster_by", "properties", "constraints", "generated", "schema", "preview_rows"),
        )
    ),
    "arrays": frozenset(
        f"lake/{name}"
        for name in ("mode", "owner", "path", "encoding", "dims", "append_dim", "coordinates", "preview_image")
    ),
    "pools": frozenset(
        f"lake/{name}" for name in ("mode", "owner", "path", "key", "order", "threshold", "times", "preview_rows")
    ),
    "files": frozenset({"lake/owner", "lake/path"}),
}
"""The settings of what an asset returns."""

INPUT_SETTINGS: Mapping[Format, tuple[str, ...]] = {
    "tables": ("lake/where", "lake/ref", "lake/version", "lake/timestamp"),
    "arrays": ("lake/sel", "lake/chunks", "lake/ref", "lake/snapshot", "lake/timestamp"),
    "pools": ("lake/shape", "lake/start", "lake/stop", "lake/since", "lake/ref", "lake/pool_commit"),
    "files": ("lake/ref",),
}
"""The settings of what an input loads, beside `columns` and `allow_missing_partitions`."""

_PREFIX = "lake/"
_CUTOFF = 0.85
"""The similarity, from 0 to 1, from which a name is reported as a misspelling."""


def check_output(metadata: Mapping[str, Any], format: Format, subject: str) -> None:
    """Raise InvalidDefinition for a setting that has no effect on how an asset is stored.

    It is a setting of another format or of inputs, or nearly the name of one. Other tools may use any other name.
    """
    own = OUTPUT_SETTINGS[format]
    for name in _settings(metadata):
        if name in own:
            continue
        others = [other for other, names in OUTPUT_SETTINGS.items() if name in names]
        if others:
            raise _without_effect(
                name, subject, f"it is for {' and '.join(others)}, and this asset is stored as {format}"
            )
        if any(name in names for names in INPUT_SETTINGS.values()):
            raise _without_effect(name, subject, "it is for inputs: put it in dg.AssetIn(metadata=…)")
        similar = difflib.get_close_matches(name, sorted(own), 1, _CUTOFF)
        if similar:
            raise _without_effect(name, subject, f"use {similar[0]!r}")


def check_input(metadata: Mapping[str, Any], format: Format, subject: str, *, others: Iterable[str] = ()) -> None:
    """Raise InvalidDefinition for a `lake/…` name in an input's metadata that has no effect there.

    Without the setting, the input would be another one than the definition says. `others` are names without the prefix
    that have an effect.
    """
    own = INPUT_SETTINGS[format]
    for name in _settings(metadata):
        if name not in own:
            similar = difflib.get_close_matches(name, own, 1, _CUTOFF)
            known = ", ".join((*others, *own))
            remedy = f"use {similar[0]!r}" if similar else f"the settings of this input are {known}"
            raise _without_effect(name, subject, remedy)


def _settings(metadata: Mapping[str, Any]) -> Iterable[str]:
    return (name for name in metadata if name.startswith(_PREFIX))


def _without_effect(name: str, subject: str, remedy: str) -> InvalidDefinition:
    return InvalidDefinition(f"{subject} has the metadata {name!r}, which has no effect: {remedy}")
