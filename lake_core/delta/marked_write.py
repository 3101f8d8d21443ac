"""Writes with a txn action, also where they became one version together with others.

A version that several writes became records those with a txn action, and the files of those that only added some. So a
target that has such writes can take the others.
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

MARKED_FIELD: Final = "lakeMarked"
"""The field of `commitInfo` for the writes with a txn action, where several writes became a version."""
_MOST_TEXT: Final = 64 * 1024
"""The most characters of paths in the field. Writes whose paths do not fit cannot be told apart."""
_OTHER_ACTIONS: Final = (b'"remove"', b'"metaData"', b'"protocol"', b'"domainMetadata"', b'"cdc"')

MarkedWrites: TypeAlias = "Mapping[tuple[str, int], Sequence[str] | None]"
"""By application id and version: the paths of the files that a write added, None if it did more, or they are gone."""


def marked_writes(commits: CommitRange, added: pa.Table) -> MarkedWrites | None:
    """Return the writes with a txn action that commits are. None if they are not known.

    Args:
        commits: The commits of a difference.
        added: The files that the difference adds, with `path` and, if any has one, `deletionVector`.
    """
    unchanged = added
    if "deletionVector" in added.column_names:
        unchanged = added.filter(pc.is_null(added["deletionVector"]))
    there = set(unchanged["path"].to_pylist())
    writes: dict[tuple[str, int], Sequence[str] | None] = {}
    appends: dict[int, tuple[str, int]] = {}
    newest: dict[str, int] = {}
    for version, body in commits.bodies:
        in_commit = _marked_in(version, body)
        if in_commit is None or any(number < newest.get(application, 0) for application, number in in_commit):
            return None
        newest |= {application: max(number, newest.get(application, 0)) for application, number in in_commit}
        writes |= in_commit
        if len(in_commit) == 1 and not any(action in body for action in (*_OTHER_ACTIONS, MARKED_FIELD.encode())):
            appends[version] = next(iter(in_commit))
    writes |= _files_of_appends(commits, appends)
    return {
        marker: paths if paths is not None and there.issuperset(paths) else None for marker, paths in writes.items()
    }


def _marked_in(version: int, body: bytes) -> MarkedWrites | None:
    """Return the marked writes of one commit, as far as it records their files. None if they are not known."""
    if b'"txn"' not in body and MARKED_FIELD.encode() not in body:
        return {}
    info = read_commit_info(version, body)
    if MARKED_FIELD in info:
        return _read(info[MARKED_FIELD])
    actions = [action for action in single_actions(version, body, "txn") if int(action["version"]) >= 0]
    if actions and (info.get(WRITES_FIELD, 1) != 1 or ("lakeSession" in info and WRITES_FIELD not in info)):
        return None
    return {(str(action["appId"]), int(action["version"])): None for action in actions}


def _files_of_appends(
    commits: CommitRange, appends: Mapping[int, tuple[str, int]]
) -> dict[tuple[str, int], Sequence[str] | None]:
    """Return the files that some versions added, by the markers of their writes."""
    bodies = [(version, body) for version, body in commits.bodies if version in appends]
    if not bodies:
        return {}
    files = parse_run(bodies, (), None).adds.group_by("commit").aggregate([("path", "list"), ("dataChange", "all")])
    columns = (files[name].to_pylist() for name in ("commit", "path_list", "dataChange_all"))
    by_version = {version: paths if is_change else None for version, paths, is_change in zip(*columns, strict=True)}
    return {marker: by_version.get(version, []) for version, marker in appends.items()}


def _read(recorded: Any) -> MarkedWrites | None:
    """Return the writes of the field; None if it is not as this module writes it."""
    try:
        return {
            (str(each["appId"]), int(each["version"])): [str(path) for path in each["paths"]]
            if "paths" in each
            else None
            for each in recorded
        }
    except (TypeError, KeyError, ValueError):
        return None


def marked_field(writes: MarkedWrites) -> list[dict[str, Any]]:
    """Return the value of the field for some writes."""
    value: list[dict[str, Any]] = []
    size = 0
    for (application, version), paths in writes.items():
        each: dict[str, Any] = {"appId": application, "version": version}
        size += 0 if paths is None else len(json.dumps(paths))
        value.append(each if paths is None or size > _MOST_TEXT else {**each, "paths": list(paths)})
    return value


def sets_marker(commits: CommitRange, application: str, number: int) -> bool:
    """Return whether one of the commits is, or contains, the write of an application id and version."""
    name = json.dumps(application).encode()
    plain = json.dumps(application, ensure_ascii=False).encode()
    for version, body in commits.bodies:
        if name not in body and plain not in body:
            continue
        actions = single_actions(version, body, "txn")
        if any((action.get("appId"), action.get("version")) == (application, number) for action in actions):
            return True
        if MARKED_FIELD.encode() in body and (application, number) in (_marked_in(version, body) or {}):
            return True
    return False
