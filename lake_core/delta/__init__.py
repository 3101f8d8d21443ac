"""The Delta transaction log on any object store: `DeltaTable`.

How it hangs together: `log_segment` finds the files that make up a version, `commit_file` and `checkpoint` turn them
into columns, `replay` reconciles them, `snapshot` is the result. `scan` reads rows from it, `transaction` adds a
version to it.
"""

from __future__ import annotations

from lake_core.delta.action import Metadata, Protocol
from lake_core.delta.result import OperationResult
from lake_core.delta.table import DeltaTable

__all__ = ["DeltaTable", "Metadata", "OperationResult", "Protocol"]
