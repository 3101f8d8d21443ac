"""`Catalog`, the interface to a catalog of tables, and the registry of the installed ones.

Catalogs register their classes under the entry point group `lake_core.catalogs`. A class is a dataclass whose fields
are the settings: text, whole numbers or flags. A field that is not shown (`repr=False`) is a secret, which only the
environment passes.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lake_core.catalog.errors import InvalidCatalogOption, UnknownCatalog
from lake_core.installed import installed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.catalog.definition import RegisteredTable, TableDefinition

CATALOGS: Final = "lake_core.catalogs"
"""The entry point group in which catalogs register their classes: name → a dataclass of settings."""

_FLAGS = {"true": True, "false": False}


class TableChanged(Exception):
    """The table in the catalog is not, or no longer, as the caller assumed. Nothing was changed."""


class Catalog(ABC):
    """A catalog of tables.

    A table that is dropped here is only forgotten by the catalog: no method deletes or writes a file. Every method
    raises CatalogUnavailable if the catalog gives no final answer, and CatalogRefused if it refuses.
    """

    kind: ClassVar[str]
    """The name of the class in the registry."""
    longest_name: ClassVar[int] = 128
    """The most characters of the name of a table or schema."""
    folds_case: ClassVar[bool] = True
    """Whether the catalog keeps the names of schemas in lower case."""
    updates_in_place: ClassVar[bool] = True
    """Whether an update keeps the table. Otherwise it is dropped and created, and only if its definition changes."""

    @abstractmethod
    def tables(self, schema: str) -> Mapping[str, RegisteredTable] | None:
        """Return all tables and views of a schema by name, also those of others. Return None if it does not exist."""

    @abstractmethod
    def create_schema(self, schema: str) -> None:
        """Create a schema, unless it exists."""

    @abstractmethod
    def check(self, table: TableDefinition) -> None:
        """Check that the catalog has a form for a definition. Nothing is asked of a server.

        Raises UnsupportedColumn.
        """

    @abstractmethod
    def create(self, schema: str, table: TableDefinition) -> None:
        """Register a table. Raises TableChanged if the schema has something of this name."""

    @abstractmethod
    def update(self, schema: str, current: RegisteredTable, table: TableDefinition) -> None:
        """Give a registered table another definition and record. What others added to it stays.

        Raises TableChanged if the table is not as `current` says. A catalog that cannot make the change conditional
        compares just before.
        """

    @abstractmethod
    def drop(self, schema: str, current: RegisteredTable) -> None:
        """Remove a table from the catalog, unless it is gone. No file is deleted. Raises TableChanged as `update`."""


def catalog_class(name: str) -> type[Catalog]:
    """Return a catalog's class by its name. Raises UnknownCatalog."""
    catalogs = installed(CATALOGS)
    if name not in catalogs:
        raise UnknownCatalog(
            f"the catalog {name!r} is not installed (installed are {', '.join(catalogs) or 'none'}): "
            "install the package that provides it"
        )
    loaded: type[Catalog] = catalogs[name].load()
    return loaded


def open_catalog(
    name: str, options: Mapping[str, str] | None = None, environment: Mapping[str, str] = os.environ
) -> Catalog:
    """Return a catalog with the settings that options have as text. Nothing is connected yet.

    A setting that no option gives is read from the environment: `region` of `glue` from LAKE_GLUE_REGION.

    Raises:
        UnknownCatalog: There is no such catalog.
        InvalidCatalogOption: An option is unknown, missing or malformed, or is a secret.
    """
    cls = catalog_class(name)
    fields = {field.name: field for field in dataclasses.fields(typing.cast("Any", cls)) if field.init}
    types = typing.get_type_hints(cls)
    shown = ", ".join(key for key, field in fields.items() if field.repr) or "none"
    for key in options or {}:
        if key not in fields:
            raise InvalidCatalogOption(f"the catalog {name!r} has no option {key!r}: its options are {shown}")
        if not fields[key].repr:
            raise InvalidCatalogOption(f"{key!r} is a secret: pass it in the environment, as {variable(name, key)}")
    values = {key: environment[variable(name, key)] for key in fields if environment.get(variable(name, key))}
    values |= dict(options or {})
    missing = [
        key
        for key, field in fields.items()
        if key not in values and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InvalidCatalogOption(
            f"the catalog {name!r} needs the option {missing[0]!r}: write --option {missing[0]}=VALUE, "
            f"or set {variable(name, missing[0])}"
        )
    return cls(**{key: _value(name, key, text, types[key]) for key, text in values.items()})


def variable(catalog: str, option: str) -> str:
    """Return the name of the environment variable of a catalog's option."""
    return f"LAKE_{catalog}_{option}".upper().replace("-", "_")


def _value(catalog: str, key: str, text: str, type: Any) -> str | int | bool:
    """Read a value of an option. Raises InvalidCatalogOption, which shows no value."""
    kinds = set(typing.get_args(type)) or {type}
    if bool in kinds:
        if text.lower() not in _FLAGS:
            raise InvalidCatalogOption(f"the option {key!r} of the catalog {catalog!r} must be true or false")
        return _FLAGS[text.lower()]
    if int in kinds:
        if not (text.isascii() and text.isdecimal()):
            raise InvalidCatalogOption(f"the option {key!r} of the catalog {catalog!r} must be a whole number")
        return int(text)
    return text
