"""Lookup of the handler for a value or an annotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lake_core.installed import installed
from lake_orch.assets.description import AssetPath
from lake_orch.assets.tables.data.arrow_dataset import ArrowDatasets
from lake_orch.assets.tables.data.arrow_rows import ArrowReaders, ArrowTables
from lake_orch.assets.tables.data.delta_table import DeltaTables
from lake_orch.assets.tables.data.duckdb_relation import DuckDBRelations
from lake_orch.assets.tables.data.handler import TableSlice, TypeHandler, annotation_text, resolved
from lake_orch.assets.tables.data.pandas_frame import PandasFrames
from lake_orch.assets.tables.data.polars_frame import PolarsFrames, PolarsLazyFrames
from lake_orch.assets.tables.data.spark_frame import SparkFrames
from lake_orch.assets.tables.rows import Rows, rows_of
from lake_orch.assets.tables.rows.kinds import KINDS
from lake_orch.errors import UnsupportedData

HANDLERS: tuple[TypeHandler, ...] = (
    ArrowTables(),
    ArrowReaders(),
    ArrowDatasets(),
    PandasFrames(),
    PolarsFrames(),
    PolarsLazyFrames(),
    SparkFrames(),
    DuckDBRelations(),
    DeltaTables(),
)
"""This package's handlers. The first match wins, so the handler of a subclass comes before that of its base."""

TYPE_HANDLERS: Final = "lake_orch.type_handlers"
"""The entry point group in which packages register handlers: any name → a `TypeHandler`."""

_LAZY = ("pyarrow.dataset.FileSystemDataset", "polars.LazyFrame")
"""The types whose handlers return a new stream each time. Other datasets may be over a stream, which is read once."""


def type_handlers() -> Sequence[TypeHandler]:
    """Return the handlers that other packages register, and then those of this package."""
    return (*(point.load() for point in installed(TYPE_HANDLERS).values()), *HANDLERS)


def to_rows(value: object, name: str, handlers: Sequence[TypeHandler] = HANDLERS) -> Rows:
    """Return the rows of a value.

    `name` is its name in errors. Raises UnsupportedData if no handler supports its type.
    """
    handler = handler_of(value, handlers)
    if handler is None:
        raise UnsupportedData(f"{name} is a {_name(type(value))}: return one of {_type_names(handlers, returned=True)}")
    data = handler.to_rows(value)
    rows = rows_of(data)
    if rows is None:
        raise UnsupportedData(
            f"{type(handler).__qualname__}.to_rows returned a {_name(type(data))} for {name}: "
            f"it must return a {', a '.join(KINDS[:-1])} or a {KINDS[-1]}"
        )
    return rows


def handler_of(value: object, handlers: Sequence[TypeHandler] = HANDLERS) -> TypeHandler | None:
    """Return the handler of a value's type, or None if there is none."""
    return _first(handlers, lambda supported: isinstance(value, supported))


def can_read_again(value: object) -> bool:
    """Return whether a value that is read as a stream can be read a second time."""
    return any((kind := resolved(named)) is not None and isinstance(value, kind) for named in _LAZY)


def handler_of_annotation(annotation: object, handlers: Sequence[TypeHandler] = HANDLERS) -> TypeHandler | None:
    """Return the handler of a type, or None if the annotation is not a type or no handler supports it."""
    return (
        _first(handlers, lambda supported: issubclass(annotation, supported)) if isinstance(annotation, type) else None
    )


def load(
    part: TableSlice,
    annotation: object,
    name: str,
    handlers: Sequence[TypeHandler] = HANDLERS,
    *,
    asset_key: AssetPath | None = None,
) -> Any:
    """Read rows as the type that a parameter is annotated with.

    Args:
        part: The rows to read.
        annotation: The annotation of the parameter.
        name: The name of the parameter in errors.
        handlers: The handlers to choose from. The first one that supports the type is used.
        asset_key: The asset that column lineage names as the source of the columns.

    Raises:
        UnsupportedData: The annotation is missing, or no handler supports it.
    """
    handler = handler_of_annotation(annotation, handlers)
    if handler is None or not isinstance(annotation, type):
        raise UnsupportedData(
            f"{name} {annotation_text(annotation)}: annotate the parameter as one of {_type_names(handlers)}"
        )
    value = handler.from_table(part, annotation)
    rows = None if asset_key is None else rows_of(value)
    return value if rows is None or asset_key is None else rows.tracked_as(asset_key).data


def _first(handlers: Sequence[TypeHandler], matches: Callable[[type], bool]) -> TypeHandler | None:
    """Return the first handler with a type that matches."""
    for handler in handlers:
        if any((supported := resolved(named)) is not None and matches(supported) for named in handler.supported_types):
            return handler
    return None


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _type_names(handlers: Sequence[TypeHandler], *, returned: bool = False) -> str:
    usable = [handler for handler in handlers if not (returned and isinstance(handler, DeltaTables))]
    names = [
        named if isinstance(named, str) else _name(named) for handler in usable for named in handler.supported_types
    ]
    return ", ".join(
        name.replace("pyarrow.lib.", "pyarrow.").replace("pyarrow._dataset.", "pyarrow.dataset.") for name in names
    )
