"""A catalog in memory whose requests fail or are overtaken where a test says so."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from lake_core.catalog import Catalog, RegisteredTable, TableChanged, TableDefinition
from lake_core.catalog.errors import UnsupportedColumn

_WRITES = itertools.count(1)


@dataclass
class MemoryCatalog(Catalog):
    kind: ClassVar[str] = "memory"
    schemas: dict[str, dict[str, RegisteredTable]] = field(default_factory=dict)
    definitions: dict[tuple[str, str], TableDefinition] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    before: Callable[[str], None] = field(default=lambda request: None)
    """Called before each request. What it raises, the request raises without being done."""
    after: Callable[[str], None] = field(default=lambda request: None)
    """Called after each request. What it raises, the request raises although it is done."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def tables(self, schema: str) -> Mapping[str, RegisteredTable] | None:
        self.before("tables")
        with self._lock:
            found = self.schemas.get(schema)
            return None if found is None else dict(found)

    def create_schema(self, schema: str) -> None:
        self._write("create_schema", lambda: self.schemas.setdefault(schema, {}))

    def check(self, table: TableDefinition) -> None:
        if "unheard" in table.schema.names or "geometry(4326)" in table.schema_json:
            raise UnsupportedColumn("the column 'place' has a type without a form")

    def create(self, schema: str, table: TableDefinition) -> None:
        def create() -> None:
            if table.name in self.schemas.get(schema, {table.name: None}):
                raise TableChanged(table.name)
            self._put(schema, table)

        self._write(f"create {table.name}", create)

    def update(self, schema: str, current: RegisteredTable, table: TableDefinition) -> None:
        def update() -> None:
            self._compare(schema, current)
            self._put(schema, table)

        self._write(f"update {table.name}", update)

    def drop(self, schema: str, current: RegisteredTable) -> None:
        def drop() -> None:
            if current.name in self.schemas[schema]:
                self._compare(schema, current)
                del self.schemas[schema][current.name]

        self._write(f"drop {current.name}", drop)

    def add_foreign(self, schema: str, name: str) -> None:
        self.schemas.setdefault(schema, {})[name] = RegisteredTable(name, "s3://theirs", None, next(_WRITES))

    def _put(self, schema: str, table: TableDefinition) -> None:
        self.schemas[schema][table.name] = RegisteredTable(table.name, table.location, table.origin, next(_WRITES))
        self.definitions[schema, table.name] = table

    def _compare(self, schema: str, current: RegisteredTable) -> None:
        found = self.schemas[schema].get(current.name)
        if found is None or found.handle != current.handle:
            raise TableChanged(current.name)

    def _write(self, request: str, write: Callable[[], object]) -> None:
        self.before(request)
        with self._lock:
            write()
            self.requests.append(request)
        self.after(request)


@dataclass
class ReplacingCatalog(MemoryCatalog):
    """One that drops and creates a table to update it, as Unity Catalog must."""

    kind: ClassVar[str] = "replacing"
    updates_in_place: ClassVar[bool] = False

    def update(self, schema: str, current: RegisteredTable, table: TableDefinition) -> None:
        self.drop(schema, current)
        self.create(schema, table)
