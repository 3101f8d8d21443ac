"""Row tracking: ids that rows keep wherever they move, and the version in which each was changed last.

A file gives its rows ids by their place in it (`baseRowId`), from a range that its commit takes. Rows that move to
another file take their ids with them in a column of that file, which no schema has.
Protocol section: Row Tracking.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lake_core import runtime
from lake_core.delta.action import DomainMetadata
from lake_core.delta.errors import MalformedAction
from lake_core.delta.features import ROW_TRACKING, is_active, supported_features

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake_core.delta.action import Metadata, Protocol

ROW_ID: Final = "_metadata.row_id"
ROW_COMMIT_VERSION: Final = "_metadata.row_commit_version"
ROW_ID_FIELDS: Final = (pa.field(ROW_ID, pa.int64()), pa.field(ROW_COMMIT_VERSION, pa.int64()))
"""The columns of rows whose ids are known, as readers ask for them."""
DOMAIN: Final = "delta.rowTracking"
OWN_PROPERTIES: Final = "delta.rowTracking."
"""How the names of the properties begin that the table sets by itself."""

_COLUMN_NAMES: Final = {
    ROW_ID: ("delta.rowTracking.materializedRowIdColumnName", "_row-id-col-"),
    ROW_COMMIT_VERSION: ("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-commit-version-col-"),
}
_FIELD_IDS: Final = {ROW_ID: "2147483540", ROW_COMMIT_VERSION: "2147483539"}
ENABLED: Final = "delta.enableRowTracking"
SUSPENDED: Final = "delta.rowTrackingSuspended"
_MARK: Final = "rowIdHighWaterMark"


def materialized_columns(protocol: Protocol, metadata: Metadata) -> Mapping[str, str]:
    """Return the columns of data files that hold the ids of moved rows, by ROW_ID and ROW_COMMIT_VERSION.

    Empty if the table does not track rows.
    """
    return materialized_names(metadata) if is_active(ROW_TRACKING, protocol, metadata) else {}


def materialized_names(metadata: Metadata) -> Mapping[str, str]:
    """Return the names of these columns, whether the table tracks rows or not."""
    configuration = metadata.configuration
    return {name: configuration[key] for name, (key, _) in _COLUMN_NAMES.items() if key in configuration}


def materialized_field(key: str, name: str) -> pa.Field:
    """Return one of these columns in data files, with the field id by which Iceberg knows it."""
    return pa.field(name, pa.int64(), metadata={"PARQUET:field_id": _FIELD_IDS[key]})


def with_column_names(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a table that is to track rows, with the names of the columns that hold ids."""
    names = {key: f"{prefix}{runtime.uuid4()}" for key, prefix in _COLUMN_NAMES.values()}
    return {**names, **configuration}


def gives_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether the files of a commit must have ids. They must also before the table's property is set."""
    suspended = metadata.configuration.get(SUSPENDED, "false").lower() == "true"
    return ROW_TRACKING in supported_features(protocol) and not suspended


def high_water_mark(domains: Iterable[DomainMetadata]) -> int:
    """Return the highest id that was ever given; -1 if none was. Raises MalformedAction."""
    for domain in domains:
        if domain.domain == DOMAIN and not domain.removed:
            try:
                mark = json.loads(domain.configuration)[_MARK]
            except (ValueError, KeyError, TypeError):
                mark = None
            if type(mark) is not int:
                raise MalformedAction(f"the domain {DOMAIN} has no number {_MARK}: {domain.configuration[:80]!r}")
            return mark
    return -1


class FreshIds:
    """Gives ids to the files that a commit adds. `mark`: the highest one before; `version`: of the commit."""

    def __init__(self, mark: int, version: int) -> None:
        self._mark, self._version = mark, version

    def give(self, rows: int | None, path: str) -> dict[str, Any]:
        """Return the fields of an add action for a file of so many rows. Raises MalformedAction if that is unknown."""
        if rows is None:
            raise MalformedAction(
                f"the file {path} has no number of rows in its statistics, so its rows cannot have ids: write it anew"
            )
        base = self._mark + 1
        self._mark += rows
        return {"baseRowId": base, "defaultRowCommitVersion": self._version}

    def domain(self) -> DomainMetadata:
        """Return the action that records the highest id."""
        return DomainMetadata(DOMAIN, json.dumps({_MARK: self._mark, "domainName": DOMAIN}, separators=(",", ":")))


def without_row_ids(rows: pa.Table) -> pa.Table:
    """Return rows without their ids."""
    return rows.drop_columns([field.name for field in ROW_ID_FIELDS if field.name in rows.column_names])


def with_row_ids(rows: pa.Table, source: pa.Table) -> pa.Table:
    """Return rows with the ids and versions of those that they are, if these have any."""
    for field in ROW_ID_FIELDS:
        if field.name in source.column_names:
            rows = rows.append_column(field, source[field.name])
    return rows


def changed_rows(rows: pa.Table, source: pa.Table) -> pa.Table:
    """Return new versions of rows with the ids of the old ones. They were changed by the commit that adds them."""
    if ROW_ID not in source.column_names:
        return rows
    versions = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
    return with_row_ids(rows, source.select([ROW_ID]).append_column(ROW_ID_FIELDS[1], versions))
