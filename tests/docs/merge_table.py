"""What comes out if two sides each did one operation: the tables of docs/internals/merge-table.md.

`python -m tests.docs.merge_table` does each pair in a lake in memory, and writes the outcomes into the page.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import zarr

from lake_core import Lake
from lake_core.errors import LakeError
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.lake.session.write_session import WriteSession
from lake_core.pool.key_range import KeyRange
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.docs.blocks import DOCS

PAGE = DOCS / "internals" / "merge-table.md"
BEGIN, END = "<!-- begin of what tests/docs/merge_table.py writes -->", "<!-- end -->"

BOTH, CONFLICT, SAME, SKIPPED = "✓", "✗", "=", "skip"
WRONG = "wrong"
"""The outcome that neither order of the two operations has. No pair may have it."""

Situation: TypeAlias = Literal["sessions", "branches"]
SITUATIONS: Sequence[Situation] = ("sessions", "branches")
Operation: TypeAlias = Callable[[WriteSession, str], object]
"""Does one operation in a session. The text tells the values of one side from those of the other."""

_PATH = "data"
_MARKER = ("loader", 1)
_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("text", pa.string())])
_NUMBERS = {"start": 0, "target": 1, "incoming": 2}


@dataclass(frozen=True)
class Table:
    """A table of the page: what each pair of some operations comes to."""

    title: str
    text: str
    """What there is before, and what the operations do."""
    start: Sequence[Operation]
    operations: Mapping[str, Operation]
    read: Callable[[Lake], Any]
    """Returns all that there is, for comparison."""


def _in_sequence(*operations: Operation) -> Operation:
    """Return the operation that does several, in one session."""

    def run(session: WriteSession, side: str) -> None:
        for operation in operations:
            operation(session, side)

    return run


def _after(first: Operation, operations: Mapping[str, Operation], names: Sequence[str]) -> dict[str, Operation]:
    """Return some of the operations, each of which does another one first."""
    return {name: _in_sequence(first, operations[name]) for name in names}


def _drop(session: WriteSession, side: str) -> None:
    session.drop(_PATH)


# Delta tables


def _rows(side: str, part: str, *ids: int) -> pa.Table:
    return pa.table({"id": ids, "part": [part] * len(ids), "text": [side] * len(ids)}, schema=_SCHEMA)


def _create_table(session: WriteSession, side: str) -> object:
    return session.create_delta(_PATH, _SCHEMA, partition_by=["part"], exist_ok=True)


def _create_other_table(session: WriteSession, side: str) -> object:
    return session.create_delta(_PATH, _SCHEMA.append(pa.field(side, pa.int64())))


def _append_to_both(*ids: int) -> Operation:
    return lambda session, side: session.delta(_PATH).append(
        pa.concat_tables([_rows(side, part, *ids) for part in ("a", "b")])
    )


def _upsert(session: WriteSession, side: str) -> object:
    merge = session.delta(_PATH).merge(_rows(side, "a", 1, 5), "t.part = 'a' AND t.id = s.id")
    return merge.when_matched_update("*").when_not_matched_insert("*").execute()


def _read_table(lake: Lake) -> object:
    if _PATH not in lake.at().datasets():
        return None
    table = lake.delta(_PATH)
    metadata = table.snapshot.metadata
    return sorted(map(str, table.to_arrow().to_pylist())), metadata.schema.names, metadata.configuration.get("team")


_DELTA: Mapping[str, Operation] = {
    "append to a": lambda session, side: session.delta(_PATH).append(_rows(side, "a", 1)),
    "append marked": lambda session, side: session.delta(_PATH).append(_rows(side, "b", 8), txn=_MARKER),
    "overwrite": lambda session, side: session.delta(_PATH).overwrite(_rows(side, "a", 9)),
    "replace a": lambda session, side: session.delta(_PATH).overwrite(_rows(side, "a", 9), where="part = 'a'"),
    "replace b": lambda session, side: session.delta(_PATH).overwrite(_rows(side, "b", 9), where="part = 'b'"),
    "upsert": _upsert,
    "delete": lambda session, side: session.delta(_PATH).delete("part = 'a' AND id = 1"),
    "update": lambda session, side: session.delta(_PATH).update({"text": f"'{side}'"}, "part = 'a' AND id = 1"),
    "optimize": lambda session, side: session.delta(_PATH).optimize(),
    "add column": lambda session, side: session.delta(_PATH).add_columns(pa.schema([("more", pa.int64())])),
    "set property": lambda session, side: session.delta(_PATH).set_properties({"team": side}),
    "drop": _drop,
    "recreate": _in_sequence(
        _drop, _create_table, lambda session, side: session.delta(_PATH).append(_rows(side, "a", 10))
    ),
}

# Pools


def _records(side: str, *keys: int) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.int64()), "text": [side] * len(keys)})


def _create_pool(session: WriteSession, side: str) -> object:
    return session.create_pool(_PATH, key="key", exist_ok=True)


def _load(*keys: int, marked: bool = False) -> Operation:
    txn = _MARKER if marked else None
    return lambda session, side: session.pool(_PATH).load(_records(side, *keys), txn=txn)


def _replace(keys: KeyRange, key: int) -> Operation:
    def replace(session: WriteSession, side: str) -> object:
        pool = session.pool(_PATH)
        return pool.replace(pool.write_objects(_records(side, key), [keys]), [keys])

    return replace


def _read_pool(lake: Lake) -> object:
    known = _PATH in lake.at().datasets()
    return sorted(map(str, lake.pool(_PATH).scan().records())) if known else None


_POOL: Mapping[str, Operation] = {
    "load to a": _load(1),
    "load marked": _load(18, marked=True),
    "replace all": _replace(KeyRange(), 9),
    "replace a": _replace(KeyRange.of(0, 10), 9),
    "replace b": _replace(KeyRange.of(10, 20), 19),
    "delete": lambda session, side: session.pool(_PATH).delete("key = 1"),
    "compact": lambda session, side: session.pool(_PATH).compact(),
    "drop": _drop,
    "recreate": _in_sequence(_drop, _create_pool, _load(10)),
}

# Arrays


def _create_repository(session: WriteSession, side: str) -> None:
    zarr.open_group(session.create_icechunk(_PATH, exist_ok=True).store, mode="a")


def _create_array(name: str | None = None) -> Operation:
    def create(session: WriteSession, side: str) -> object:
        group = zarr.open_group(session.icechunk(_PATH).store, mode="a")
        return group.create_array(name or side, shape=(8,), chunks=(2,), dtype="i4", fill_value=-1, compressors=None)

    return create


def _array(session: WriteSession) -> Any:
    return zarr.open_array(session.icechunk(_PATH).store, path="values", mode="r+")


def _write_chunk(number: int) -> Operation:
    def write(session: WriteSession, side: str) -> None:
        _array(session)[number * 2 : number * 2 + 2] = _NUMBERS[side]

    return write


def _write_marked(session: WriteSession, side: str) -> None:
    repository = session.icechunk(_PATH)
    if repository.session.recorded(_MARKER) is None:
        _write_chunk(2)(session, side)
        repository.session.commit("load", txn=_MARKER)


def _append_chunk(session: WriteSession, side: str) -> None:
    _array(session).append(np.full(2, _NUMBERS[side], "i4"))


def _shrink(session: WriteSession, side: str) -> None:
    _array(session).resize((4,))


def _set_attribute(session: WriteSession, side: str) -> None:
    _array(session).attrs["team"] = side


def _delete_array(session: WriteSession, side: str) -> None:
    del zarr.open_group(session.icechunk(_PATH).store, mode="a")["values"]


def _read_arrays(lake: Lake) -> object:
    if _PATH not in lake.at().datasets():
        return None
    members = zarr.open_group(lake.icechunk(_PATH).store, mode="r").members()
    return {
        name: (np.asarray(array[:]).tolist(), dict(array.attrs))
        for name, array in sorted(members)
        if isinstance(array, zarr.Array)
    }


_ARRAY: Mapping[str, Operation] = {
    "write 0": _write_chunk(0),
    "write 1": _write_chunk(1),
    "write marked": _write_marked,
    "append": _append_chunk,
    "shrink": _shrink,
    "set attribute": _set_attribute,
    "delete array": _delete_array,
    "create array": _create_array("second"),
    "drop": _drop,
    "recreate": _in_sequence(_drop, _create_repository, _create_array("third")),
}

# Plain files


def _put(data: bytes) -> Operation:
    return lambda session, side: session.put(_PATH, data)


def _read_file(lake: Lake) -> object:
    state = lake.at()
    return state.get(_PATH) if state.exists(_PATH) else None


_FILE: Mapping[str, Operation] = {
    "put x": _put(b"x"),
    "put y": _put(b"y"),
    "put the same": _put(b"same"),
    "delete": lambda session, side: session.delete([_PATH]),
}

_CREATED = "Each side creates it, and does the operation in the same session."
TABLES: Mapping[str, Table] = {
    "delta": Table(
        "Delta tables",
        "The table has the partitions `a` and `b`, of two files each. `append to a` adds a row that `upsert`, `delete` "
        "and `update` look for, in the partition `a`. `append marked` adds a row to `b`, with the same marker on both "
        "sides. `recreate` drops the table and creates it again with a row, in one session.",
        [_create_table, _append_to_both(1, 2), _append_to_both(3, 4)],
        _DELTA,
        _read_table,
    ),
    "delta-created": Table(
        "Delta tables that both sides create",
        f"There is no table before. {_CREATED} `other columns` creates one with a column that the other side lacks.",
        [],
        {
            "create": _create_table,
            **_after(
                _create_table,
                _DELTA,
                ["append to a", "append marked", "overwrite", "replace a", "upsert", "set property"],
            ),
            "other columns": _create_other_table,
        },
        _read_table,
    ),
    "pool": Table(
        "Pools",
        "The pool has the ranges of keys `a` and `b`, of two data objects each. `load to a` adds a record with the key "
        "that `delete` deletes. `load marked` adds a record to `b`, with the same marker on both sides. `recreate` "
        "drops the pool and creates it again with a record.",
        [_create_pool, *(_load(*keys) for keys in ([1, 3], [2, 4], [11, 13], [12, 14]))],
        _POOL,
        _read_pool,
    ),
    "pool-created": Table(
        "Pools that both sides create",
        f"There is no pool before. {_CREATED} `other key` creates one that is sorted by a key of its own.",
        [],
        {
            "create": _create_pool,
            **_after(_create_pool, _POOL, ["load to a", "load marked", "replace all", "replace a"]),
            "other key": lambda session, side: session.create_pool(_PATH, key=side),
        },
        _read_pool,
    ),
    "array": Table(
        "Arrays",
        "The repository has one array of four chunks. `write 0` and `write 1` write its first two chunks, and `write "
        "marked` the third, with the same marker on both sides. `append` makes the array longer by a chunk, and "
        "`shrink` shorter by two. `create array` creates a second array, under the same name on both sides. `recreate` "
        "drops the repository and creates it again, with another array.",
        [_create_repository, _create_array("values"), *(_write_chunk(number) for number in range(4))],
        _ARRAY,
        _read_arrays,
    ),
    "array-created": Table(
        "Repositories that both sides create",
        f"There is no repository before. {_CREATED} `own array` creates an array whose name the other side does not "
        "use.",
        [],
        {
            "create": _create_repository,
            "create array": _in_sequence(_create_repository, _create_array("values")),
            "own array": _in_sequence(_create_repository, _create_array()),
        },
        _read_arrays,
    ),
    "file": Table(
        "Plain files",
        "There is a file. `put the same` puts the content that it has.",
        [_put(b"same")],
        _FILE,
        _read_file,
    ),
    "file-created": Table(
        "Plain files that both sides create",
        "There is no file before.",
        [],
        {name: _FILE[name] for name in ("put x", "put y")},
        _read_file,
    ),
}


@dataclass(frozen=True)
class _World:
    """A lake in memory, which can be copied."""

    store: MemoryStore
    clock: ManualClock
    lake: Lake

    @classmethod
    def create(cls, start: Sequence[Operation]) -> _World:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        world = cls(store, clock, Lake.create(store, clock=clock))
        for operation in (lambda session, side: session.put("unrelated", b""), *start):
            world.run(operation, "start")
        return world

    def copy(self) -> _World:
        store = MemoryStore(clock=self.clock)
        for meta in self.store.list():
            store.put(meta.key, self.store.get(meta.key))
        return _World(store, self.clock, Lake.open(store, clock=self.clock))

    def run(self, operation: Operation, side: str, branch: str = "main") -> None:
        """Do an operation on a branch, in one session."""
        with self.lake.session(branch) as session:
            operation(session, side)


class Outcomes:
    """What pairs of the operations of a table come to."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._start = _World.create(table.start)
        self._incoming = self._start.copy()
        """For each operation there are a branch and an unpublished session in which it was done."""
        for number, operation in enumerate(table.operations.values()):
            self._incoming.lake.create_branch(f"branch-{number}")
            self._incoming.run(operation, "incoming", f"branch-{number}")
            with self._incoming.lake.open_session("main", id=f"session-{number}").join(task="it", attempt=1) as writer:
                operation(writer, "incoming")
        self._targets: dict[str, tuple[_World, _World]] = {}
        self._changes: dict[str, bool] = {}
        self._orders: dict[tuple[str, str], list[object]] = {}

    def outcome(self, target: str, incoming: str, situation: Situation) -> str:
        """Return what comes out if the target did one operation, and another one comes."""
        world, alone = self._with_target(target)
        number = list(self.table.operations).index(incoming)
        world = world.copy()
        before = world.lake.list_branches()["main"]
        try:
            if situation == "sessions":
                published = world.lake.get_session(f"session-{number}").publish()
            else:
                published = world.lake.merge(f"branch-{number}")
        except Conflict:
            return CONFLICT
        except NothingToApply:
            return SAME
        state = self.table.read(world.lake)
        if not self._is_in_order(target, incoming, state):
            return WRONG
        if published.skipped:
            return SKIPPED
        if state == self.table.read(alone.lake) and self._adds(incoming):
            return SAME
        return BOTH if any(True for _ in world.lake.diff(before, "main")) else SAME

    def _adds(self, incoming: str) -> bool:
        """Return whether an operation changes more than how the rows are stored."""
        if incoming not in self._changes:
            world = self._start.copy()
            world.run(self.table.operations[incoming], "incoming")
            self._changes[incoming] = self.table.read(world.lake) != self.table.read(self._start.lake)
        return self._changes[incoming]

    def _with_target(self, name: str) -> tuple[_World, _World]:
        """Return the lake in which the target did an operation, and that without what comes."""
        if name not in self._targets:
            worlds = self._incoming.copy(), self._start.copy()
            for world in worlds:
                world.run(self.table.operations[name], "target")
            self._targets[name] = worlds
        return self._targets[name]

    def _is_in_order(self, target: str, incoming: str, state: object) -> bool:
        """Return whether the operations lead to a state if one is done after the other."""
        states = self._orders.setdefault((target, incoming), [])
        if not states:
            states.append(self._then(self._with_target(target)[1].copy(), incoming, "incoming"))
        if state not in states and len(states) == 1:
            other = self._start.copy()
            other.run(self.table.operations[incoming], "incoming")
            states.append(self._then(other, target, "target"))
        return state in states

    def _then(self, world: _World, name: str, side: str) -> object:
        with suppress(LakeError):  # what is gone cannot be dropped again
            world.run(self.table.operations[name], side)
        return self.table.read(world.lake)


def lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table, in Markdown. A cell has two outcomes if the situations differ."""
    outcomes = Outcomes(table)
    yield f"| target ↓ incoming → | {' | '.join(table.operations)} |"
    yield f"|---|{':-:|' * len(table.operations)}"
    for target in table.operations:
        cells = [
            " / ".join(dict.fromkeys(outcomes.outcome(target, incoming, each) for each in SITUATIONS))
            for incoming in table.operations
        ]
        yield f"| **{target}** | {' | '.join(cells)} |"


def section(table: Table) -> str:
    """Return the section of a table in the page."""
    text = textwrap.fill(table.text, 140)
    return "\n".join([f"## {table.title}", "", text, "", *lines(table), ""])


def main() -> None:
    """Write the tables into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = "\n".join(map(section, TABLES.values()))
    PAGE.write_text(f"{before}{BEGIN}\n\n{sections}\n{END}{after}")


if __name__ == "__main__":
    main()
