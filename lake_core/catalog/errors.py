"""The errors of catalogs. All derive from LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError


class CatalogError(LakeError):
    """The base class of the errors of catalogs."""


class UnknownCatalog(CatalogError):
    """No catalog of this name is installed. Install the package that has it, with the extra that it needs."""


class InvalidCatalogOption(CatalogError):
    """An option of a catalog is unknown, missing, or has an invalid value. The message names those there are."""


class CatalogUnavailable(CatalogError):
    """The catalog cannot be reached, or gave no final answer. Run the sync again: it completes what is missing."""


class CatalogRefused(CatalogError):
    """The catalog refused a request, for example because of missing permissions. The message says which."""


class CatalogChanged(CatalogError):
    """Others changed the catalog at each try. Run the sync again when they are finished."""


class UnsupportedColumn(CatalogError):
    """A column has a type or a name that the catalog has no form for. Rename it, or drop it from the table."""


class InvalidTableName(CatalogError):
    """A table or schema cannot have this name in a catalog. Choose another one."""


class TablesRefused(CatalogError):
    """Some tables could not be registered, and the others are. The message names each, and what to do."""


FINAL = (UnknownCatalog, InvalidCatalogOption, CatalogRefused, InvalidTableName, TablesRefused)
"""Errors that another try at the same sync would meet again."""
