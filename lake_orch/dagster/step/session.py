"""Writes to several tables and files in one step's code, which become visible together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.delta import DeltaTable
from lake_core.delta.errors import TableNotFound
from lake_core.store import ObjectStore
from lake_core.workspace import Workspace
from lake_orch.assets.tables.data import TypeHandler
from lake_orch.dagster.page_links import page_links
from lake_orch.dagster.step.table_handle import LakeTable, Log
from lake_orch.location import checked_path
from lake_pipes.metadata import receipt_metadata

if TYPE_CHECKING:
    from lake_core.workspace import Receipt


class StepSession:
    """The session that `LakeResource.session` opens for a step.

    Its changes become visible when the `with` block ends without an error.

    A retried step makes the session again. If the earlier one was published, the new one changes nothing.
    """

    def __init__(
        self,
        workspace: Workspace,
        app_id: str,
        log: Log,
        *,
        handlers: Sequence[TypeHandler],
        one_partition: bool,
        ui_url: str | None = None,
    ) -> None:
        self._workspace, self._app_id, self._log, self._one_partition = workspace, app_id, log, one_partition
        self._handlers = handlers
        self._ui_url = ui_url
        self._tables: dict[str, LakeTable] = {}

    def table(self, path: str, *, partition_by: Sequence[str] = ()) -> LakeTable:
        """Return a table to append to or overwrite.

        The first write creates it. Raises InvalidDefinition for a path outside the root.
        """
        path = checked_path(path)
        if path not in self._tables:

            @contextmanager
            def batch(_: int) -> Iterator[Workspace]:
                yield self._workspace

            self._tables[path] = LakeTable(
                batch,
                lambda: self.delta(path),
                path,
                self._workspace.url(path),
                self._app_id,
                self._log,
                handlers=self._handlers,
                partition_by=tuple(partition_by),
                one_partition=self._one_partition,
                ui_url=self._ui_url,
            )
        return self._tables[path]

    def delta(self, path: str) -> DeltaTable:
        """Return a table with all operations of Delta tables: merge, delete, update, optimize. Raises TableNotFound."""
        path = checked_path(path)
        table: DeltaTable | None = self._workspace.find(path, "delta")
        if table is None:
            raise TableNotFound(
                f"no table at {path!r} in this session: create it with create_delta, or write to it with table"
            )
        return table

    def create_delta(self, path: str, schema: pa.Schema, **options: Any) -> DeltaTable:
        """Create a table, or open an existing one, as `DeltaTable.create` with `partition_by` and `properties`."""
        table: DeltaTable = self.create(path, "delta", schema, **options)
        return table

    def create(self, path: str, format: str, *arguments: Any, **options: Any) -> Any:
        """Create a dataset, or open an existing one. What is written to it is published with the session.

        Args:
            path: The path in the lake.
            format: The name of its format, such as `icechunk` or `pool`.
            arguments: What the format's datasets are created with, such as the schema of a table.
            options: The same, by name, such as the `config` of a repository.
        """
        return self._workspace.create(checked_path(path), format, *arguments, **options)

    @property
    def files(self) -> ObjectStore:
        """Return the objects in the session by key.

        Use it by `files.put("reports/today.json", data)`, `files.get(key)` and `files.list(prefix)`.
        """
        return self._workspace.store

    @property
    def receipt(self) -> Receipt | None:
        """Return the result of publishing, after the `with` block."""
        return self._workspace.receipt

    def metadata(self) -> dict[str, Any]:
        """Return the commit or session as metadata, after the `with` block.

        It is for `dg.MaterializeResult(metadata=session.metadata())`.
        """
        if self.receipt is None:
            return {}
        metadata = receipt_metadata(self.receipt)
        return metadata | page_links(self._ui_url, metadata)
