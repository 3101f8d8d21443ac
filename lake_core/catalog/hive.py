"""Hive metastores, by their Thrift protocol: the tables of Spark, Trino, Presto, Hive and Flink."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from lake_core import runtime
from lake_core.catalog.catalog import Catalog, TableChanged
from lake_core.catalog.definition import Origin, RegisteredTable
from lake_core.catalog.errors import CatalogRefused, CatalogUnavailable, InvalidCatalogOption
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

_PORT = 9083
_WRITE = "lake.write"
"""The parameter with the id of the last write. It is other with each, so that it can be the condition of the next."""
_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}
"""Otherwise the metastore lists and counts the files of a table that it writes."""
_AT_ONCE = 200
"""The tables that are asked for in one request."""


@dataclass(frozen=True)
class HiveCatalog(Catalog):
    """A Hive metastore without Kerberos. A schema is a database."""

    uri: str
    """Where it listens: `thrift://host:9083`."""
    timeout_seconds: int = 60

    kind: ClassVar[str] = "hive"

    def tables(self, schema: str) -> Mapping[str, RegisteredTable] | None:
        """Return the tables of a database."""
        with self._client(schema) as (client, thrift):
            try:
                client.get_database(schema)
            except thrift.NoSuchObjectException:
                return None
            names = client.get_all_tables(schema)
            tables = [
                table
                for start in range(0, len(names), _AT_ONCE)
                for table in client.get_table_objects_by_name(schema, names[start : start + _AT_ONCE])
            ]
        return {table.tableName: _registered(table) for table in tables}

    def create_schema(self, schema: str) -> None:
        """Create a database, unless it exists. The metastore chooses its folder, in which nothing is written."""
        with self._client(schema) as (client, thrift):
            try:
                client.create_database(thrift.Database(name=schema, parameters={}))
            except thrift.AlreadyExistsException:
                return

    def check(self, table: TableDefinition) -> None:
        """Check the types of the columns."""
        hive_columns(table)

    def create(self, schema: str, table: TableDefinition) -> None:
        """Register a table."""
        with self._client(f"{schema}.{table.name}") as (client, thrift):
            try:
                client.create_table_with_environment_context(
                    _changed(thrift.Table(dbName=schema, tableName=table.name), table, thrift),
                    thrift.EnvironmentContext(properties=dict(_NO_STATISTICS)),
                )
            except (thrift.AlreadyExistsException, thrift.NoSuchObjectException):
                raise TableChanged(table.name) from None
            except thrift.InvalidObjectException:  # metastores say this of a missing database, too
                try:
                    client.get_database(schema)
                except thrift.NoSuchObjectException:
                    raise TableChanged(table.name) from None
                raise

    def update(self, schema: str, current: RegisteredTable, table: TableDefinition) -> None:
        """Change a table, on condition of the write that it records.

        Metastores since 2.3.10 and 4.0 check the condition. Older ones compare nothing: there, a sync that wrote
        between the two requests is overwritten.
        """
        with self._client(f"{schema}.{table.name}") as (client, thrift):
            stored = _stored(client, thrift, schema, current)
            if stored is None:
                raise TableChanged(current.name)
            condition = {}
            if write := stored.parameters.get(_WRITE):
                condition = {"expected_parameter_key": _WRITE, "expected_parameter_value": write}
            context = thrift.EnvironmentContext(properties={**_NO_STATISTICS, **condition})
            try:
                client.alter_table_with_environment_context(
                    schema, current.name, _changed(stored, table, thrift), context
                )
            except thrift.NoSuchObjectException:
                raise TableChanged(current.name) from None
            except (thrift.MetaException, thrift.InvalidOperationException):
                if _stored(client, thrift, schema, current) is None:
                    raise TableChanged(current.name) from None
                raise

    def drop(self, schema: str, current: RegisteredTable) -> None:
        """Remove a table. The metastore has no condition for this: it is compared just before."""
        with self._client(f"{schema}.{current.name}") as (client, thrift):
            if _stored(client, thrift, schema, current) is None:
                return
            try:
                client.drop_table(schema, current.name, deleteData=False)
            except thrift.NoSuchObjectException:
                return

    @contextmanager
    def _client(self, what: str) -> Iterator[tuple[Any, Any]]:
        """Connect, and turn the errors of the metastore into ours. Yields the client, and the types of Thrift."""
        try:
            from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
            from thrift.protocol.TBinaryProtocol import TBinaryProtocol
            from thrift.Thrift import TException
            from thrift.transport.TSocket import TSocket
            from thrift.transport.TTransport import TBufferedTransport, TTransportException
        except ModuleNotFoundError as error:
            raise CatalogRefused(
                f"the catalog hive needs the package {error.name}: install lake-orch with the extra hive"
            ) from None
        host, port = self._address()
        socket = TSocket(host, port)
        socket.setTimeout(self.timeout_seconds * 1000)
        transport = TBufferedTransport(socket)
        try:
            transport.open()
            yield ThriftHiveMetastore.Client(TBinaryProtocol(transport)), ttypes
        except (TTransportException, OSError, EOFError) as error:
            raise CatalogUnavailable(
                f"the metastore at {self.uri} did not answer for {what}: {error}. Run the sync again later"
            ) from None
        except TException as error:
            message = getattr(error, "message", None) or str(error)
            raise CatalogRefused(f"the metastore at {self.uri} refused {what}: {message}") from None
        finally:
            transport.close()

    def _address(self) -> tuple[str, int]:
        parts = urlsplit(self.uri if "://" in self.uri else f"thrift://{self.uri}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme != "thrift" or not host or "@" in parts.netloc:
            raise InvalidCatalogOption("the uri of a metastore is written as thrift://host:9083")
        return host, port or _PORT


def _stored(client: Any, thrift: Any, schema: str, current: RegisteredTable) -> Any:
    """Return a table as it is now, None if it is gone. Raises TableChanged if it is not as `current`."""
    try:
        stored = client.get_table(schema, current.name)
    except thrift.NoSuchObjectException:
        return None
    if (registered := _registered(stored)) != current or registered.handle != current.handle:
        raise TableChanged(current.name)
    return stored


def _registered(table: Any) -> RegisteredTable:
    location = None if table.sd is None else table.sd.location
    return RegisteredTable(table.tableName, location, Origin.of(table.parameters), (table.parameters or {}).get(_WRITE))


def _changed(stored: Any, table: TableDefinition, thrift: Any) -> Any:
    """Give a table of the metastore another definition."""
    stored.tableType = TABLE_TYPE
    stored.partitionKeys = []
    stored.parameters = hive_parameters(table, stored.parameters) | {_WRITE: runtime.uuid4().hex}
    stored.sd = thrift.StorageDescriptor(
        cols=[thrift.FieldSchema(name=name, type=type, comment=comment) for name, type, comment in hive_columns(table)],
        location=table.location,
        inputFormat=INPUT_FORMAT,
        outputFormat=OUTPUT_FORMAT,
        numBuckets=-1,
        serdeInfo=thrift.SerDeInfo(serializationLib=SERDE, parameters=serde_parameters(table)),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    return stored
