"""Random histories against a model that is only a dict.

Replay, checkpoints, refresh and time travel agree with it, and so does every operation, on fresh and on stale handles.
"""

from __future__ import annotations

import datetime as dt
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    ConcurrentModification,
    ConstraintViolation,
    CorruptCheckpoint,
    DataFileMissing,
    LogGap,
    VersionNotFound,
)
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows
from tests.examples import examples

Step = tuple[str, int, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "append",
                "append",
                "overwrite",
                "partition",
                "clear",
                "marked",
                "checkpoint",
                "lose_hint",
                "break_checkpoint",
            ]
        ),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=25,
)


@settings(max_examples=examples(30))
@given(STEPS, st.integers(1, 4))
def test_random_histories(steps: list[Step], interval: int) -> None:
    store = MemoryStore()
    writer = DeltaTable.create(
        store, SCHEMA, partition_by=["p"], properties={"delta.checkpointInterval": str(interval)}
    )
    follower = DeltaTable.open(store)
    model: dict[int, str] = {}
    history = [dict(model)]
    marked: set[int] = set()
    next_id = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for verb, number, part in steps:
            match verb:
                case "append":
                    writer.append(rows(next_id, next_id + number))
                    model |= {i: f"p{i % 3}" for i in range(next_id, next_id + number)}
                    next_id += number
                case "overwrite":
                    writer.overwrite(rows(next_id, next_id + number))
                    model = {i: f"p{i % 3}" for i in range(next_id, next_id + number)}
                    next_id += number
                case "partition":
                    new = [i for i in range(next_id, next_id + 9) if i % 3 == part][:number]
                    chosen = rows(next_id, next_id + 9)
                    writer.overwrite(
                        chosen.filter([i in new for i in chosen["id"].to_pylist()]), where=f"p = 'p{part}'"
                    )
                    model = {i: p for i, p in model.items() if p != f"p{part}"} | dict.fromkeys(new, f"p{part}")
                    next_id += 9
                case "clear":
                    writer.overwrite(SCHEMA.empty_table(), where=f"p >= 'p{part}'")
                    model = {i: p for i, p in model.items() if p < f"p{part}"}
                case "marked":
                    result = writer.append(rows(next_id, next_id + 1), txn=("app", number))
                    assert result.skipped == any(marker >= number for marker in marked)
                    if not result.skipped:
                        model[next_id] = f"p{next_id % 3}"
                        next_id += 1
                        marked.add(number)
                case "checkpoint":
                    writer.checkpoint()
                case "lose_hint":
                    store.delete(["_delta_log/_last_checkpoint"])
                case "break_checkpoint":
                    for meta in list(store.list("_delta_log/")):
                        if meta.key.endswith(".checkpoint.parquet"):
                            store.put(meta.key, b"PAR1 no parquet")
            if writer.version == len(history):
                history.append(dict(model))
            assert writer.version == len(history) - 1
        for table in (writer, follower.refresh(), DeltaTable.open(store)):
            assert dict(zip(*table.to_arrow(columns=["id", "p"]).to_pydict().values(), strict=True)) == model
            assert table.txn_version("app") == max(marked, default=None)
        for version, then in enumerate(history):
            assert ids(DeltaTable.open(store, version=version).to_arrow()) == sorted(then)


def test_tombstones_expire_by_the_clock() -> None:
    now = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, clock=lambda: now[0])
    table.append(rows(0, 1))
    table.overwrite(rows(1, 2))
    table.checkpoint()
    assert len(DeltaTable.open(store).snapshot.tombstones()) == 1
    now[0] += dt.timedelta(days=6)
    table.overwrite(rows(2, 3))
    now[0] += dt.timedelta(days=2)
    table.checkpoint()
    assert len(DeltaTable.open(store).snapshot.tombstones()) == 1
    assert json.loads(store.get("_delta_log/_last_checkpoint"))["numOfAddFiles"] == 1


Row: TypeAlias = tuple[str | None, float, int | None]
Rows: TypeAlias = dict[int, Row]
GONE = (DataFileMissing, VersionNotFound, LogGap, CorruptCheckpoint)
"""What a handle may find whose version was vacuumed, or cleaned out of the log."""


@dataclass(frozen=True)
class State:
    """The whole table."""

    rows: Rows = field(default_factory=dict)
    wide: bool = False
    checked: bool = False
    markers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Where:
    """A predicate, in SQL and in Python."""

    sql: str
    holds: Callable[[int, Row], bool]


def _partition(number: int) -> str | None:
    return (None, "p0", "p1")[number % 3]


def _in_partition(part: int) -> Where:
    value = _partition(part)
    return Where("p IS NULL" if value is None else f"p = '{value}'", lambda _, row: row[0] == value)


def _in_range(low: int) -> Where:
    return Where(f"id >= {low} AND id < {low + 7}", lambda i, _: low <= i < low + 7)


def _above(limit: int) -> Where:
    return Where(f"v > {limit}", lambda _, row: row[1] > limit)


def _either(number: int) -> Where:
    return Where(
        f"p <=> 'p1' AND id % 2 = 0 OR id = {number}", lambda i, row: (row[0] == "p1" and i % 2 == 0) or i == number
    )


RANGES = st.integers(0, 60).map(_in_range)
PARTITIONS = st.integers(0, 2).map(_in_partition)
WHERES = st.one_of(RANGES, PARTITIONS, st.integers(0, 40).map(_above), st.integers(0, 60).map(_either))
HANDLES = st.tuples(st.integers(0, 1), st.booleans())
"""Which of two handles, and whether it is refreshed before."""


class TableMachine(RuleBasedStateMachine):
    """A table, two handles on it, and what should be in it at every version."""

    def __init__(self) -> None:
        super().__init__()
        self.now = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
        self.store = MemoryStore(clock=lambda: self.now)
        self.history: list[State] = []
        self.state = State()
        self.next_id = 0
        self.vacuumed = False

    @initialize(
        partitioned=st.booleans(),
        feed=st.booleans(),
        mapping=st.sampled_from(["none", "name", "id"]),
        interval=st.sampled_from([2, 5, 100]),
    )
    def create(self, partitioned: bool, feed: bool, mapping: str, interval: int) -> None:
        properties = {
            "delta.enableChangeDataFeed": str(feed).lower(),
            "delta.columnMapping.mode": mapping,
            "delta.checkpointInterval": str(interval),
            "delta.checkpoint.writeStatsAsStruct": str(interval == 2).lower(),
        }
        self.partitioned, self.feed = partitioned, feed
        columns = ["p"] if partitioned else []
        table = DeltaTable.create(
            self.store, SCHEMA, partition_by=columns, properties=properties, clock=lambda: self.now
        )
        self.handles = [table, DeltaTable.open(self.store, clock=lambda: self.now)]
        self.history.append(self.state)

    def new_rows(self, table: DeltaTable, numbers: list[int], value: float = 0.5) -> tuple[pa.Table, Rows]:
        wide = "x" in table.schema.names
        new: Rows = {i: (_partition(i), i * value, i if wide else None) for i in numbers}
        columns = {"id": list(new), "p": [row[0] for row in new.values()], "v": [row[1] for row in new.values()]}
        data = pa.table(columns, schema=SCHEMA)
        return (data.append_column("x", pa.array([row[2] for row in new.values()], pa.int64())) if wide else data), new

    def fresh_ids(self, count: int) -> list[int]:
        self.next_id += count
        return list(range(self.next_id - count, self.next_id))

    def handle(self, who: tuple[int, bool]) -> DeltaTable:
        table = self.handles[who[0]]
        return table.refresh() if who[1] else table

    def act(
        self, table: DeltaTable, run: Callable[[], object], after: Callable[[State], State], *, travels: bool = False
    ) -> None:
        """Run an operation: it makes the version after the latest one, or fails and makes none, or has nothing to do.

        `travels`: it needs an older version, also on a fresh handle.
        """
        stale = table.version < len(self.history) - 1
        self.now += dt.timedelta(seconds=1)
        try:
            run()
        except ConcurrentModification:
            assert stale
        except GONE:
            assert stale or travels
            assert self.vacuumed
        else:
            latest = DeltaTable.open(self.store).version
            if latest == len(self.history):
                self.state = after(self.state)
                self.history.append(self.state)
            else:
                assert latest == len(self.history) - 1
                assert stale or after(self.state).rows == self.state.rows, (
                    "nothing was done, though there was something to do"
                )

    @rule(who=HANDLES, count=st.integers(0, 6))
    def append(self, who: tuple[int, bool], count: int) -> None:
        table = self.handle(who)
        data, new = self.new_rows(table, self.fresh_ids(count))
        self.act(table, lambda: table.append(data), lambda s: replace(s, rows=s.rows | new))

    @rule(who=HANDLES, number=st.integers(0, 5))
    def append_marked(self, who: tuple[int, bool], number: int) -> None:
        table = self.handle(who)
        data, new = self.new_rows(table, self.fresh_ids(1))
        if self.state.markers.get("app", -1) >= number:
            version = len(self.history) - 1
            assert table.append(data, txn=("app", number)).skipped
            assert DeltaTable.open(self.store).version == version
        else:
            self.act(
                table,
                lambda: table.append(data, txn=("app", number)),
                lambda s: replace(s, rows=s.rows | new, markers={**s.markers, "app": number}),
            )

    @rule(who=HANDLES, count=st.integers(0, 4))
    def overwrite(self, who: tuple[int, bool], count: int) -> None:
        table = self.handle(who)
        data, new = self.new_rows(table, self.fresh_ids(count))
        self.act(table, lambda: table.overwrite(data), lambda s: replace(s, rows=new))

    @rule(
        who=HANDLES,
        low=st.integers(0, 60),
        some=st.sets(st.integers(0, 6), max_size=3),
        part=st.integers(0, 2),
        by_range=st.booleans(),
    )
    def overwrite_where(self, who: tuple[int, bool], low: int, some: set[int], part: int, by_range: bool) -> None:
        table = self.handle(who)
        where = _in_range(low) if by_range else _in_partition(part)
        fresh = [i for i in self.fresh_ids(9) if i % 3 == part][: len(some)]
        data, new = self.new_rows(table, sorted(low + i for i in some) if by_range else fresh, 3.0)
        self.next_id = max(self.next_id, low + 7)
        self.act(
            table,
            lambda: table.overwrite(data, where=where.sql),
            lambda s: replace(s, rows={i: row for i, row in s.rows.items() if not where.holds(i, row)} | new),
        )

    @precondition(lambda self: self.partitioned)
    @rule(who=HANDLES, parts=st.sets(st.integers(0, 2), max_size=2))
    def overwrite_dynamic(self, who: tuple[int, bool], parts: set[int]) -> None:
        table = self.handle(who)
        data, new = self.new_rows(table, [i for i in self.fresh_ids(6) if i % 3 in parts])
        gone = {_partition(part) for part in parts}
        self.act(
            table,
            lambda: table.overwrite(data, dynamic=True),
            lambda s: replace(s, rows={i: row for i, row in s.rows.items() if row[0] not in gone} | new),
        )

    @rule(who=HANDLES, where=st.none() | WHERES)
    def delete(self, who: tuple[int, bool], where: Where | None) -> None:
        table = self.handle(who)
        self.act(
            table,
            lambda: table.delete(None if where is None else where.sql),
            lambda s: replace(
                s, rows={i: row for i, row in s.rows.items() if where is not None and not where.holds(i, row)}
            ),
        )

    @rule(who=HANDLES, where=WHERES, part=st.none() | st.integers(0, 2))
    def update(self, who: tuple[int, bool], where: Where, part: int | None) -> None:
        """Update values, and sometimes the partition."""
        table = self.handle(who)
        wide = "x" in table.schema.names
        moved = None if part is None else _partition(part)
        changes = {"v": "v + 10"} | ({"x": "id * 2"} if wide else {})
        if part is not None:
            changes["p"] = "NULL" if moved is None else f"'{moved}'"

        def new(i: int, row: Row) -> Row:
            return row[0] if part is None else moved, row[1] + 10, i * 2 if wide else row[2]

        self.act(
            table,
            lambda: table.update(changes, where.sql),
            lambda s: replace(s, rows={i: new(i, row) if where.holds(i, row) else row for i, row in s.rows.items()}),
        )

    @rule(
        who=HANDLES,
        some=st.sets(st.integers(0, 60), min_size=1, max_size=5),
        count=st.integers(0, 2),
        extra=st.booleans(),
    )
    def merge(self, who: tuple[int, bool], some: set[int], count: int, extra: bool) -> None:
        """Update or delete matching rows and insert the others.

        With `extra`, delete some of the unmatched target rows.
        """
        table = self.handle(who)
        self.next_id = max(self.next_id, 61)
        data, new = self.new_rows(table, sorted(some) + self.fresh_ids(count), 5.0)

        def run() -> object:
            merge = table.merge(data, "t.id = s.id").when_matched_delete("t.id % 2 = 0").when_matched_update("*")
            merge = merge.when_not_matched_insert("*", "s.id % 5 <> 0")
            return (merge.when_not_matched_by_source_delete("t.v > 20") if extra else merge).execute()

        def after(s: State) -> State:
            kept = {i: row for i, row in s.rows.items() if i in new or not (extra and row[1] > 20)}
            merged = {i: row if i in kept else None for i, row in new.items()}
            for i, row in merged.items():
                if row is not None and i % 2 == 0:
                    del kept[i]
                elif row is not None or i % 5:
                    kept[i] = new[i]
            return replace(s, rows=kept)

        self.act(table, run, after)

    @rule(who=HANDLES, zorder=st.booleans(), size=st.sampled_from([None, 1, 1500]), part=st.none() | PARTITIONS)
    def optimize(self, who: tuple[int, bool], zorder: bool, size: int | None, part: Where | None) -> None:
        table = self.handle(who)
        where = part.sql if part is not None and self.partitioned else None
        self.act(
            table, lambda: table.optimize(where, target_size=size, zorder_by=["v", "id"] if zorder else ()), lambda s: s
        )

    @rule(who=HANDLES, back=st.integers(1, 6))
    def restore(self, who: tuple[int, bool], back: int) -> None:
        table = self.handle(who)
        version = max(0, len(self.history) - 1 - back)
        then = self.history[version]
        self.act(
            table,
            lambda: table.restore(version),
            lambda s: replace(then, markers={app: then.markers.get(app, -1) for app in s.markers}),
            travels=True,
        )

    @rule(who=HANDLES)
    def add_columns(self, who: tuple[int, bool]) -> None:
        table = self.handle(who)
        self.act(table, lambda: table.add_columns(pa.schema([("x", pa.int64())])), lambda s: replace(s, wide=True))

    @rule(who=HANDLES)
    def add_constraint(self, who: tuple[int, bool]) -> None:
        table = self.handle(who)
        if table.constraints:
            with pytest.raises(ConstraintViolation):
                table.append(self.new_rows(table, [-1])[0])
        else:
            self.act(table, lambda: table.add_constraint("known", "id >= 0"), lambda s: replace(s, checked=True))

    @rule(who=HANDLES, mode=st.sampled_from(["full", "lite"]), days=st.sampled_from([0, 4, 8]))
    def vacuum(self, who: tuple[int, bool], mode: str, days: int) -> None:
        self.now += dt.timedelta(days=days)
        result = self.handle(who).vacuum(mode=mode)  # type: ignore[arg-type]
        self.vacuumed = self.vacuumed or len(result.files) > 0

    @rule(who=HANDLES, days=st.sampled_from([0, 20, 40]))
    def clean_log(self, who: tuple[int, bool], days: int) -> None:
        self.now += dt.timedelta(days=days)
        self.vacuumed = len(self.handle(who).clean_log()) > 0 or self.vacuumed

    @rule(who=HANDLES, lose_hint=st.booleans())
    def checkpoint(self, who: tuple[int, bool], lose_hint: bool) -> None:
        table = self.handle(who)
        stale, before = table.version < len(self.history) - 1, len(list(self.store.list("_delta_log/")))
        try:
            table.checkpoint()
        except GONE:
            assert stale
            assert self.vacuumed
        self.vacuumed = self.vacuumed or len(list(self.store.list("_delta_log/"))) < before  # it cleans up too
        if lose_hint:
            self.store.delete(["_delta_log/_last_checkpoint"])

    @invariant()
    def the_table_is_the_model(self) -> None:
        if not self.history:
            return
        table = DeltaTable.open(self.store)
        self.vacuumed = self.vacuumed or not self.store.exists("_delta_log/00000000000000000000.json")
        assert table.version == len(self.history) - 1
        assert _rows(table) == self.state.rows
        assert ("x" in table.schema.names, "known" in table.constraints) == (self.state.wide, self.state.checked)
        marker = table.txn_version("app")
        assert (-1 if marker is None else marker) == self.state.markers.get("app", -1)
        low = self.next_id // 2
        assert _rows(table, where := _in_range(low)) == {
            i: row for i, row in self.state.rows.items() if where.holds(i, row)
        }

    def teardown(self) -> None:
        if not self.history:
            return
        for version, then in enumerate(self.history):
            try:
                assert _rows(DeltaTable.open(self.store, version=version)) == then.rows
            except GONE:
                assert self.vacuumed
        if self.feed:
            self.replay()

    def replay(self) -> None:
        """Check that the change feed leads from each version to the next."""
        held: Rows | None = {}
        for version, then in enumerate(self.history):
            try:
                changes = DeltaTable.open(self.store, version=version).changes(version, version).read_all()
            except GONE:
                assert self.vacuumed
                held = None
                continue
            held = self.history[version - 1].rows if held is None else held
            held = _changed(held, changes)
            # Adding or dropping a column changes rows without an entry in the feed.
            held = {i: (p, v, x if then.wide else None) for i, (p, v, x) in held.items()}
            assert held == then.rows, f"version {version}"


def _rows(table: DeltaTable, where: Where | None = None) -> Rows:
    read = table.to_arrow(where=None if where is None else where.sql).to_pylist()
    state = {row["id"]: (row["p"], row["v"], row.get("x")) for row in read}
    assert len(state) == len(read), "a row is there twice"
    return state


def _changed(held: Rows, changes: pa.Table) -> Rows:
    kinds: dict[bool, list[tuple[int, Row]]] = {True: [], False: []}
    for row in changes.to_pylist():
        kinds[row["_change_type"] in ("insert", "update_postimage")].append(
            (row["id"], (row["p"], row["v"], row.get("x")))
        )
    after = dict(held)
    for i, row in kinds[False]:
        assert after.pop(i)[:2] == row[:2]
    for i, row in kinds[True]:
        assert i not in after
        after[i] = row
    return after


@pytest.mark.parametrize(
    "examples",
    [
        8,
        pytest.param(25, marks=pytest.mark.exhaustive),
        pytest.param(600, marks=[pytest.mark.histories, pytest.mark.timeout(3000)]),
    ],
)
def test_random_operations(examples: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checkpoints that are cleaned up under a stale handle
        run_state_machine_as_test(
            TableMachine, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None)
        )
