"""The Delta transaction log on any object store: `DeltaTable`.

The modules: `log_segment` finds the files of a version, `commit_file` and `checkpoint` read them as columns, and
`replay` reconciles their actions to a `snapshot`. `scan` reads the rows of a snapshot, and `transaction` commits a new
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from lake_core.delta.action import Metadata, Protocol
    from lake_core.delta.parquet_options import WriterProperties
    from lake_core.delta.result import OperationResult
    from lake_core.delta.table import DeltaTable

__all__ = ["DeltaTable", "Metadata", "OperationResult", "Protocol", "WriterProperties"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "DeltaTable": ".table",
        "Metadata": ".action",
        "OperationResult": ".result",
        "Protocol": ".action",
        "WriterProperties": ".parquet_options",
    },
)
