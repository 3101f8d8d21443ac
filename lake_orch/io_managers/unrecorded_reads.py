"""What steps have read as new, until it is recorded with their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lake_orch._dagster import StepExecutionContext
from lake_orch.assets.read_position import ReadPosition, Reads

if TYPE_CHECKING:
    from lake_core.workspace import Workspace

_unrecorded: WeakKeyDictionary[StepExecutionContext, dict[tuple[str, Reads], ReadPosition]] = WeakKeyDictionary()
"""By the root of the lake, and by what was read."""


def note_read(step: StepExecutionContext, root: str, reads: Reads, position: ReadPosition) -> None:
    """Note what a step has read in a lake. A later read of the same replaces it."""
    _unrecorded.setdefault(step, {})[root, reads] = position


def record_reads(step: StepExecutionContext, root: str, workspace: Workspace) -> None:
    """Record what a step has read in a lake beside its output there. Raises AlreadyRead."""
    if workspace.is_repeated:
        return
    for (read_in, reads), position in _unrecorded.get(step, {}).items():
        if read_in == root and position.since != position.until:
            reads.add(workspace.store, position)
