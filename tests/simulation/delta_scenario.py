"""Histories of one plain Delta table: writers that retry, die and stall, maintenance beside them, and readers.

Each write carries a marker of its own, so a version of the table says itself which works are in it, and must hold
exactly what those works add up to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    CommitOutcomeUnknown,
    CommitTimeout,
    ConcurrentModification,
    DataFileMissing,
    VersionNotFound,
)
from lake_core.errors import LakeError, StoreUnavailable
from lake_core.store import FolderStore
from lake_core.testing.simulation import Process, SimulatedStore, Violation, World
from tests.simulation.lake_scenario import contents

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
TABLE = "table"
FIRST_ROWS = 40
"""Rows 0 to 9 are counted up, rows 10 to 39 are deleted, each by one work at most."""
UNKNOWN = (StoreUnavailable, CommitOutcomeUnknown)
REFUSED = (ConcurrentModification, CommitTimeout)
_RETENTION_SECONDS = 7 * 86_400.0
_LOG_RETENTION_SECONDS = 86_400.0

Kind: TypeAlias = Literal["append", "delete", "update", "merge"]
Task: TypeAlias = Literal["optimize", "vacuum", "checkpoint", "clean log"]


@dataclass(frozen=True, slots=True)
class Write:
    """One write with a marker of its own."""

    number: int
    kind: Kind
    row: int = 0
    """The row that is deleted or counted up."""
    rows: int = 0
    """How many rows are appended, or inserted by a merge."""

    @property
    def id(self) -> str:
        return f"w{self.number}"

    @property
    def added(self) -> list[int]:
        """Return the ids of the rows that it adds."""
        return [1000 * self.number + row for row in range(self.rows)]

    def __str__(self) -> str:
        match self.kind:
            case "append":
                return f"appends {self.rows} rows ({self.id})"
            case "delete":
                return f"deletes row {self.row} ({self.id})"
            case "update":
                return f"counts up row {self.row} ({self.id})"
        return f"merges: counts up row {self.row}, inserts {self.rows} rows ({self.id})"


@dataclass(frozen=True, slots=True)
class Maintain:
    """Maintenance."""

    task: Task

    def __str__(self) -> str:
        return f"runs {self.task}"


@dataclass(frozen=True, slots=True)
class Look:
    """Read the table whole, as it is now. `again`: through the handle that the process has, without refreshing it."""

    again: bool = False

    def __str__(self) -> str:
        return "reads once more what it has open" if self.again else "reads"


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a day of the simulation."""

    day: float

    def __str__(self) -> str:
        return f"waits for day {self.day:g}"


Action: TypeAlias = Write | Maintain | Look | Pause


class DeltaScenario:
    """A table on a simulated store, and a record of what its users were told."""

    def __init__(self, world: World, properties: Mapping[str, str] | None = None) -> None:
        self.world = world
        self.properties = {"delta.checkpointInterval": "5", "delta.logRetentionDuration": "interval 1 days"} | dict(
            properties or {}
        )
        self.writes: dict[str, Write] = {}
        self.fates: dict[str, Literal["written", "unknown"]] = {}
        self.tries: Counter[str] = Counter()
        """How often each write was tried, by all processes."""
        self.refusals: Counter[str] = Counter()
        """How many of these tries were refused, with nothing written."""
        self.tables: dict[str, tuple[DeltaTable, float]] = {}
        """By process: its handle, and when it was refreshed last."""
        self.observed: list[tuple[int, Counter[tuple[int, int]]]] = []

    def prepare(self) -> None:
        store = FolderStore(self.world.store, TABLE)
        table = DeltaTable.create(
            store, SCHEMA, partition_by=["p"], properties=self.properties, clock=lambda: self.world.time
        )
        table.append(rows_of(range(FIRST_ROWS)))

    def died(self, process: Process, action: Action) -> None:
        return

    def act(self, process: Process, action: Action) -> Iterator[Violation]:
        try:
            yield from self._act(process, action)
        except UNKNOWN as error:
            self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
        except REFUSED as error:
            self.world.tell(process, f"    is refused: {type(error).__name__}: {error}")
            if isinstance(action, Write):
                self.refusals[action.id] += 1
                if action.kind == "append" and isinstance(error, ConcurrentModification):
                    yield Violation("false conflict", f"{process.name} {action}: {error}")
        except VersionNotFound as error:
            self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
            if self.world.now - self.tables[process.host][1] < _LOG_RETENTION_SECONDS:
                yield Violation(
                    "told VersionNotFound",
                    f"{process.name} {action}, on what is younger than the log's retention: {error}",
                )
        except DataFileMissing as error:
            self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
            if self.world.now - self.tables[process.host][1] < _RETENTION_SECONDS:
                yield Violation(
                    "told DataFileMissing", f"{process.name} {action}, on what is younger than the retention: {error}"
                )
        except LakeError as error:
            self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
            yield Violation(f"told {type(error).__name__}", f"{process.name} {action}: {error}")
        except Exception as error:
            self.world.tell(process, f"    fails: {type(error).__name__}: {error}")
            yield Violation(f"raw {type(error).__name__}", f"{process.name} {action}: {error!r}")

    def _table(self, process: Process) -> DeltaTable:
        if process.host not in self.tables:
            store = FolderStore(SimulatedStore(self.world.store, process), TABLE)
            self.tables[process.host] = DeltaTable.open(store, clock=process.clock), self.world.now
        return self.tables[process.host][0]

    def _act(self, process: Process, action: Action) -> Iterator[Violation]:
        table = self._table(process)
        match action:
            case Write():
                yield from self._write(process, table, action)
            case Maintain():
                self._refresh(process, table)
                self._maintain(table, action.task)
            case Look():
                if not action.again:
                    self._refresh(process, table)
                rows = contents(table)
                self.observed.append((table.version, rows))
                yield from self._check_version(table, rows, f"{process.name} reads version {table.version}, which")
            case Pause():
                process.sleep(action.day * 86_400 - self.world.now)

    def _refresh(self, process: Process, table: DeltaTable) -> None:
        table.refresh()
        self.tables[process.host] = table, self.world.now

    def _write(self, process: Process, table: DeltaTable, write: Write) -> Iterator[Violation]:
        self.writes[write.id] = write
        self.tries[write.id] += 1
        repeated = write.id in self.fates
        earlier = self.fates.get(write.id)
        if earlier != "written":
            self.fates[write.id] = "unknown"
        # The first try plans on the handle's state, however old. A failed one is repeated on the current state, as its
        # error says.
        for attempt in range(3):
            if attempt or repeated:
                self._refresh(process, table)
            try:
                skipped = self._do(table, write)
            except UNKNOWN as error:
                repeated = True
                if attempt == 2:
                    raise
                self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
                process.sleep(1.0)
                continue
            except REFUSED:
                if repeated and earlier != "written":
                    # An earlier attempt may have landed, because its outcome is unknown.
                    self.world.tell(process, "    is refused after an attempt whose outcome is unknown")
                    return
                raise
            break
        if earlier == "written" and not skipped:
            yield Violation("twice", f"{process.name} {write}: it was written before, and was not skipped")
        self.fates[write.id] = "written"
        self.tables[process.host] = table, self.world.now
        self.world.tell(process, f"    written as version {table.version}{', skipped' if skipped else ''}")

    @staticmethod
    def _do(table: DeltaTable, write: Write) -> bool:
        marker = (write.id, 1)
        match write.kind:
            case "append":
                return table.append(rows_of(write.added), txn=marker).skipped
            case "delete":
                return table.delete(f"id = {write.row}", txn=marker).skipped
            case "update":
                return table.update({"v": "v + 1"}, f"id = {write.row}", txn=marker).skipped
        source = rows_of([write.row, *write.added])
        merge = table.merge(source, "t.id = s.id").when_matched_update({"v": "t.v + 1"}).when_not_matched_insert("*")
        return merge.execute(marker).skipped

    @staticmethod
    def _maintain(table: DeltaTable, task: Task) -> None:
        match task:
            case "optimize":
                table.optimize()
            case "vacuum":
                table.vacuum()
            case "checkpoint":
                table.checkpoint()
            case "clean log":
                table.clean_log()

    # Checking

    def check(self) -> Iterator[Violation]:
        try:
            yield from self._check()
        except Exception as error:
            yield Violation(f"afterwards {type(error).__name__}", f"when all is quiet: {error!r}")

    def table_when_quiet(self) -> DeltaTable:
        """Return the table as it is when no process runs."""
        return DeltaTable.open(FolderStore(self.world.store, TABLE), clock=lambda: self.world.time)

    def _check(self) -> Iterator[Violation]:
        table = self.table_when_quiet()
        yield from self._check_version(table, contents(table), "when all is quiet, the table")
        for id, fate in self.fates.items():
            recorded = table.txn_version(id) is not None
            if fate == "written" and not recorded:
                yield Violation("lost", f"{self.writes[id]} was acknowledged, and the table does not know its marker")
            if recorded and self.refusals[id] == self.tries[id]:
                yield Violation(
                    "refused, but there", f"{self.writes[id]} was refused each time, and the table has its marker"
                )
        for version, rows in self.observed:
            try:
                earlier = contents(DeltaTable.open(table.store, version=version))
            except (VersionNotFound, DataFileMissing):
                continue  # past the retention
            if earlier != rows:
                yield Violation("history", f"version {version} holds other rows than a reader saw in it")

    def _check_version(self, table: DeltaTable, rows: Counter[tuple[int, int]], name: str) -> Iterator[Violation]:
        expected = self._expected([write for write in self.writes.values() if table.txn_version(write.id) is not None])
        if rows != expected:
            lacking, extra = dict(expected - rows), dict(rows - expected)
            yield Violation("wrong rows", f"{name} lacks {lacking}, and has {extra} besides")

    @staticmethod
    def _expected(writes: list[Write]) -> Counter[tuple[int, int]]:
        values = dict.fromkeys(range(FIRST_ROWS), 0)
        for write in writes:
            values |= dict.fromkeys(write.added, 0)
        for write in writes:
            if write.kind in ("update", "merge"):
                values[write.row] += 1
        gone = {write.row for write in writes if write.kind == "delete"}
        return Counter((id, v) for id, v in values.items() if id not in gone)


def rows_of(ids: range | list[int]) -> pa.Table:
    """Return rows of these ids in three partitions, with a count of zero."""
    numbers = list(ids)
    return pa.table(
        {"id": numbers, "v": [0] * len(numbers), "p": [f"p{number % 3}" for number in numbers]}, schema=SCHEMA
    )
