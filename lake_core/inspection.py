"""What a person can look at in one state of a dataset, whatever its format: the base class `Inspection`.

`DatasetFormat.inspect` returns one. The defaults are those of a format that says nothing of itself: its pages then show
its objects. A format overrides what it has: rows, records, arrays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from lake_core.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from lake_core.store import ObjectStore


SMALL_FILE: Final = 32 << 20
"""The size in bytes below which a data file is small, and worth merging with others."""


class NotShown(LakeError):
    """The format cannot show what was asked for, such as the rows of arrays. Open the dataset from Python."""


class TooMuchToShow(LakeError):
    """A page would have to read more than its limit. Narrow down what is asked for."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something to know about a dataset."""

    name: str
    value: Any
    """A number, a text or a time."""
    unit: Literal["", "bytes", "rows"] = ""
    advice: str = ""
    """What to do about it; empty if nothing is wrong."""


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""
    notes: Sequence[str] = ()
    """What else is known of it, such as that the table is partitioned by it."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The last write of an application that names its writes by versions."""

    application: str
    version: int
    updated: datetime | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The definition and the size of a dataset."""

    kind: str
    """What the dataset is, in a word or two: `Delta table`."""
    version: int | None
    rows: int | None
    """How many rows or records it has. None if that is not recorded."""
    files: int
    bytes: int | None
    columns: Sequence[ColumnInfo] = ()
    constraints: Mapping[str, str] = field(default_factory=dict)
    """Conditions by their names, as text. A page shows them and never runs them."""
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    facts: Sequence[Fact] = ()
    markers: Sequence[Marker] = ()


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Which rows to show."""

    count: int
    offset: int = 0
    columns: Sequence[str] | None = None
    where: str | None = None
    """Spark SQL that is true for the rows."""
    order_by: str | None = None
    descending: bool = False
    seconds: float | None = None
    """After so long, reading ends with TooMuchToShow."""

    def deadline(self) -> Callable[[], None]:
        """Return what raises TooMuchToShow once the time is over. Its time begins now."""
        if self.seconds is None:
            return lambda: None
        seconds, end = self.seconds, time.monotonic() + self.seconds

        def check() -> None:
            if time.monotonic() > end:
                raise TooMuchToShow(
                    f"after {seconds:g} seconds, not enough rows were found: narrow down the condition, name fewer "
                    "columns, or read the dataset from Python"
                )

        return check


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows."""

    names: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    has_more: bool
    total: int | None = None
    """How many rows there are in all; None if it was not counted."""
    texts: Sequence[str] | None = None
    """The rows in the format's own notation, if it has one."""


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version of a dataset in its own history."""

    version: int | str
    time: datetime | None
    operation: str
    rows: int | None = None
    """After it; None if that is not recorded."""
    bytes: int | None = None
    files: int | None = None
    rows_added: int | None = None
    rows_removed: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition."""

    values: Mapping[str, str | None]
    rows: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """An array or a group of a hierarchy."""

    path: str
    kind: Literal["array", "group"]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shape: Sequence[int] = ()
    chunk_shape: Sequence[int] = ()
    grid: Sequence[int] = ()
    """How many chunks there are along each dimension."""
    dimensions: Sequence[str] = ()
    type: str = ""
    codecs: str = ""


@dataclass(frozen=True, slots=True)
class ShapeInfo:
    """A type that records have."""

    type: str
    count: int


@dataclass(frozen=True, slots=True)
class PlaneRequest:
    """A two-dimensional slice of an array."""

    path: str
    rows: int
    """The dimension that runs down the picture."""
    columns: int
    """The dimension that runs across it."""
    index: Sequence[int]
    """The index along each other dimension. That of the two is ignored."""


@dataclass(frozen=True, slots=True)
class Plane:
    """The numbers of a two-dimensional slice, thinned out to at most some hundreds along each dimension."""

    values: npt.NDArray[np.float64]
    """NaN where there is no number."""
    step: tuple[int, int]
    """Every how many cells a number was taken, down and across."""
    shape: tuple[int, int]
    """Cells of the whole slice, down and across."""


@dataclass(frozen=True, slots=True)
class ChunkMap:
    """Where the chunks are that differ between two states of an array."""

    grid: Sequence[int]
    """Chunks along each dimension, in which those of both states have a place."""
    written: npt.NDArray[np.uint32]
    """Shape (chunks, dimensions): chunks that the later state has, and the earlier one lacks or has otherwise."""
    erased: npt.NDArray[np.uint32]
    """Shape (chunks, dimensions): chunks that only the earlier state has."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The rows that differ between two states of a dataset, matched by a key."""

    names: Sequence[str]
    key: Sequence[str]
    """The columns by which rows are matched. Empty if they are only compared as a whole."""
    added: pa.Table
    """The rows with keys that only the later state has."""
    removed: pa.Table
    before: pa.Table
    """Rows whose keys both states have, as the earlier one has them."""
    after: pa.Table
    """The same rows, in the same order, as the later one has them."""
    is_unique: bool = True
    """False if a key occurs more than once, so that rows of that key were not matched."""

    @property
    def nbytes(self) -> int:
        """Return the memory that the rows take."""
        return sum(table.nbytes for table in (self.added, self.removed, self.before, self.after))


StoreT = TypeVar("StoreT", bound="ObjectStore")


class Inspection(Generic[StoreT]):
    """What a person can look at in one state of a dataset. Nothing of it writes.

    Methods that have no answer return nothing, or raise NotShown.
    """

    format: str = ""
    unit: Literal["rows", "records", "objects"] = "objects"
    """What the dataset holds."""
    has_rows: bool = False
    """Whether `rows` shows something."""
    can_sort: bool = False
    has_nodes: bool = False
    has_shapes: bool = False

    def __init__(self, store: StoreT) -> None:
        self.store = store

    def summary(self) -> Summary:
        """Return the definition and the size."""
        raise NotShown(f"a dataset of the format {self.format} says nothing of itself")

    def schema(self) -> pa.Schema | None:
        """Return the schema of the rows for SQL, None if SQL does not read the dataset."""
        return None

    def batches(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.RecordBatchReader:
        """Stream the rows for SQL. Raises NotShown if the dataset has none.

        `where` is Spark SQL that saves reading. It may be ignored: the engine evaluates it again.
        """
        raise NotShown(f"a dataset of the format {self.format} has no rows for SQL")

    def rows(self, request: RowRequest) -> RowPage:
        """Return some rows. Raises NotShown, TooMuchToShow, and what is wrong with the condition."""
        raise NotShown(f"a dataset of the format {self.format} has no rows to show: open it from Python")

    def versions(self, count: int) -> Sequence[VersionInfo]:
        """Return the newest versions of the dataset's own history, newest first."""
        return ()

    def partitions(self) -> Sequence[PartitionInfo]:
        """Return the partitions."""
        return ()

    def nodes(self) -> Sequence[NodeInfo]:
        """Return the arrays and groups, parents first."""
        return ()

    def shapes(self) -> Sequence[ShapeInfo]:
        """Return the types that records have, with their numbers."""
        return ()

    def plane(self, request: PlaneRequest, most_cells: int) -> Plane:
        """Return a slice of an array, of at most `most_cells` cells that are read.

        Raises NotShown if the array has no numbers, TooMuchToShow.
        """
        raise NotShown(f"a dataset of the format {self.format} has no arrays")

    def key(self) -> Sequence[str]:
        """Return the columns that identify a row, as far as the dataset records them."""
        return ()

    def row_changes(self, before: Inspection[StoreT] | None, key: Sequence[str], most_rows: int) -> RowChanges:
        """Return the rows that differ from an earlier state, which is None if the dataset did not exist.

        Raises NotShown, and TooMuchToShow if more than `most_rows` would be read.
        """
        raise NotShown(f"a dataset of the format {self.format} has no rows to compare")

    def chunk_map(self, before: Inspection[StoreT] | None, path: str) -> ChunkMap:
        """Return which chunks of an array differ from an earlier state. Raises NotShown."""
        raise NotShown(f"a dataset of the format {self.format} has no arrays")
