"""Defects of a lake, as `verify` reports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Problem:
    """A defect of a lake."""

    kind: Literal["missing", "corrupt", "changed", "unreadable", "diverged", "not checked out"]
    key: str
    detail: str
