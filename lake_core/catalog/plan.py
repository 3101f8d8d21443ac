"""What a sync does: the difference between a lake's tables and a catalog's, decided without asking either."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from lake_core.catalog.definition import is_at
from lake_core.catalog.names import names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.catalog.definition import Origin, RegisteredTable


class Position(Enum):
    """Where a commit that a catalog records is, seen from the commit that is synced."""

    REACHED = "reached"
    """It is the commit itself, or one before it."""
    LATER = "later"
    """It comes after the commit."""
    UNKNOWN = "unknown"
    """The branch has no such commit."""
    REPLACED = "replaced"
    """The lake has it, and the branch does not: it was deleted, and another one has its name."""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table at the commit that is synced."""

    path: str
    dataset: str
    version: int
    location: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Register a table."""

    name: str
    table: LakeTable


@dataclass(frozen=True, slots=True)
class UpdateTable:
    """Write a table to the catalog again."""

    name: str
    table: LakeTable
    current: RegisteredTable


@dataclass(frozen=True, slots=True)
class DropTable:
    """Remove a table that the branch no longer has, or that has another name now."""

    name: str
    current: RegisteredTable


Change: TypeAlias = "CreateTable | UpdateTable | DropTable"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A table that is left as it is, and why."""

    name: str
    """The path of the table in the lake, or its name in the catalog if the lake has none."""
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of a sync. Creations come before drops, so that a table that gets another name is never missing."""

    changes: Sequence[Change] = ()
    refused: Sequence[Refusal] = ()
    later: Sequence[str] = ()
    """The names of tables that a sync of a later commit has written. They are left as they are."""
    unchanged: int = 0
    """The number of tables that the catalog has as they are."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is synced, and what the caller allows."""

    lake: str
    """The id of the lake."""
    branch: str
    names: Mapping[str, str]
    """The names that the caller chose, by path."""
    longest_name: int
    root: str
    """The URL of the folder that has the tables by their paths, as the catalog's readers open it."""
    moved: bool = False
    """Whether the lake was moved or restored: its tables may be registered at other places and unknown commits."""


def plan_sync(
    tables: Sequence[LakeTable],
    registered: Mapping[str, RegisteredTable],
    source: Source,
    position: Callable[[str], Position],
) -> Plan:
    """Return what makes a catalog show the tables of a branch.

    Args:
        tables: The tables of the branch.
        registered: All tables of the catalog's schema by name, also those of others.
        source: What is synced.
        position: Returns where a commit is that the catalog records.
    """
    own = {
        name: (current, current.origin)
        for name, current in registered.items()
        if current.origin is not None and (current.origin.lake, current.origin.branch) == (source.lake, source.branch)
    }
    holders = {name: origin.path for name, (_, origin) in own.items()}
    names, collisions = names_of([table.path for table in tables], source.names, source.longest_name, holders)
    creates: list[Change] = []
    drops: list[Change] = []
    refused = [Refusal(path, reason) for path, reason in sorted(collisions.items())]
    later: list[str] = []
    unchanged = 0
    for table in sorted(tables, key=lambda each: each.path):
        if table.path not in names:
            continue
        name = names[table.path]
        if name not in registered:
            creates.append(CreateTable(name, table))
            continue
        if name not in own:
            refused.append(Refusal(table.path, _taken(name, registered[name], source, table.path)))
            continue
        current, origin = own[name]
        if _is_written(current, origin, table) and position(origin.commit) is not Position.REPLACED:
            unchanged += 1
            continue
        reason, is_later = _obstacle(current, origin, source, position)
        if is_later:
            later.append(name)
        elif reason:
            refused.append(Refusal(table.path, reason))
        else:
            creates.append(UpdateTable(name, table, current))
    kept = set(names.values()) | {name for name, path in holders.items() if path in collisions}
    for name, (current, origin) in sorted(own.items()):
        if name in kept:
            continue
        reason, is_later = _obstacle(current, origin, source, position)
        if is_later:
            later.append(name)
        elif reason:
            refused.append(Refusal(name, reason))
        else:
            drops.append(DropTable(name, current))
    return Plan([*creates, *drops], refused, later, unchanged)


def _is_written(current: RegisteredTable, origin: Origin, table: LakeTable) -> bool:
    """Return whether the catalog has a table as it is."""
    is_same = (origin.path, origin.dataset, origin.version) == (table.path, table.dataset, table.version)
    return is_same and is_at(current.location, table.location)


def _obstacle(
    current: RegisteredTable, origin: Origin, source: Source, position: Callable[[str], Position]
) -> tuple[str | None, bool]:
    """Return why a table of the lake cannot be changed, and whether that is because a later commit was synced."""
    place = position(origin.commit)
    if place is Position.LATER:
        return None, True
    if source.moved:
        return None, False
    remedy = "pass --moved if the lake was moved or restored. A copy of a lake needs a schema of its own"
    if place is Position.UNKNOWN:
        commit = origin.commit[:12]
        known = f"the branch {source.branch!r} does not have"
        return f"{current.name!r} is registered as of the commit {commit}, which {known}: {remedy}", False
    location = f"{source.root}/{origin.path}"
    if not is_at(current.location, location):
        return (
            f"{current.name!r} is registered at {current.location!r}, and this lake has it at {location}: {remedy}",
            False,
        )
    return None, False


def _taken(name: str, current: RegisteredTable, source: Source, path: str) -> str:
    """Return why a name is not free, and what to do."""
    remedy = f"choose another name by --name '{path}=NAME', or another schema"
    if current.origin is None:
        return f"{name!r} is in the catalog, and no lake registered it: {remedy}"
    if current.origin.lake != source.lake:
        return f"{name!r} is a table of another lake, {current.origin.lake!r}: {remedy}"
    return f"{name!r} is registered from the branch {current.origin.branch!r} of this lake: {remedy}"
