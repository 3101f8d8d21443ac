"""Workspaces: where an attempt at a task writes, and how its writes are published, for steps and processes."""

from lake_core.workspace.assignment import Assignment, open_workspace
from lake_core.workspace.call_numbers import CallNumbers
from lake_core.workspace.direct_writes import DirectWrites
from lake_core.workspace.session_writes import PublishedWrites, StagedWrites
from lake_core.workspace.workspace import PUBLISHED, STAGED, Receipt, Workspace

__all__ = [
    "Assignment",
    "CallNumbers",
    "DirectWrites",
    "PUBLISHED",
    "PublishedWrites",
    "Receipt",
    "STAGED",
    "StagedWrites",
    "Workspace",
    "open_workspace",
]
