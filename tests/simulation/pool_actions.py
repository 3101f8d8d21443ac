"""What the processes of a pool's history do, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Point: TypeAlias = Literal["tip", "commit", "seen"]


@dataclass(frozen=True, slots=True)
class Load:
    """A load of records with these keys. With a marker, it is repeated where its outcome is unknown."""

    number: int
    branch: str
    keys: tuple[int, ...]
    has_marker: bool

    @property
    def id(self) -> str:
        return f"load {self.number}"

    def __str__(self) -> str:
        marker = "with a marker" if self.has_marker else "without a marker"
        return f"loads {len(self.keys)} records into {self.branch} ({self.id}, {marker})"


@dataclass(frozen=True, slots=True)
class Delete:
    """A deletion of the records whose field is in a range."""

    number: int
    branch: str
    field: Literal["k", "batch"]
    start: int
    stop: int

    @property
    def id(self) -> str:
        return f"delete {self.number}"

    @property
    def where(self) -> str:
        return f"{self.field} >= {self.start} AND {self.field} < {self.stop}"

    def __str__(self) -> str:
        return f"deletes where {self.where} from {self.branch} ({self.id})"


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """A deletion of one of the data objects of a branch."""

    number: int
    branch: str
    position: int

    @property
    def id(self) -> str:
        return f"delete object {self.number}"

    def __str__(self) -> str:
        return f"deletes data object {self.position} from {self.branch} ({self.id})"


@dataclass(frozen=True, slots=True)
class Compact:
    """A compaction of a branch."""

    number: int
    branch: str

    @property
    def id(self) -> str:
        return f"compact {self.number}"

    def __str__(self) -> str:
        return f"compacts {self.branch} ({self.id})"


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge of a branch, the child, into another one."""

    number: int
    branch: str
    child: str

    @property
    def id(self) -> str:
        return f"merge {self.number}"

    def __str__(self) -> str:
        return f"merges {self.child} into {self.branch} ({self.id})"


@dataclass(frozen=True, slots=True)
class Revert:
    """A revert of one of the commits of a branch."""

    number: int
    branch: str
    position: int
    """How many commits are newer."""

    @property
    def id(self) -> str:
        return f"revert {self.number}"

    def __str__(self) -> str:
        return f"reverts commit ~{self.position} of {self.branch} ({self.id})"


Change: TypeAlias = Load | Delete | DeleteObject | Compact | Merge | Revert
"""An action that makes at most one commit. The message of the commit is its id."""


@dataclass(frozen=True, slots=True)
class CreateBranch:
    """Creates a branch at the tip of another one, or at the commit that the process has seen last."""

    branch: str
    at: str | None

    def __str__(self) -> str:
        return f"creates the branch {self.branch} at {self.at or 'the commit it has seen'}"


@dataclass(frozen=True, slots=True)
class DeleteBranch:
    """Deletes a branch."""

    branch: str

    def __str__(self) -> str:
        return f"deletes the branch {self.branch}"


@dataclass(frozen=True, slots=True)
class Vacuum:
    """Vacuums the pool."""

    days: float

    def __str__(self) -> str:
        return f"vacuums with a retention of {self.days:g} days"


@dataclass(frozen=True, slots=True)
class Look:
    """Reads a branch at its tip, as of the commit of its tip, or as of the commit that the process has seen last."""

    branch: str
    point: Point

    def __str__(self) -> str:
        return "reads the commit it has seen" if self.point == "seen" else f"reads {self.branch} by its {self.point}"


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits for a day of the simulation."""

    day: float

    def __str__(self) -> str:
        return f"waits for day {self.day:g}"


@dataclass(frozen=True, slots=True)
class SetClock:
    """Sets the clock of the process ahead of the store's, or behind it."""

    seconds: float

    def __str__(self) -> str:
        return f"sets its clock {self.seconds:+g} s from the store's"


Action: TypeAlias = Change | CreateBranch | DeleteBranch | Vacuum | Look | Pause | SetClock
