"""The contract of a catalog, as tests.

Subclass the suite in a test module, and define how the catalog is opened, and how others put a table there:

    class TestNotes(CatalogSuite):
        @pytest.fixture
        def catalog(self) -> Catalog:
            return NotesCatalog("https://notes.example")

        def create_foreign(self, catalog: Catalog, schema: str, name: str) -> None:
            catalog.client.add(schema, name)
"""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from lake_core.catalog import Catalog, Origin, RegisteredTable, TableChanged, TableDefinition
from lake_core.catalog.definition import fingerprint
from lake_core.catalog.errors import UnsupportedColumn
from lake_core.delta.schema import ArrayType, MapType, PrimitiveType, StructField, StructType

PRIMITIVES = (
    *("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date"),
    *("timestamp", "timestamp_ntz", "decimal(38,18)", "variant", "void"),
)


def schema_of(*names: str, **types: str) -> StructType:
    """Return a schema with columns of text, and then with columns of other types."""
    columns = [*((name, "string") for name in names), *types.items()]
    return StructType(tuple(StructField(name, PrimitiveType(type)) for name, type in columns))


def definition(
    name: str = "orders",
    schema: StructType | None = None,
    *,
    version: int = 0,
    location: str = "file:///lake/tables/orders",
    partition_columns: tuple[str, ...] = (),
    description: str | None = None,
) -> TableDefinition:
    """Return the definition of a table."""
    schema = schema or schema_of("id")
    origin = Origin(
        lake="6a1c1e0e-7a0a-4a52-9a26-0a36e1b6a001",
        branch="main",
        path=f"tables/{name}",
        dataset="8d5e5a2a-2f7f-4a3c-8b86-5f7e1f0f0002",
        commit=f"{version:064x}",
        version=version,
        fingerprint=fingerprint(location, schema, partition_columns, description),
    )
    return TableDefinition(name, location, schema, partition_columns, description, origin)


class CatalogSuite:
    """Tests that every catalog must pass. Override the fixture `catalog` and the method `create_foreign`."""

    without_form: tuple[str, ...] = ()
    """The types of columns, as Delta names them, that the catalog refuses."""
    many = 120
    """More tables than the catalog lists at once."""

    @pytest.fixture
    def catalog(self) -> Catalog:
        """Return the catalog. It may hold the schemas of other tests."""
        raise NotImplementedError

    def create_foreign(self, catalog: Catalog, schema: str, name: str) -> None:
        """Put a table into a schema as another program does."""
        raise NotImplementedError

    @pytest.fixture
    def schema(self, catalog: Catalog) -> str:
        """Return the name of a new schema."""
        name = f"lake_{uuid.uuid4().hex[:12]}"
        catalog.create_schema(name)
        return name

    def _only(self, catalog: Catalog, schema: str) -> RegisteredTable:
        tables = catalog.tables(schema)
        assert tables is not None
        (table,) = tables.values()
        return table

    def test_a_schema_that_does_not_exist_is_none(self, catalog: Catalog) -> None:
        """Tell a missing schema from an empty one."""
        assert catalog.tables(f"lake_{uuid.uuid4().hex[:12]}") is None

    def test_a_schema_is_created_once(self, catalog: Catalog, schema: str) -> None:
        """Create it again."""
        catalog.create_schema(schema)
        assert catalog.tables(schema) == {}

    def test_a_table_keeps_its_record(self, catalog: Catalog, schema: str) -> None:
        """Read back where it comes from."""
        table = definition()
        catalog.create(schema, table)
        assert self._only(catalog, schema).origin == table.origin

    def test_what_others_registered_has_no_record(self, catalog: Catalog, schema: str) -> None:
        """List a table of another program."""
        self.create_foreign(catalog, schema, "orders")
        assert self._only(catalog, schema).origin is None

    def test_many_tables_are_listed(self, catalog: Catalog, schema: str) -> None:
        """List more tables than a page has."""
        names = [f"t{number:03}" for number in range(self.many)]
        for name in names:
            catalog.create(schema, definition(name))
        assert sorted(catalog.tables(schema) or ()) == names

    def test_a_taken_name_is_not_overwritten(self, catalog: Catalog, schema: str) -> None:
        """Create a table where another program has one."""
        self.create_foreign(catalog, schema, "orders")
        with pytest.raises(TableChanged):
            catalog.create(schema, definition())
        assert self._only(catalog, schema).origin is None

    def test_creating_twice_is_noticed(self, catalog: Catalog, schema: str) -> None:
        """Create what another sync has just created."""
        catalog.create(schema, definition())
        with pytest.raises(TableChanged):
            catalog.create(schema, definition(version=1))
        origin = self._only(catalog, schema).origin
        assert origin is not None
        assert origin.version == 0

    def test_a_schema_that_was_dropped_meanwhile_is_noticed(self, catalog: Catalog) -> None:
        """Create a table in a schema that does not exist."""
        with pytest.raises(TableChanged):
            catalog.create(f"lake_{uuid.uuid4().hex[:12]}", definition())

    def test_an_update_replaces_the_record(self, catalog: Catalog, schema: str) -> None:
        """Update a table to a later version, at another location."""
        catalog.create(schema, definition())
        later = definition(version=7, location="file:///elsewhere/tables/orders", schema=schema_of("id", "day"))
        catalog.update(schema, self._only(catalog, schema), later)
        assert self._only(catalog, schema).origin == later.origin

    def test_an_update_of_an_outdated_state_is_noticed(self, catalog: Catalog, schema: str) -> None:
        """Update a table that another sync has updated since it was read."""
        catalog.create(schema, definition())
        read = self._only(catalog, schema)
        catalog.update(schema, read, definition(version=7, schema=schema_of("id", "new")))
        with pytest.raises(TableChanged):
            catalog.update(schema, read, definition(version=3, schema=schema_of("id", "old")))
        origin = self._only(catalog, schema).origin
        assert origin is not None
        assert origin.version == 7

    def test_a_table_that_was_replaced_is_not_updated(self, catalog: Catalog, schema: str) -> None:
        """Update a table that another program has dropped, and created as its own."""
        catalog.create(schema, definition())
        read = self._only(catalog, schema)
        catalog.drop(schema, read)
        self.create_foreign(catalog, schema, "orders")
        with pytest.raises(TableChanged):
            catalog.update(schema, read, definition(version=1, schema=schema_of("id", "new")))
        assert self._only(catalog, schema).origin is None

    def test_a_dropped_table_is_gone(self, catalog: Catalog, schema: str) -> None:
        """Drop a table, and again."""
        catalog.create(schema, definition())
        read = self._only(catalog, schema)
        catalog.drop(schema, read)
        catalog.drop(schema, read)
        assert catalog.tables(schema) == {}

    def test_a_table_that_was_replaced_is_not_dropped(self, catalog: Catalog, schema: str) -> None:
        """Drop a table that another program has dropped, and created as its own."""
        catalog.create(schema, definition())
        read = self._only(catalog, schema)
        catalog.drop(schema, read)
        self.create_foreign(catalog, schema, "orders")
        with pytest.raises(TableChanged):
            catalog.drop(schema, read)
        assert list(catalog.tables(schema) or ()) == ["orders"]

    def test_a_table_that_was_updated_is_not_dropped(self, catalog: Catalog, schema: str) -> None:
        """Drop a table that another sync has updated since it was read."""
        catalog.create(schema, definition())
        read = self._only(catalog, schema)
        catalog.update(schema, read, definition(version=7, schema=schema_of("id", "new")))
        with pytest.raises(TableChanged):
            catalog.drop(schema, read)
        assert list(catalog.tables(schema) or ()) == ["orders"]

    @pytest.mark.parametrize("type", PRIMITIVES)
    def test_each_type_has_a_form(self, catalog: Catalog, schema: str, type: str) -> None:
        """Register a table with a column of each type, also inside of others."""
        kind = PrimitiveType(type)
        inner = StructType((StructField("Inner", kind), StructField("more", ArrayType(kind))))
        columns = StructType(
            (
                StructField("plain", kind, nullable=False, metadata={"comment": "what it is: \"it\", 'so' & é"}),
                StructField("list", ArrayType(inner)),
                StructField("map", MapType(PrimitiveType("string"), inner)),
            )
        )
        table = definition(schema=columns)
        if type in self.without_form:
            with pytest.raises(UnsupportedColumn, match="'plain'"):
                catalog.check(table)
            return
        catalog.check(table)
        catalog.create(schema, table)
        assert self._only(catalog, schema).origin == table.origin

    def test_a_wide_table_is_registered(self, catalog: Catalog, schema: str) -> None:
        """Register a table whose schema is longer than a parameter of a metastore may be, with partitions."""
        table = definition(
            schema=schema_of(*(f"a_long_name_of_a_column_{number:04}" for number in range(300)), day="date"),
            partition_columns=("day",),
            description="Orders of all shops",
        )
        catalog.create(schema, table)
        assert self._only(catalog, schema).origin == table.origin

    def test_a_type_without_a_form_is_refused_by_its_column(self, catalog: Catalog) -> None:
        """Check a table with a type that nobody knows."""
        with pytest.raises(UnsupportedColumn, match="'place'"):
            catalog.check(definition(schema=schema_of("id", place="geometry(4326)")))

    def test_the_longest_name_is_held(self, catalog: Catalog, schema: str) -> None:
        """Register a table with as many characters as the catalog says."""
        name = "n" * type(catalog).longest_name
        catalog.create(schema, replace(definition(), name=name))
        assert self._only(catalog, schema).name == name
