"""Ids of sessions that are made of other names: those of runs, and of the generations of a run."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_SHOWN: Final = 60
"""The most characters of the names that an id shows. A hash tells those apart that differ in the rest."""
_HASH: Final = 10


def session_name(*parts: str) -> str:
    """Return the id of a session for some texts, such as the names of a job and a run. Other texts give another id."""
    if not parts:
        raise ValueError("a session's name is made of at least one text")
    shown = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(parts)).strip("-")[:_MOST_SHOWN].strip("-")
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_HASH]
    return f"{shown}-{digest}" if shown else f"session-{digest}"


def newest_generation(id: str, ids: Iterable[str]) -> int:
    """Return the number of the newest generation of a session among some ids; 0 if there is none."""
    pattern = re.compile(rf"{re.escape(id)}(?:\.([2-9]|[1-9][0-9]+))?")
    matches = (pattern.fullmatch(each) for each in ids)
    return max((int(match[1] or 1) for match in matches if match is not None), default=0)


def generation_id(id: str, number: int) -> str:
    """Return the id of a generation of a session: the first one has the session's own id."""
    return id if number <= 1 else f"{id}.{number}"
