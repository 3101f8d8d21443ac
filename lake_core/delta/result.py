"""What operations report, at once or, where a marker shows that they were done before, from the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lake_core.delta.action import SetTransaction
from lake_core.delta.history import find_transaction
from lake_core.store import ObjectStore


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did."""

    version: int
    """The version in which the rows are."""
    skipped: bool
    """True if the marker was recorded before, so that this call wrote nothing; the numbers are then the recorded write's."""
    rows: int | None
    """Rows written; None if the write was skipped and the log no longer tells what was written then."""
    files: int | None
    """Data files that hold them."""
    bytes: int | None
    """Their size."""
    metrics: Mapping[str, int] = field(default_factory=dict, compare=False)
    """As in the table's history: numOutputRows, numRemovedFiles, …"""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What an operation on a table did."""

    version: int
    """The version that it made; the version that it found if there was nothing to do."""
    skipped: bool = False
    """True if the marker was recorded before, so that this call did nothing; the metrics are then the recorded operation's."""
    metrics: Mapping[str, int] = field(default_factory=dict)
    """As in the table's history: numDeletedRows, numAddedFiles, … Empty if there was nothing to do."""


def recorded_operation(store: ObjectStore, latest: int, marker: SetTransaction) -> OperationResult:
    """What the operation that recorded a marker did, as far as the log up to version `latest` tells."""
    found = find_transaction(store, latest, marker.app_id, marker.version)
    if found is None:
        return OperationResult(latest, True)
    metrics = found[1].get("operationMetrics")
    texts = metrics.items() if isinstance(metrics, dict) else ()
    return OperationResult(found[0], True, {name: number for name, text in texts if (number := _whole(text)) is not None})


def recorded_write(store: ObjectStore, latest: int, marker: SetTransaction) -> WriteResult:
    """What the write that recorded a marker wrote, as far as the log up to version `latest` tells."""
    found = recorded_operation(store, latest, marker)
    rows, files, size = (found.metrics.get(name) for name in ("numOutputRows", "numFiles", "numOutputBytes"))
    return WriteResult(found.version, True, rows, files, size, found.metrics)


def _whole(text: object) -> int | None:
    text = str(text)
    return int(text) if text.isascii() and text.isdigit() else None
