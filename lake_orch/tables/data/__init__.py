"""The Python types that outputs and inputs may have, one module a library. Libraries that nobody imported are never imported here."""

from lake_orch.tables.data.handler import TableSlice, TypeHandler
from lake_orch.tables.data.registry import HANDLERS, handler_of_annotation, load, to_rows

__all__ = ["HANDLERS", "TableSlice", "TypeHandler", "handler_of_annotation", "load", "to_rows"]
