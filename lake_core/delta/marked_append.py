"""Appends with a txn action that became one version together with other writes.

A version that several writes became records the files of each such append. So a target that has one of these writes,
by its txn action, can take the others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow.compute as pc

from lake_core.delta.commit_file import parse_run, read_commit_info, single_actions
from lake_core.delta.commit_range import WRITES_FIELD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lake_core.delta.commit_range import CommitRange

APPENDS_FIELD: Final = "lakeAppends"
"""The field of `commitInfo` for the appends with a txn action, where several writes became a version."""
_MOST_TEXT: Final = 64 * 1024
"""The most characters of the field. Appends that do not fit are not recorded, so they cannot be told apart."""
_OTHER_ACTIONS: Final = (b'"remove"', b'"metaData"', b'"protocol"', b'"domainMetadata"', b'"cdc"')

MarkedAppends: TypeAlias = "Mapping[tuple[str, int], Sequence[str]]"
"""The paths of the files that appends added, by application id and version."""


def marked_appends(commits: CommitRange, added: pa.Table) -> MarkedAppends:
    """Return the appends with a txn action among commits, whose files are there as they were added.

    Args:
        commits: The commits of a difference.
        added: The files that the difference adds, with `path` and, if any has one, `deletionVector`.
    """
    unchanged = added
    if "deletionVector" in added.column_names:
        unchanged = added.filter(pc.is_null(added["deletionVector"]))
    there = set(unchanged["path"].to_pylist())
    appends: dict[tuple[str, int], Sequence[str]] = {}
    single: dict[int, tuple[str, int]] = {}
    for version, body in commits.bodies:
        if APPENDS_FIELD.encode() in body:
            appends |= _read(read_commit_info(version, body).get(APPENDS_FIELD))
        elif (marker := _marker_of(version, body)) is not None:
            single[version] = marker
    if single:
        bodies = [(version, body) for version, body in commits.bodies if version in single]
        files = parse_run(bodies, (), None).adds.group_by("commit").aggregate([("path", "list"), ("dataChange", "all")])
        columns = (files[name].to_pylist() for name in ("commit", "path_list", "dataChange_all"))
        appends |= {single[version]: paths for version, paths, is_change in zip(*columns, strict=True) if is_change}
    return {marker: paths for marker, paths in appends.items() if there.issuperset(paths)}


def _marker_of(version: int, body: bytes) -> tuple[str, int] | None:
    """Return the txn action of a commit that is one append, None for any other commit."""
    if b'"txn"' not in body or any(action in body for action in _OTHER_ACTIONS):
        return None
    markers = list(single_actions(version, body, "txn"))
    if len(markers) != 1 or read_commit_info(version, body).get(WRITES_FIELD, 1) != 1:
        return None
    return str(markers[0]["appId"]), int(markers[0]["version"])


def _read(recorded: Any) -> MarkedAppends:
    """Return the appends of the field; none if it is not as this module writes it."""
    try:
        return {(str(each["appId"]), int(each["version"])): [str(path) for path in each["paths"]] for each in recorded}
    except (TypeError, KeyError, ValueError):
        return {}


def appends_field(appends: MarkedAppends) -> list[dict[str, Any]]:
    """Return the value of the field for some appends."""
    value: list[dict[str, Any]] = []
    size = 0
    for (app_id, version), paths in appends.items():
        each = {"appId": app_id, "version": version, "paths": list(paths)}
        size += len(json.dumps(each))
        if size <= _MOST_TEXT:
            value.append(each)
    return value
