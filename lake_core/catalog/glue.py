"""AWS Glue: databases and tables of the Data Catalog, which Athena, EMR, Redshift and Trino read."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from lake_core.catalog.catalog import Catalog, TableChanged
from lake_core.catalog.definition import Origin, RegisteredTable
from lake_core.catalog.errors import CatalogError, CatalogRefused, CatalogUnavailable, InvalidCatalogOption
from lake_core.catalog.hive_table import (
    INPUT_FORMAT,
    OUTPUT_FORMAT,
    SERDE,
    TABLE_TYPE,
    hive_columns,
    hive_parameters,
    serde_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake_core.catalog.definition import TableDefinition

_EXISTS, _MISSING, _CONFLICT = "AlreadyExistsException", "EntityNotFoundException", "ConcurrentModificationException"
_TRANSIENT = frozenset(
    {
        "InternalServiceException",
        "OperationTimeoutException",
        "ThrottlingException",
        "ResourceNumberLimitExceededException",
        "ServiceUnavailableException",
    }
)
_KEPT = ("Owner", "Retention", "ViewOriginalText", "ViewExpandedText")
"""The parts of a table that an update leaves as they are."""


@dataclass(frozen=True)
class GlueCatalog(Catalog):
    """The Glue Data Catalog of an account and region.

    Credentials are those that botocore finds: environment, profile, role. A schema is a database.
    """

    region: str | None = None
    profile: str | None = None
    """The profile of the AWS configuration."""
    catalog_id: str | None = None
    """The account whose catalog it is, if that is not the caller's."""
    endpoint: str | None = None
    """The URL of the service, if it is not that of the region."""

    kind: ClassVar[str] = "glue"
    longest_name: ClassVar[int] = 255

    @cached_property
    def _client(self) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ModuleNotFoundError as error:
            raise CatalogRefused(
                f"the catalog glue needs the package {error.name}: install lake-orch with the extra glue"
            ) from None
        if self.endpoint is not None and "@" in self.endpoint:
            raise InvalidCatalogOption("the endpoint of Glue must not hold credentials: set AWS_ACCESS_KEY_ID")
        with self._answers("the configuration"):
            session = boto3.Session(profile_name=self.profile, region_name=self.region)
            config = Config(retries={"mode": "standard", "total_max_attempts": 5})
            return session.client("glue", endpoint_url=self.endpoint, config=config)

    @property
    def _account(self) -> dict[str, str]:
        return {"CatalogId": self.catalog_id} if self.catalog_id else {}

    def tables(self, schema: str) -> Mapping[str, RegisteredTable] | None:
        """Return the tables of a database."""
        tables: dict[str, RegisteredTable] = {}
        try:
            with self._answers(schema):
                for page in self._client.get_paginator("get_tables").paginate(DatabaseName=schema, **self._account):
                    tables |= {table["Name"]: _registered(table) for table in page["TableList"]}
        except _Missing:
            return None
        return tables

    def create_schema(self, schema: str) -> None:
        """Create a database, unless it exists."""
        try:
            with self._answers(schema):
                self._client.create_database(DatabaseInput={"Name": schema}, **self._account)
        except TableChanged:
            pass

    def check(self, table: TableDefinition) -> None:
        """Check the types of the columns."""
        hive_columns(table)

    def create(self, schema: str, table: TableDefinition) -> None:
        """Register a table."""
        try:
            with self._answers(f"{schema}.{table.name}"):
                self._client.create_table(DatabaseName=schema, TableInput=_input(table, {}), **self._account)
        except _Missing:
            raise TableChanged(schema) from None  # the database was dropped just now

    def update(self, schema: str, current: RegisteredTable, table: TableDefinition) -> None:
        """Change a table, on condition of its version."""
        stored = self._stored(schema, current)
        condition = {"VersionId": stored["VersionId"]} if stored.get("VersionId") else {}
        try:
            with self._answers(f"{schema}.{table.name}"):
                self._client.update_table(
                    DatabaseName=schema,
                    TableInput=_input(table, stored),
                    SkipArchive=True,  # else each publish adds a version, and their number is limited
                    **condition,
                    **self._account,
                )
        except _Missing:
            raise TableChanged(current.name) from None

    def drop(self, schema: str, current: RegisteredTable) -> None:
        """Remove a table. Glue has no condition for this: it is compared just before."""
        try:
            self._stored(schema, current)
            with self._answers(f"{schema}.{current.name}"):
                self._client.delete_table(DatabaseName=schema, Name=current.name, **self._account)
        except _Missing:
            return

    def _stored(self, schema: str, current: RegisteredTable) -> dict[str, Any]:
        """Return a table as it is now. Raises TableChanged if it is not as `current`, and _Missing."""
        with self._answers(f"{schema}.{current.name}"):
            stored: dict[str, Any] = self._client.get_table(DatabaseName=schema, Name=current.name, **self._account)[
                "Table"
            ]
        if _registered(stored) != current or stored.get("VersionId") != current.handle:
            raise TableChanged(current.name)
        return stored

    @contextmanager
    def _answers(self, what: str) -> Iterator[None]:
        """Turn the errors of the service into ours."""
        from botocore import exceptions

        try:
            yield
        except exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise _error_of(code, status, str(error), what) from None
        except exceptions.NoRegionError:
            raise CatalogRefused("Glue needs a region: pass the option region, or set AWS_REGION") from None
        except exceptions.NoCredentialsError:
            raise CatalogRefused("Glue needs credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID") from None
        except (exceptions.ConnectionError, exceptions.HTTPClientError) as error:
            raise CatalogUnavailable(f"Glue cannot be reached for {what}: {error}. Run the sync again later") from None
        except exceptions.BotoCoreError as error:
            raise CatalogRefused(f"Glue cannot be asked for {what}: {error}") from None


class _Missing(Exception):
    """The database or table does not exist."""


def _error_of(code: str, status: int, text: str, what: str) -> CatalogError | TableChanged | _Missing:
    if code in (_EXISTS, _CONFLICT):
        return TableChanged(what)
    if code == _MISSING:
        return _Missing(what)
    if code in _TRANSIENT or status >= 500:
        return CatalogUnavailable(f"Glue failed for {what}: {text}. Run the sync again later")
    return CatalogRefused(f"Glue refused {what}: {text}")


def _registered(table: Mapping[str, Any]) -> RegisteredTable:
    location = table.get("StorageDescriptor", {}).get("Location")
    return RegisteredTable(table["Name"], location, Origin.of(table.get("Parameters")), table.get("VersionId"))


def _input(table: TableDefinition, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a table as Glue has it, with what others added to the table that is there."""
    columns = [
        {"Name": name, "Type": type} | ({} if comment is None else {"Comment": comment})
        for name, type, comment in hive_columns(table)
    ]
    return {
        **{key: stored[key] for key in _KEPT if key in stored},
        "Name": table.name,
        "TableType": TABLE_TYPE,
        "PartitionKeys": [],
        "Parameters": hive_parameters(table, stored.get("Parameters")),
        "StorageDescriptor": {
            "Columns": columns,
            "Location": table.location,
            "InputFormat": INPUT_FORMAT,
            "OutputFormat": OUTPUT_FORMAT,
            "SerdeInfo": {"SerializationLibrary": SERDE, "Parameters": serde_parameters(table)},
        },
        **({"Description": table.description[:2048]} if table.description else {}),
    }
