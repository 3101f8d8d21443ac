"""Unity Catalog's open server, by its REST API: the tables of Spark, DuckDB, Trino and Daft."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote, urlencode, urlsplit

from lake_core.catalog.catalog import Catalog, TableChanged
from lake_core.catalog.definition import Origin, RegisteredTable, is_of_record
from lake_core.catalog.errors import CatalogRefused, CatalogUnavailable, InvalidCatalogOption
from lake_core.catalog.type_text import TypeTexts, decimal_digits
from lake_core.delta.schema import ArrayType, MapType, PrimitiveType, StructField, StructType, schema_to_json
from lake_core.json_http import HttpFailure, HttpRefusal, JsonServer, NoJson

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake_core.catalog.definition import TableDefinition
    from lake_core.delta.schema import DataType

_PATH: Final = "/api/2.1/unity-catalog"
_PAGE: Final = 50
_NO_SCHEMA: Final = "SCHEMA_NOT_FOUND"
_NO_TABLE: Final = "TABLE_NOT_FOUND"
_EXISTS: Final = frozenset({"TABLE_ALREADY_EXISTS", "SCHEMA_ALREADY_EXISTS", "ALREADY_EXISTS"})

_UNITY_OF: Final[Mapping[str, tuple[str, str]]] = {
    "string": ("STRING", "string"),
    "long": ("LONG", "bigint"),
    "integer": ("INT", "int"),
    "short": ("SHORT", "smallint"),
    "byte": ("BYTE", "tinyint"),
    "float": ("FLOAT", "float"),
    "double": ("DOUBLE", "double"),
    "boolean": ("BOOLEAN", "boolean"),
    "binary": ("BINARY", "binary"),
    "date": ("DATE", "date"),
    "timestamp": ("TIMESTAMP", "timestamp"),
    "timestamp_ntz": ("TIMESTAMP_NTZ", "timestamp_ntz"),
    "variant": ("VARIANT", "variant"),
}
"""Unity Catalog's name of each primitive type, and Spark's text of it."""
_PLAIN: Final = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True)
class UnityCatalog(Catalog):
    """A catalog of a Unity Catalog server.

    The open server cannot change a table. An update drops the table and creates it again, and only if its definition
    has changed: what was granted on the table itself is lost then. Grant on the schema.
    """

    uri: str
    """Where the server is: `https://host:8080`."""
    catalog: str
    """The name of the catalog, which must exist."""
    token: str | None = field(default=None, repr=False)

    kind: ClassVar[str] = "unity"
    longest_name: ClassVar[int] = 255
    folds_case: ClassVar[bool] = False
    updates_in_place: ClassVar[bool] = False

    def tables(self, schema: str) -> Mapping[str, RegisteredTable] | None:
        """Return the tables of a schema."""
        tables: dict[str, RegisteredTable] = {}
        token = ""
        while True:
            query = {"catalog_name": self.catalog, "schema_name": schema, "max_results": str(_PAGE)}
            if token:
                query["page_token"] = token
            try:
                page = self._ask("GET", f"/tables?{urlencode(query)}", schema)
            except HttpRefusal as error:
                if error.code == _NO_SCHEMA:
                    return None
                raise self._refused(schema, error) from None
            tables |= {table["name"]: _registered(table) for table in page.get("tables") or ()}
            after, token = token, page.get("next_page_token") or ""
            if not token:
                return tables
            if token == after:
                raise CatalogRefused(f"Unity Catalog at {self.uri} answers with the same page of {schema} again")

    def create_schema(self, schema: str) -> None:
        """Create a schema, unless it exists."""
        try:
            self._ask("POST", "/schemas", schema, {"name": schema, "catalog_name": self.catalog})
        except HttpRefusal as error:
            if error.code not in _EXISTS:
                raise self._refused(schema, error) from None

    def check(self, table: TableDefinition) -> None:
        """Check the types of the columns."""
        _columns(table)

    def create(self, schema: str, table: TableDefinition) -> None:
        """Register a table."""
        self._create(schema, self._body(schema, table))

    def update(self, schema: str, current: RegisteredTable, table: TableDefinition) -> None:
        """Drop a table and create it again, as the server cannot change it. If it refuses, create it as it was."""
        stored = self._drop(schema, current)
        if stored is None:
            raise TableChanged(current.name)
        others = {key: value for key, value in (stored.get("properties") or {}).items() if not is_of_record(key)}
        body = self._body(schema, table)
        try:
            self._create(schema, {**body, "properties": others | body["properties"]})
        except CatalogRefused:
            before = {key: stored[key] for key in (*body, "comment") if stored.get(key) is not None}
            self._create(schema, {**before, "catalog_name": self.catalog, "schema_name": schema})
            raise

    def drop(self, schema: str, current: RegisteredTable) -> None:
        """Remove a table. The server has no condition for this: it is compared just before."""
        self._drop(schema, current)

    def _body(self, schema: str, table: TableDefinition) -> dict[str, Any]:
        return {
            "name": table.name,
            "catalog_name": self.catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": _columns(table),
            "storage_location": table.location,
            "properties": table.origin.parameters(),
            **({"comment": table.description} if table.description else {}),
        }

    def _create(self, schema: str, body: Mapping[str, Any]) -> None:
        what = f"{schema}.{body['name']}"
        try:
            self._ask("POST", "/tables", what, body)
        except HttpRefusal as error:
            if error.code in (*_EXISTS, _NO_SCHEMA):
                raise TableChanged(str(body["name"])) from None
            raise self._refused(what, error) from None

    def _drop(self, schema: str, current: RegisteredTable) -> dict[str, Any] | None:
        """Remove a table, and return what it was. Return None if it was gone."""
        what = f"{schema}.{current.name}"
        path = f"/tables/{quote(f'{self.catalog}.{what}', safe='')}"
        stored = None
        try:
            stored = self._ask("GET", path, what)
            registered = _registered(stored)
            if registered != current or registered.handle != current.handle:
                raise TableChanged(current.name)
            self._ask("DELETE", path, what)
        except HttpRefusal as error:
            if error.code not in (_NO_TABLE, _NO_SCHEMA):
                raise self._refused(what, error) from None
        return stored

    def _ask(self, method: str, path: str, what: str, body: object = None) -> dict[str, Any]:
        """Send a request. Raises HttpRefusal, which the caller turns into an error of ours."""
        parts = urlsplit(self.uri)
        if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc or parts.query:
            raise InvalidCatalogOption("the uri of a Unity Catalog server is written as https://host:port")
        if not self.catalog or set("./ ") & set(self.catalog):
            raise InvalidCatalogOption(f"a catalog of Unity Catalog cannot be called {self.catalog!r}")
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        server = JsonServer(f"{self.uri.rstrip('/').removesuffix(_PATH)}{_PATH}", headers)
        with self._answers(what):
            answer = server.ask(method, path, body, is_read=method == "GET")
            if answer is not None and not isinstance(answer, dict):
                raise NoJson("the answer is no JSON object")
        return answer or {}

    @contextmanager
    def _answers(self, what: str) -> Iterator[None]:
        try:
            yield
        except HttpFailure as error:
            raise CatalogUnavailable(
                f"Unity Catalog at {self.uri} failed for {what}: {error}. Run the sync again later"
            ) from None
        except NoJson as error:
            raise CatalogRefused(f"there is no Unity Catalog server at {self.uri}: {error}") from None

    def _refused(self, what: str, error: HttpRefusal) -> CatalogRefused:
        advice = ": check LAKE_UNITY_TOKEN" if error.status in (401, 403) else ""
        return CatalogRefused(f"Unity Catalog at {self.uri} refused {what}: {error}{advice}")


def _registered(table: Mapping[str, Any]) -> RegisteredTable:
    location = table.get("storage_location")
    return RegisteredTable(table["name"], location, Origin.of(table.get("properties")), table.get("table_id"))


def _columns(table: TableDefinition) -> list[dict[str, object]]:
    """Return the columns of a table as the API has them. Raises UnsupportedColumn."""
    partitions = {name: index for index, name in enumerate(table.partition_columns)}
    columns = []
    for position, child in enumerate(table.schema.fields):
        column = {
            "name": child.name,
            "type_text": type_text(child.type, child.name),
            "type_json": _field_json(child),
            "type_name": _type_name(child.type),
            "position": position,
            "nullable": child.nullable,
        }
        if digits := decimal_digits(child.type):
            column |= {"type_precision": digits[0], "type_scale": digits[1]}
        if isinstance(comment := child.metadata.get("comment"), str) and comment:
            column["comment"] = comment
        if child.name in partitions:
            column["partition_index"] = partitions[child.name]
        columns.append(column)
    return columns


def _field_json(child: StructField) -> str:
    """Return a field as Spark writes it."""
    return json.dumps(json.loads(schema_to_json(StructType((child,))))["fields"][0], separators=(",", ":"))


def _type_name(kind: DataType) -> str:
    match kind:
        case PrimitiveType(name=name):
            return _UNITY_OF[name][0] if name in _UNITY_OF else "DECIMAL"
        case ArrayType():
            return "ARRAY"
        case MapType():
            return "MAP"
        case StructType():
            return "STRUCT"


def _quoted(_column: str, name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


_TYPES: Final = TypeTexts("Unity Catalog", {name: text for name, (_, text) in _UNITY_OF.items()}, _quoted)


def type_text(kind: DataType, column: str) -> str:
    """Return the text of a type in Spark's DDL. Raises UnsupportedColumn, which names the column."""
    return _TYPES.text(kind, column)
