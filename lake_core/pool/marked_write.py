"""Writes with a marker that became one commit together with others.

A commit that several writes became records those with a marker, and the data objects of those that only added some. So
a target that has such writes can take the others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lake_core.pool.errors import InvalidZng

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST_TEXT: Final = 64 * 1024
"""The most characters of ids that a commit records. Writes whose ids do not fit cannot be told apart."""

MarkedWrites: TypeAlias = "Mapping[tuple[str, int], Sequence[str] | None]"
"""By application id and version: the ids of the data objects that a write added, None if it did more."""


def marked_texts(writes: MarkedWrites) -> list[str]:
    """Return writes as texts, each a JSON object."""
    texts: list[str] = []
    size = 0
    for (application, version), ids in writes.items():
        each: dict[str, Any] = {"application": application, "version": version}
        size += 0 if ids is None else len(json.dumps(ids))
        if ids is not None and size <= _MOST_TEXT:
            each["objects"] = list(ids)
        texts.append(json.dumps(each, ensure_ascii=False))
    return texts


def marked_from(texts: Iterable[str]) -> MarkedWrites:
    """Return the writes of texts. Raises InvalidZng."""
    try:
        writes = [json.loads(text) for text in texts]
        return {(write["application"], write["version"]): write.get("objects") for write in writes}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidZng(f"it records writes in another form: {error!r}") from None
