"""Results of operations: of this call, or read from the log if an earlier attempt with the same `txn` committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake_core.delta.history import find_transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.delta.action import SetTransaction
    from lake_core.store import ObjectStore

_MERGED_ROWS = "numTargetRowsInserted"


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of an operation on a table."""

    version: int
    """The version that the operation committed, or that it read if there was nothing to do."""
    skipped: bool = False
    """Whether the table had the `txn` already: this call did nothing, and the metrics are the earlier attempt's."""
    metrics: Mapping[str, int] = field(default_factory=dict)
    """The metrics of the history: numOutputRows, numDeletedRows, numAddedFiles, … Empty if there was nothing to do."""

    @property
    def rows(self) -> int | None:
        """Return how many rows a write or merge inserted or updated; None if an earlier attempt's are unknown."""
        if _MERGED_ROWS in self.metrics:
            return self.metrics[_MERGED_ROWS] + self.metrics.get("numTargetRowsUpdated", 0)
        return self._metric("numOutputRows")

    @property
    def files(self) -> int | None:
        """Return how many data files hold these rows, and the rows that a merge copied."""
        return self._metric("numTargetFilesAdded" if _MERGED_ROWS in self.metrics else "numFiles")

    @property
    def bytes(self) -> int | None:
        """Return the size of these files in bytes."""
        return self._metric("numTargetBytesAdded" if _MERGED_ROWS in self.metrics else "numOutputBytes")

    def _metric(self, name: str) -> int | None:
        return self.metrics.get(name, None if self.skipped else 0)


def recorded_operation(store: ObjectStore, latest: int, marker: SetTransaction) -> OperationResult:
    """Return the result of the operation that recorded a txn action, as far as the log up to `latest` still has it."""
    commit = find_transaction(store, latest, marker.app_id, marker.version)
    if commit is None:
        return OperationResult(latest, True)
    metrics = commit[1].get("operationMetrics")
    texts = metrics.items() if isinstance(metrics, dict) else ()
    return OperationResult(
        commit[0], True, {name: number for name, text in texts if (number := _whole(text)) is not None}
    )


def _whole(text: object) -> int | None:
    text = str(text)
    return int(text) if text.isascii() and text.isdigit() else None
