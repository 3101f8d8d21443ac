"""Loads with a marker that became one commit together with other writes.

A commit that several writes became records the data objects of each such load. So a target that has one of these
writes, by its marker, can take the others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeAlias

from lake_core.pool.errors import InvalidZng
from lake_core.pool.marker import rising

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lake_core.pool.commit_store import Change
    from lake_core.pool.marker import Markers

_MOST_TEXT: Final = 64 * 1024
"""The most characters that a commit records of them. Loads that do not fit cannot be told apart."""

MarkedAppends: TypeAlias = "Mapping[tuple[str, int], Sequence[str]]"
"""The ids of the data objects that loads added, by application id and version."""


def marked_appends(changes: Sequence[Change], before: Markers, added: Collection[str]) -> MarkedAppends:
    """Return the loads with a marker among commits, whose data objects are there as they were added.

    Args:
        changes: The commits, newest first.
        before: The markers before all of them.
        added: The ids of the data objects that they add, all together.
    """
    appends: dict[tuple[str, int], Sequence[str]] = {}
    for number, change in enumerate(changes):
        earlier = changes[number + 1].commit.markers or {} if number + 1 < len(changes) else before
        raised = rising(earlier, change.commit.markers or {})
        appends |= change.commit.appends
        if change.commit.writes == 1 and len(raised) == 1 and not change.replaced:
            appends |= {(application, marker.version): change.added for application, marker in raised.items()}
    return {marker: ids for marker, ids in appends.items() if set(ids) <= set(added)}


def appends_texts(appends: MarkedAppends) -> list[str]:
    """Return loads as texts, each a JSON object."""
    texts: list[str] = []
    size = 0
    for (application, version), ids in appends.items():
        text = json.dumps({"application": application, "version": version, "objects": list(ids)}, ensure_ascii=False)
        size += len(text)
        if size <= _MOST_TEXT:
            texts.append(text)
    return texts


def appends_from(texts: Iterable[str]) -> MarkedAppends:
    """Return the loads of texts. Raises InvalidZng."""
    try:
        loads = [json.loads(text) for text in texts]
        return {(load["application"], load["version"]): load["objects"] for load in loads}
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidZng(f"it records loads in another form: {error!r}") from None
