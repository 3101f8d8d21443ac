"""What processes do in a history of a lake, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
MANAGED = ("t/a", "t/b")
OPEN_TABLE = "t/open"
"""A table of the lake that other clients may write."""
TABLES = (*MANAGED, OPEN_TABLE)
NEW_TABLE = "t/new"
"""A table that the first work which needs it creates."""
ARRAY = "t/array"
"""An Icechunk repository with one array, whose cells are changed as the rows of a table are."""
POOL = "t/pool"
"""A pool of records, which are changed as the rows of a table are."""
FIRST_ROWS = 40
"""Rows 0 to 9 are counted up, rows 10 to 39 are deleted, each by one work at most."""


@dataclass(frozen=True, slots=True)
class Change:
    """A piece of a work: what it does to a table or file."""

    kind: Literal["add", "count", "delete", "list"]
    target: str
    """A table, the array or the pool, or for `list` a file that each work adds a line to."""
    number: int = 0
    """How many rows are added, or which row is counted up or deleted."""

    def __str__(self) -> str:
        match self.kind:
            case "add":
                return f"{self.number} rows into {self.target}"
            case "count":
                return f"count up row {self.number} of {self.target}"
            case "delete":
                return f"delete row {self.number} of {self.target}"
        return f"a line into {self.target}"


@dataclass(frozen=True, slots=True)
class Work:
    """What is to happen whole or not at all, and once."""

    number: int
    changes: tuple[Change, ...]

    @property
    def id(self) -> str:
        return f"w{self.number}"

    def __str__(self) -> str:
        return f"{self.id} ({', '.join(map(str, self.changes))})"

    def rows(self, index: int) -> list[int]:
        """The ids of the rows that its change of this index adds."""
        return [1000 * self.number + 100 * index + row for row in range(self.changes[index].number)]


@dataclass(frozen=True, slots=True)
class Publish:
    """Do a work in a private session and publish it. `hold`: only do it, and publish with the next `PublishHeld`."""

    work: Work
    branch: str = "main"
    hold: bool = False

    def __str__(self) -> str:
        return f"{'prepares' if self.hold else 'publishes'} {self.work} on {self.branch}"


@dataclass(frozen=True, slots=True)
class PublishHeld:
    """Publish the session that the process holds."""

    def __str__(self) -> str:
        return "publishes the session that it holds"


@dataclass(frozen=True, slots=True)
class Share:
    """Do a work as a part of a shared session, which is opened if need be."""

    session: str
    work: Work
    output: str
    attempt: int

    def __str__(self) -> str:
        return f"flushes {self.work} into shared session {self.session}, attempt {self.attempt} at {self.output}"


Verb: TypeAlias = Literal["publish", "resume", "abandon", "fail", "fork"]


@dataclass(frozen=True, slots=True)
class Shared:
    """Do something to a shared session."""

    session: str
    verb: Verb

    def __str__(self) -> str:
        return f"{self.verb} shared session {self.session}"


@dataclass(frozen=True, slots=True)
class Branch:
    """Make a branch of main."""

    name: str

    def __str__(self) -> str:
        return f"makes branch {self.name}"


@dataclass(frozen=True, slots=True)
class Tag:
    """Name main's head."""

    name: str

    def __str__(self) -> str:
        return f"tags main as {self.name}"


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge a branch or a tag into a branch."""

    name: str
    into: str = "main"
    squash: bool = False

    def __str__(self) -> str:
        return f"{'squashes' if self.squash else 'merges'} {self.name} into {self.into}"


@dataclass(frozen=True, slots=True)
class Pick:
    """Cherry-pick the last commit of a branch or a tag."""

    name: str
    onto: str = "main"

    def __str__(self) -> str:
        return f"picks the head of {self.name} onto {self.onto}"


@dataclass(frozen=True, slots=True)
class Revert:
    """Revert one of a branch's last commits of works."""

    back: int
    branch: str = "main"

    def __str__(self) -> str:
        return f"reverts the {self.back + 1}. last work of {self.branch}"


@dataclass(frozen=True, slots=True)
class Tidy:
    """Rearrange, checkpoint or end the retention of a table; check main out; collect garbage; adopt."""

    task: Literal["optimize", "checkpoint", "vacuum", "checkout", "gc", "adopt"]
    table: str = "t/a"

    def __str__(self) -> str:
        return f"runs {self.task}" + (f" of {self.table}" if self.task in ("optimize", "checkpoint", "vacuum") else "")


@dataclass(frozen=True, slots=True)
class Foreign:
    """Append rows to the open table by a client that knows nothing of the lake."""

    number: int
    rows: int

    def __str__(self) -> str:
        return f"appends {self.rows} rows to {OPEN_TABLE} past the lake (f{self.number})"


@dataclass(frozen=True, slots=True)
class Read:
    """Read a state whole, by the lake or as a plain reader of a table."""

    source: str
    """A branch, or a table for a plain reader."""

    def __str__(self) -> str:
        return f"reads {self.source}" + (" as a plain reader" if self.source in TABLES else "")


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a day of the simulation."""

    day: float

    def __str__(self) -> str:
        return f"waits for day {self.day:g}"


Action: TypeAlias = (
    Publish | PublishHeld | Share | Shared | Branch | Tag | Merge | Pick | Revert | Tidy | Foreign | Read | Wait
)
