"""`CatalogOperator`: registers the tables of main with a catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from lake_orch.airflow.hook import DEFAULT_CONNECTION, LakeHook

if TYPE_CHECKING:
    from airflow.sdk import Context


class CatalogOperator(BaseOperator):
    """Makes a schema of a catalog show the tables of main.

    Put it after the `close` of a session, or schedule its DAG by the assets that are published. It is a task of its
    own, so a failing catalog never fails a publish. Give it `retries`.

    Args:
        catalog: The name of a catalog: `glue`, `hive`, `unity`, or one that a package adds.
        schema: The schema or database. It is created if it does not exist.
        options: The settings of the catalog. Secrets come from the environment of the worker.
        names: Names of tables in the catalog, by path, in place of those that follow from the paths.
        location: The lake's URL as the readers of the catalog open it, such as `s3a://bucket/lake`.
        connection: The id of a connection of the type `lake`.
        operator_options: Further options of the operator, such as `task_id` and `retries`.
    """

    template_fields: Sequence[str] = ("schema", "options", "location")
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        catalog: str,
        schema: str,
        options: Mapping[str, str] | None = None,
        names: Mapping[str, str] | None = None,
        location: str | None = None,
        connection: str = DEFAULT_CONNECTION,
        **operator_options: Any,
    ) -> None:
        super().__init__(**operator_options)
        self.catalog = catalog
        self.schema = schema
        self.options = dict(options or {})
        self.names = dict(names or {})
        self.location = location
        self.connection = connection

    def execute(self, context: Context) -> dict[str, Any]:
        """Sync, and return what was done.

        Raises:
            AirflowFailException: A table is refused, and the others are registered. Or the catalog refuses the sync.
        """
        from lake_core.catalog import open_catalog, sync_branch
        from lake_core.catalog.errors import FINAL
        from lake_orch.airflow.errors import without_retry

        lake = LakeHook(self.connection).open()
        with without_retry(*FINAL):
            synced = sync_branch(
                lake, open_catalog(self.catalog, self.options), self.schema, names=self.names, location=self.location
            )
            for table in synced.tables:
                self.log.info("%s %s.%s: %s", table.action, self.schema, table.name, table.path)
            synced.check()
        return {
            "commit": synced.commit,
            "changes": [{"action": each.action, "name": each.name, "path": each.path} for each in synced.tables],
            "unchanged": synced.unchanged,
        }
