"""Tables that another program puts into a catalog."""

from __future__ import annotations

from lake_core.catalog import Catalog
from lake_core.catalog.glue import GlueCatalog
from lake_core.catalog.hive import HiveCatalog
from lake_core.catalog.unity import UnityCatalog


def create_in_glue(catalog: Catalog, schema: str, name: str) -> None:
    assert isinstance(catalog, GlueCatalog)
    storage = {"Columns": [{"Name": "theirs", "Type": "string"}], "Location": "s3://theirs/table"}
    catalog._client.create_table(DatabaseName=schema, TableInput={"Name": name, "StorageDescriptor": storage})


def create_in_hive(catalog: Catalog, schema: str, name: str) -> None:
    assert isinstance(catalog, HiveCatalog)
    with catalog._client(name) as (client, thrift):
        columns = [thrift.FieldSchema(name="theirs", type="string")]
        storage = thrift.StorageDescriptor(cols=columns, serdeInfo=thrift.SerDeInfo(), parameters={})
        client.create_table(thrift.Table(dbName=schema, tableName=name, sd=storage, parameters={}, partitionKeys=[]))


def create_in_unity(catalog: Catalog, schema: str, name: str) -> None:
    assert isinstance(catalog, UnityCatalog)
    column = {
        "name": "theirs",
        "type_text": "string",
        "type_json": '{"name":"theirs","type":"string","nullable":true,"metadata":{}}',
        "type_name": "STRING",
        "position": 0,
        "nullable": True,
    }
    body = {"name": name, "catalog_name": catalog.catalog, "schema_name": schema, "table_type": "EXTERNAL"}
    body |= {"data_source_format": "DELTA", "storage_location": "file:///theirs/table"}
    catalog._ask("POST", "/tables", name, {**body, "columns": [column]})
