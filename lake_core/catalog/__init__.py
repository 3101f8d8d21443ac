"""Catalogs: register the tables of a lake with AWS Glue, Hive metastores and Unity Catalog."""

from lake_core.catalog.catalog import Catalog, TableChanged, open_catalog
from lake_core.catalog.definition import Origin, RegisteredTable, TableDefinition
from lake_core.catalog.plan import Refusal
from lake_core.catalog.result import Synced, SyncedTable
from lake_core.catalog.sync import sync_branch, sync_branches

__all__ = [
    "Catalog",
    "Origin",
    "Refusal",
    "RegisteredTable",
    "Synced",
    "SyncedTable",
    "TableChanged",
    "TableDefinition",
    "open_catalog",
    "sync_branch",
    "sync_branches",
]
