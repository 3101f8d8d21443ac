"""`CatalogOperator`: registers the tables of a lake with a catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from lake_orch.airflow.hook import DEFAULT_CONNECTION, LakeHook

if TYPE_CHECKING:
    from airflow.sdk import Context


class CatalogOperator(BaseOperator):
    """Makes a schema of a catalog show the tables of main, and on request others those of the other branches.

    Put it after the `close` of a session, or schedule its DAG by the assets that are published. It is a task of its
    own, so a failing catalog never fails a publish. Give it `retries`.

    Args:
        catalog: The name of a catalog: `glue`, `hive`, `unity`, or one that a package adds.
        schema: The schema or database. It is created if it does not exist.
        options: The settings of the catalog. Secrets come from the environment of the worker.
        names: Names of tables in the catalog, by path, in place of those that follow from the paths.
        location: The lake's URL as the readers of the catalog open it, such as `s3a://bucket/lake`.
        all_branches: Whether each other branch is registered, too, in a schema of its own, `<schema>_<branch>`.
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
        all_branches: bool = False,
        connection: str = DEFAULT_CONNECTION,
        **operator_options: Any,
    ) -> None:
        super().__init__(**operator_options)
        self.catalog = catalog
        self.schema = schema
        self.options = dict(options or {})
        self.names = dict(names or {})
        self.location = location
        self.all_branches = all_branches
        self.connection = connection

    def execute(self, context: Context) -> dict[str, Any]:
        """Sync, and return what was done.

        Raises:
            AirflowFailException: A table is refused, and the others are registered. Or the catalog refuses the sync.
        """
        from lake_core.catalog import open_catalog, sync_branch, sync_branches
        from lake_core.catalog.errors import FINAL
        from lake_orch.airflow.errors import without_retry

        lake = LakeHook(self.connection).open()
        with without_retry(*FINAL):
            catalog = open_catalog(self.catalog, self.options)
            if self.all_branches:
                results = sync_branches(lake, catalog, self.schema, names=self.names, location=self.location)
            else:
                results = [sync_branch(lake, catalog, self.schema, names=self.names, location=self.location)]
            changes = [
                {"schema": synced.schema, "action": table.action, "name": table.name, "path": table.path}
                for synced in results
                for table in synced.tables
            ]
            for change in changes:
                self.log.info("%s %s.%s: %s", change["action"], change["schema"], change["name"], change["path"])
            for synced in results:
                synced.check()
        return {
            "commit": results[0].commit,
            "changes": changes,
            "unchanged": sum(synced.unchanged for synced in results),
        }
