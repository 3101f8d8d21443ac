"""The partitions of an asset, as an orchestrator defines them: their dimensions, and the time windows of their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

from lake_orch.errors import PartitionSliceError

PartitionExpr: TypeAlias = "str | Mapping[str, str]"
"""The column or dimension that partitions stand for, or a dict from their dimensions to columns."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The time that a partition stands for: from its start up to its end, which is excluded.

    Both have a zone. Compare them by `instants`: Python compares two times of one zone by their clocks alone.
    """

    start: datetime
    end: datetime

    @property
    def instants(self) -> tuple[datetime, datetime]:
        """Return the start and the end in UTC."""
        return self.start.astimezone(UTC), self.end.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of partitions."""

    window_of: Callable[[str], TimeWindow] | None = None
    """Returns the time window of a key. None if the keys of the dimension are no times."""
    list_windows: Callable[[], Sequence[TimeWindow]] | None = None
    """Returns all windows, also those in the future. None if the keys are no times, or never end."""

    @property
    def is_time(self) -> bool:
        """Return whether its keys stand for time windows."""
        return self.window_of is not None

    def single_windows(self, keys: Iterable[str]) -> list[TimeWindow]:
        """Return the time window of each key, in order. Its keys must be times."""
        assert self.window_of is not None
        windows = {window.instants: window for window in map(self.window_of, keys)}
        return [windows[instants] for instants in sorted(windows)]

    def windows(self, keys: Iterable[str]) -> list[TimeWindow]:
        """Return the time windows of some keys, in order, with neighbors joined. Its keys must be times."""
        joined: list[TimeWindow] = []
        for window in self.single_windows(keys):
            if joined and joined[-1].instants[1] == window.instants[0]:
                joined[-1] = TimeWindow(joined[-1].start, window.end)
            else:
                joined.append(window)
        return joined


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of an asset."""

    dimensions: Mapping[str, Dimension]
    """By name, in order. The only one of partitions of one dimension has the name ""."""
    split: Callable[[str], Mapping[str, str]]
    """Returns the key of each dimension, of a partition's key."""

    @property
    def only(self) -> Dimension | None:
        """Return the dimension, or None if there are several."""
        return self.dimensions.get("")

    def tuples(self, keys: Iterable[str]) -> set[tuple[str, ...]]:
        """Return the keys of each dimension, in their order, of some partitions."""
        parsed = map(self.split, keys)
        return {tuple(key[name] for name in self.dimensions) for key in parsed}

    def columns(self, partition_expr: PartitionExpr) -> tuple[str, ...]:
        """Return the columns that the partitions stand for, in the order of the dimensions.

        Raises PartitionSliceError if `partition_expr` does not fit the dimensions.
        """
        if self.only is None:
            names = list(self.dimensions)
            if not isinstance(partition_expr, Mapping) or set(partition_expr) != set(names):
                raise PartitionSliceError(
                    f"partition_expr is {partition_expr!r}, but the partitions have the dimensions {names}: "
                    f"give a dict with the column of each"
                )
            columns = tuple(partition_expr[name] for name in names)
        elif isinstance(partition_expr, str):
            columns = (partition_expr,)
        else:
            raise PartitionSliceError(
                f"partition_expr is {partition_expr!r}, but the partitions have one dimension: give its column's name"
            )
        if not all(isinstance(column, str) and column for column in columns) or len(set(columns)) < len(columns):
            raise PartitionSliceError(
                f"partition_expr {partition_expr!r} must name a different column for each dimension"
            )
        return columns

    def label(self, keys: Sequence[str]) -> str:
        """Return a label for a log: a few keys, the first and last of contiguous windows, or how many there are."""
        unique = list(dict.fromkeys(keys))
        if len(unique) == 1:
            return f"partition {unique[0][:100]}"
        if self.only is not None and self.only.window_of is not None and len(unique) > 1:
            windows = sorted((self.only.window_of(key).instants, key) for key in unique)
            if all(before[1] == after[0] for (before, _), (after, _) in pairwise(windows)):
                return f"partitions {windows[0][1]} to {windows[-1][1]} ({len(unique)})"
        if 0 < len(unique) <= _MOST_NAMED:
            return f"partitions {', '.join(key[:100] for key in unique)}"
        return f"{len(unique)} partitions"


def clock_time(moment: datetime, name: str) -> datetime:
    """Return a boundary of a time window as its zone's clock shows it, for times that are stored without a zone.

    Args:
        moment: The boundary, with its zone.
        name: The column or dimension with the times, for the error.

    Raises:
        PartitionSliceError: Clocks are set back, so that they show some times both before and after the boundary.
    """
    is_second = moment.utcoffset() == moment.replace(fold=1).utcoffset()
    if _is_shown_twice(moment) and (is_second or _is_shown_twice(moment - timedelta.resolution)):
        raise PartitionSliceError(
            f"clocks are set back around {moment.isoformat()}, where a partition begins or ends: times of {name!r}, "
            "which have no zone, may be those of two partitions. Use times with a zone, or define the partitions in "
            "UTC (timezone=)"
        )
    return moment.replace(tzinfo=None)


def _is_shown_twice(moment: datetime) -> bool:
    """Return whether the clock shows the time of a moment once more, before or after it."""
    first, second = (moment.replace(fold=fold).utcoffset() for fold in (0, 1))
    return first is not None and second is not None and first > second
