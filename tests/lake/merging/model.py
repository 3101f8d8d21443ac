"""What a merge means, as a model: the sets of writes of `docs/internals/merge.md`, without a lake.

A lake here has one dataset (rows with a key, in files that never change), one property and one plain file. `merge` is
the whole meaning. A publish, a squash, a pick and a revert are its special cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Id: TypeAlias = tuple[Any, ...]
"""The identity of a write: (branch, number), or ("marker", name, making)."""
Name: TypeAlias = tuple[Any, ...]
"""What a write adds or removes: (kind, id of the write that added it, number)."""
Row: TypeAlias = tuple[int, Id]
"""A key, and the write that made the row."""

KEYS = (1, 2)
WHOLE_KEYS = frozenset(KEYS)


class Refused(Exception):
    """The operation conflicts."""


class Nothing(Exception):
    """There is nothing to do, or nothing to do it with."""


class Write:
    """One operation on the dataset, the property or the plain file, made on the version `at`."""

    def __init__(
        self,
        id: Id,
        operation: str,
        at: Version,
        *,
        adds: Mapping[Name, Any] | None = None,
        removes: Iterable[Name] = (),
        reads: Iterable[int] = (),
        kills: Iterable[Row] = (),
        undoes: Iterable[Id] = (),
    ) -> None:
        self.id, self.operation = id, operation
        self.adds, self.removes = dict(adds or {}), frozenset(removes)
        self.reads, self.kills, self.undoes = frozenset(reads), frozenset(kills), frozenset(undoes)
        old = {row for name in self.removes if name[0] == "file" for row in at.state[name]}
        rows = {row for name, payload in self.adds.items() if name[0] == "file" for row in payload}
        self.rows = frozenset(rows - old)
        self.under = at.live("table")
        self.past, self.saw = frozenset(at.reached), at.in_force
        self.touches = frozenset(row[0] for row in self.rows | self.kills)
        self.carries = frozenset(name for name in self.removes if name[0] == "file" and at.state[name] & rows)


Reached: TypeAlias = Mapping[Id, Write]


def in_force(reached: Reached) -> frozenset[Id]:
    """Return the ids of the writes that no write in force undoes."""
    undoers: dict[Id, list[Id]] = {}
    for write in reached.values():
        for id in write.undoes:
            undoers.setdefault(id, []).append(write.id)
    known: dict[Id, bool] = {}

    def holds(id: Id) -> bool:
        if id not in known:
            known[id] = not any(holds(undoer) for undoer in undoers.get(id, ()))
        return known[id]

    return frozenset(id for id in reached if holds(id))


@dataclass
class Version:
    """A version of a branch: the writes that reached it, which of them are in force, and what there is."""

    reached: Reached
    parents: tuple[Version, ...] = ()
    in_force: frozenset[Id] = field(init=False)
    state: dict[Name, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.in_force = in_force(self.reached)
        writes = [self.reached[id] for id in self.in_force]
        removed = {name for write in writes for name in write.removes}
        self.state = {name: payload for write in writes for name, payload in write.adds.items() if name not in removed}

    def live(self, kind: str) -> frozenset[Name]:
        return frozenset(name for name in self.state if name[0] == kind)

    def new(self) -> list[Id]:
        """Return the writes that this version made or brought."""
        return [id for id in self.reached if not self.parents or id not in self.parents[0].reached]

    def rows(self) -> Counter[Row]:
        return Counter(row for name in self.live("file") for row in self.state[name])

    def meant(self) -> frozenset[Row]:
        """Return the rows by the writes alone: theirs, less those that a write in force deleted."""
        writes = [self.reached[id] for id in self.in_force]
        return frozenset().union(*(write.rows for write in writes)) - frozenset().union(
            *(write.kills for write in writes)
        )

    def value(self, kind: str) -> Any:
        """Return the value of the property or the plain file, None without one."""
        return next((self.state[name] for name in self.live(kind)), None)


def merge(
    target: Version, incoming: Version, new: Collection[Id] | None = None, *, is_own: bool = False
) -> dict[Id, Write]:
    """Return what reaches `target` with the writes `new` of `incoming`, by default all that it lacks.

    `is_own` is for a write that was made on the target itself. Raises Refused, Nothing.
    """
    coming = frozenset(incoming.reached if new is None else new) - target.reached.keys()
    if not coming:
        raise Nothing("all is there")
    reached = {**{id: incoming.reached[id] for id in coming}, **target.reached}
    result = Version(reached)
    for id in coming & result.in_force:
        if reached[id].undoes - reached.keys():
            raise Refused("it undoes what is not there")
    _check_reads(target, incoming, coming, result, is_own=is_own)
    _check_names(result)
    _check_values(target, result)
    return reached


def _check_reads(target: Version, incoming: Version, coming: frozenset[Id], result: Version, *, is_own: bool) -> None:
    """Check that what a write read is as it saw it, and that it did not read what the target changed beside it."""
    reached = result.reached
    for id in result.in_force:
        write = reached[id]
        for other in write.past if write.reads else ():
            seen = reached.get(other) or incoming.reached.get(other)
            comes = other in result.in_force
            if seen is None or comes == (other in write.saw):
                continue
            # Without rows that were added, a deletion would only have had less to delete.
            only_more = not comes and write.operation == "delete"
            if write.reads & (frozenset(key for key, _ in seen.kills) if only_more else seen.touches):
                raise Refused("it read what is undone, redone or lacking")
        if id in coming or id not in target.in_force:
            beside = {*write.past, *(incoming.in_force if id in incoming.in_force and not is_own else ())}
            beside.update(*(one.saw for one in target.reached.values() if id in one.undoes))
            for other in (result.in_force & target.in_force) - beside:
                twice = write.operation == reached[other].operation == "drop"  # both did the same
                if write.reads & reached[other].touches and not twice:
                    raise Refused("it read what the target changed")


def _check_names(result: Version) -> None:
    """Check that what a write carried on is in force once, in the copy that it read."""
    reached = result.reached
    removers: dict[Name, list[Write]] = {}
    for id in result.in_force:
        for name in reached[id].removes:
            removers.setdefault(name, []).append(reached[id])
    for name, writes in removers.items():
        carried = any(name in write.carries for write in writes)
        adder = name[1]
        gone = adder not in result.in_force and (
            carried or name[0] != "file" or adder not in reached or bool(reached[adder].carries)
        )
        if gone or (carried and len(writes) > 1):
            raise Refused("it was rewritten together with what must not come, or on both sides")
        if adder in result.in_force and name not in reached[adder].adds:
            raise Refused("it changed the other copy of a marked write")


def _check_values(target: Version, result: Version) -> None:
    makings = Counter(id[1] for id in result.in_force if id[0] == "marker")
    if makings and max(makings.values()) > 1:
        raise Refused("a marker was made again on one side and redone on the other")
    for kind in ("key", "property"):
        if len({result.state[name] for name in result.live(kind)}) > 1:
            raise Refused("both sides changed one value")
    tables = result.live("table")
    for name in result.live("file") | result.live("property"):
        lost = target.state.keys() - result.state.keys()
        if not result.reached[name[1]].under & tables and name not in lost:
            raise Refused("the table was dropped")


def undo(head: Version, base: Version, last: Version, id: Id) -> Write:
    """Return the write that takes back the net of what happened between `base` and `last`. Raises Refused, Nothing."""
    among = {one: write for one, write in last.reached.items() if one not in base.reached and one in head.reached}
    beyond = [one for one, write in among.items() if write.operation != "undo" or write.undoes & base.reached.keys()]
    named = {one for one in beyond if one in head.in_force}
    if not named:
        raise Nothing("already undone")
    while True:
        made = Write(id, "undo", head, undoes=named)
        after = in_force({**head.reached, id: made})
        back = {one for one in beyond if one in after and one not in named}
        if not back:
            break
        named |= back
    for one in base.in_force ^ last.in_force:
        write = last.reached.get(one) or base.reached[one]
        stays = (one in last.in_force) == (one in head.in_force)
        if write.operation != "undo" and stays and (one in after) != (one in base.in_force):
            raise Refused("another undo of the same write stands")
    return made


_VALUES = {"put0": 0, "put1": 1, "unput": None}


def make(head: Version, operation: str, id: Id) -> Write:
    """Return the write of an operation on `head`. Raises Nothing."""
    files, tables = head.live("file"), head.live("table")
    rows = frozenset(row for name in files for row in head.state[name])
    if operation in _VALUES:
        value = _VALUES[operation]
        old = head.live("key")
        if {head.state[name] for name in old} == {value} or (not old and value is None):
            raise Nothing(operation)
        return Write(id, operation, head, adds={("key", id, 0): value}, removes=old)
    if (operation == "create") == bool(tables):
        raise Nothing("there is no table, or one already")
    match operation:
        case "create":
            return Write(id, operation, head, adds={("table", id, 0): None})
        case "drop":
            gone = tables | files | head.live("property")
            return Write(id, operation, head, removes=gone, kills=rows, reads=KEYS)
        case "alter":
            old = head.live("property")
            return Write(id, operation, head, adds={("property", id, 0): "".join(map(str, id))}, removes=old)
        case "compact":
            if len(files) < 2:
                raise Nothing(operation)
            return Write(id, operation, head, adds={("file", id, 0): rows}, removes=files)
        case "mark":
            makings = [one for one in head.reached if one[:2] == ("marker", "m")]
            if any(one in head.in_force for one in makings):
                raise Nothing("skipped")
            made = ("marker", "m", max((one[2] + 1 for one in makings), default=0))
            return Write(made, operation, head, adds={("file", made, id): frozenset([(1, made)])})
        case "append":
            return Write(id, operation, head, adds={("file", id, 0): frozenset((key, id) for key in KEYS)})
    keys = KEYS if operation == "overwrite" else (1,)
    kills = frozenset(row for row in rows if row[0] in keys)
    hit = [name for name in files if head.state[name] & kills]
    adds = {("file", id, n): head.state[name] - kills for n, name in enumerate(sorted(hit, key=str), 1)}
    adds = {name: rest for name, rest in adds.items() if rest}
    if operation != "delete":
        adds["file", id, 0] = frozenset([(1, id)])
    elif not kills:
        raise Nothing(operation)
    return Write(id, operation, head, adds=adds, removes=hit, kills=kills, reads=keys)


def make_all(head: Version, operation: str, id: Id) -> list[Write]:
    """Return the writes of an operation on `head`, which become one version. Raises Nothing."""
    if operation != "both":
        return [make(head, operation, id)]
    writes = []
    with suppress(Nothing):
        writes.append(make(head, "mark", id))
    marked = Version({**head.reached, **{write.id: write for write in writes}})
    return [*writes, make(marked, "append", (*id, "and"))]


def spread(version: Version, other: Version, tag: str) -> Version:
    """Return a version without the compactions that `other` lacks, where nothing depends on them."""
    own = [id for id in version.in_force if version.reached[id].operation == "compact" and id not in other.reached]
    for id in sorted(own, key=lambda id: (id[1], id[0]), reverse=True):
        write = Write((tag, *id), "undo", version, undoes=[id])
        try:
            made = Version({**version.reached, write.id: write})
            version = Version(merge(version, made, [write.id], is_own=True), version.parents)
        except Refused:
            pass
    return version


def merge_giving_way(target: Version, incoming: Version, tag: str) -> dict[Id, Write]:
    """Merge; rather than refuse, undo the compactions that one side lacks. Raises Refused, Nothing."""
    try:
        return merge(target, incoming)
    except Refused as refused:
        sides = spread(target, incoming, f"{tag}t"), spread(incoming, target, f"{tag}i")
        if sides[0] is target and sides[1] is incoming:
            raise
        try:
            return merge(*sides)
        except Refused:
            raise refused from None


Operation: TypeAlias = "str | tuple[str, str]"
"""A text, or (text, other branch) for a merge, squash or pick."""
Branches: TypeAlias = Mapping[str, "list[Version]"]


def perform(branches: Branches, branch: str, operation: Operation) -> tuple[Version, Sequence[Write]]:
    """Return the next version of a branch, and the writes that it made, none for a merge. Raises Refused, Nothing."""
    head, id = branches[branch][-1], (branch, len(branches[branch]))
    if isinstance(operation, tuple):
        kind, name = operation
        other = branches[name][-1]
        if kind == "pick":
            if not other.parents:
                raise Nothing("there is no commit")
            return Version(merge(head, other, other.new()), (head,)), ()
        reached = merge_giving_way(head, other, f"{branch}{len(branches[branch])}")
        return Version(reached, (head, other) if kind == "merge" else (head,)), ()
    if operation in ("revert", "revert2"):
        back = 1 if operation == "revert" else 2
        if len(branches[branch]) <= back:
            raise Nothing("there is no such commit")
        writes = [undo(head, branches[branch][-back - 1], branches[branch][-back], id)]
    else:
        writes = make_all(head, operation, id)
    made = {write.id: write for write in writes}
    return Version(merge(head, Version({**head.reached, **made}), made, is_own=True), (head,)), writes
