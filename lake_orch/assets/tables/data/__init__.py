"""The Python types that outputs and inputs may have, with one module for each library.

Only libraries that are already imported are used.
"""

from lake_orch.assets.tables.data.handler import TableSlice, TypeHandler
from lake_orch.assets.tables.data.registry import HANDLERS, handler_of_annotation, load, to_rows, type_handlers

__all__ = [
    "HANDLERS",
    "TableSlice",
    "TypeHandler",
    "handler_of_annotation",
    "load",
    "to_rows",
    "type_handlers",
]
