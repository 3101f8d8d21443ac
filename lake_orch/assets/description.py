"""What metadata holds besides numbers and text. An orchestrator's adapter makes its own values of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

AssetPath: TypeAlias = tuple[str, ...]
"""The parts of an asset's key."""


@dataclass(frozen=True, slots=True)
class Markdown:
    """Text that is shown as it is formatted."""

    text: str


@dataclass(frozen=True, slots=True)
class Records:
    """A small table that is shown. Each record has a value for each column."""

    columns: Sequence[str]
    records: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a variable of arrays."""

    name: str
    type: str
    """As text, such as Spark SQL spells it."""
    description: str | None = None
    nullable: bool = True
    unique: bool = False
    other: Sequence[str] = ()
    """Other constraints, as text."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """The columns of a dataset."""

    columns: Sequence[Column]
    other: Sequence[str] = ()
    """Constraints on several columns, as text."""


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """The columns of upstream assets that columns are computed from."""

    sources: Mapping[str, Sequence[tuple[AssetPath, str]]]
    """By column: the assets, with the names of their columns."""
