"""The contract of catalogs holds for each: Glue by moto, a real Hive metastore, and Unity Catalog's API."""

from __future__ import annotations

from typing import Any

import pytest

from lake_core.catalog import Catalog
from lake_core.catalog.errors import CatalogRefused
from lake_core.catalog.glue import GlueCatalog
from lake_core.catalog.hive import HiveCatalog
from lake_core.catalog.unity import UnityCatalog
from lake_core.testing.catalog_suite import CatalogSuite, definition, schema_of
from tests.catalog.foreign_tables import create_in_glue, create_in_hive, create_in_unity
from tests.catalog.hive_metastore import HiveMetastore
from tests.catalog.unity_server import UnityServer


class TestGlue(CatalogSuite):
    @pytest.fixture
    def catalog(self, glue_url: str) -> Catalog:
        return GlueCatalog(region="us-east-1", endpoint=glue_url)

    def create_foreign(self, catalog: Catalog, schema: str, name: str) -> None:
        create_in_glue(catalog, schema, name)

    def test_what_others_added_stays(self, catalog: GlueCatalog, schema: str) -> None:
        catalog.create(schema, definition())
        client = catalog._client
        table = client.get_table(DatabaseName=schema, Name="orders")["Table"]
        changed = {key: table[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor", "PartitionKeys")}
        changed["Parameters"]["owner-team"] = "sales"
        client.update_table(DatabaseName=schema, TableInput=changed)
        catalog.update(schema, self._only(catalog, schema), definition(version=1, schema=schema_of("id", "new")))
        parameters = client.get_table(DatabaseName=schema, Name="orders")["Table"]["Parameters"]
        assert parameters["owner-team"] == "sales"

    def test_athena_spark_and_trino_find_the_table(self, catalog: GlueCatalog, schema: str) -> None:
        catalog.create(schema, definition(schema=schema_of("id", day="date"), partition_columns=("day",)))
        table = catalog._client.get_table(DatabaseName=schema, Name="orders")["Table"]
        descriptor = table["StorageDescriptor"]
        assert table["TableType"] == "EXTERNAL_TABLE"
        assert table["Parameters"]["spark.sql.sources.provider"] == "delta"
        assert descriptor["SerdeInfo"]["Parameters"]["path"] == descriptor["Location"]
        assert [column["Type"] for column in descriptor["Columns"]] == ["string", "date"]
        assert table["PartitionKeys"] == []

    def test_an_update_names_the_version_that_it_replaces(self, catalog: GlueCatalog, schema: str) -> None:
        # moto ignores the condition, so the request is what can be seen
        catalog.create(schema, definition())
        read = self._only(catalog, schema)
        requests: list[dict[str, Any]] = []
        catalog._client.meta.events.register(
            "before-parameter-build.glue.UpdateTable", lambda params, **_: requests.append(dict(params))
        )
        catalog.update(schema, read, definition(version=1))
        assert [request["VersionId"] for request in requests] == [read.handle]


@pytest.mark.spark
@pytest.mark.xdist_group("metastore")
class TestHive(CatalogSuite):
    many = 25

    @pytest.fixture(autouse=True)
    def _short_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lake_core.catalog.hive._AT_ONCE", 10)

    @pytest.fixture
    def catalog(self, metastore: HiveMetastore) -> Catalog:
        return HiveCatalog(metastore.uri)

    def create_foreign(self, catalog: Catalog, schema: str, name: str) -> None:
        create_in_hive(catalog, schema, name)

    def test_a_write_between_the_comparison_and_the_update_is_noticed(
        self, catalog: HiveCatalog, schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The metastore itself compares: here another sync comes after this one has."""
        from lake_core.catalog import hive
        from lake_core.catalog.catalog import TableChanged

        catalog.create(schema, definition())
        read = self._only(catalog, schema)
        compare, later = hive._stored, definition(version=7, schema=schema_of("id", "new"))

        def overtaken(*arguments: Any) -> Any:
            table = compare(*arguments)
            monkeypatch.setattr(hive, "_stored", compare)
            catalog.update(schema, read, later)
            return table

        monkeypatch.setattr(hive, "_stored", overtaken)
        with pytest.raises(TableChanged):
            catalog.update(schema, read, definition(version=3, schema=schema_of("id", "old")))
        assert self._only(catalog, schema).origin == later.origin


class TestUnity(CatalogSuite):
    without_form = ("void",)

    @pytest.fixture
    def catalog(self, unity: UnityServer) -> Catalog:
        return UnityCatalog(unity.url, "main")

    def create_foreign(self, catalog: Catalog, schema: str, name: str) -> None:
        create_in_unity(catalog, schema, name)

    def test_a_lost_answer_to_a_creation_is_noticed(
        self, catalog: Catalog, unity: UnityServer, schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from lake_core.catalog.catalog import TableChanged

        monkeypatch.setattr("lake_core.runtime.sleep", lambda seconds: None)
        unity.failures = [503]
        with pytest.raises(TableChanged):
            catalog.create(schema, definition())
        assert self._only(catalog, schema).origin == definition().origin

    def test_a_definition_that_the_server_refuses_leaves_the_table_as_it_was(
        self, catalog: UnityCatalog, unity: UnityServer, schema: str
    ) -> None:
        catalog.create(schema, definition())
        before = {key: value for key, value in unity.schemas["main", schema]["orders"].items() if key != "table_id"}
        unity.refused_columns = {"new"}
        with pytest.raises(CatalogRefused, match="Unsupported type"):
            catalog.update(schema, self._only(catalog, schema), definition(version=1, schema=schema_of("id", "new")))
        after = unity.schemas["main", schema]["orders"]
        assert {key: value for key, value in after.items() if key != "table_id"} == before

    def test_what_others_added_stays(self, catalog: UnityCatalog, unity: UnityServer, schema: str) -> None:
        catalog.create(schema, definition())
        unity.schemas["main", schema]["orders"]["properties"]["owner-team"] = "sales"
        catalog.update(schema, self._only(catalog, schema), definition(version=1, schema=schema_of("id", "new")))
        assert unity.schemas["main", schema]["orders"]["properties"]["owner-team"] == "sales"

    def test_a_lost_answer_to_a_drop_changes_nothing(
        self, catalog: Catalog, unity: UnityServer, schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lake_core.runtime.sleep", lambda seconds: None)
        catalog.create(schema, definition())
        table = self._only(catalog, schema)
        answer = unity.answer

        def lossy(method: str, *rest: Any) -> Any:
            if method == "DELETE":
                unity.failures, unity.answer = [502], answer  # type: ignore[method-assign]
            return answer(method, *rest)

        unity.answer = lossy  # type: ignore[method-assign]
        catalog.drop(schema, table)
        assert catalog.tables(schema) == {}
