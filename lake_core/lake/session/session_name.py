"""Ids of sessions that are made of other names, such as those of runs."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

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
