"""Metadata in Dagster's words and in those of the lane."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from dagster import (
    AssetKey,
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableColumnDep,
    TableColumnLineage,
    TableConstraints,
    TableRecord,
    TableSchema,
)

from lake_orch.assets.description import Column, ColumnLineage, ColumnSchema, Markdown, Records


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return definition metadata in the words of the lane, without Dagster's wrappers (`MetadataValue.text("…")`)."""
    return {
        name: _plain(value.value if isinstance(value, MetadataValue) else value) for name, value in metadata.items()
    }


def dagster_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata of the lane as Dagster shows it."""
    return {name: _shown(value) for name, value in metadata.items()}


@singledispatch
def _plain(value: Any) -> Any:
    return value


@_plain.register
def _(value: TableSchema) -> ColumnSchema:
    columns = [
        Column(
            column.name,
            column.type,
            column.description,
            column.constraints.nullable,
            column.constraints.unique,
            tuple(column.constraints.other),
            dict(column.tags or {}),
        )
        for column in value.columns
    ]
    return ColumnSchema(columns, tuple(value.constraints.other) if value.constraints else ())


@_plain.register
def _(value: TableColumnLineage) -> ColumnLineage:
    return ColumnLineage(
        {
            column: [(tuple(dep.asset_key.path), dep.column_name) for dep in deps]
            for column, deps in value.deps_by_column.items()
        }
    )


@singledispatch
def _shown(value: Any) -> Any:
    return value


@_shown.register
def _(value: Markdown) -> Any:
    return MetadataValue.md(value.text)


@_shown.register
def _(value: Records) -> Any:
    schema = TableSchema(columns=[TableColumn(name) for name in value.columns])
    return MetadataValue.table([TableRecord(dict(record)) for record in value.records], schema)


@_shown.register
def _(value: ColumnSchema) -> Any:
    columns = [
        TableColumn(
            name=column.name,
            type=column.type,
            description=column.description,
            constraints=TableColumnConstraints(
                nullable=column.nullable, unique=column.unique, other=list(column.other)
            ),
            tags=dict(column.tags),
        )
        for column in value.columns
    ]
    return TableSchema(columns=columns, constraints=TableConstraints(other=list(value.other)) if value.other else None)


@_shown.register
def _(value: ColumnLineage) -> Any:
    return TableColumnLineage(
        {
            column: [TableColumnDep(asset_key=AssetKey(list(key)), column_name=name) for key, name in sources]
            for column, sources in value.sources.items()
        }
    )
