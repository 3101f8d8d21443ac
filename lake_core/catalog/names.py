"""Names of tables and schemas in catalogs, from paths and branches of a lake.

A name has lower-case letters, digits and underscores: what every catalog and engine can name without quotes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lake_core.catalog.errors import InvalidTableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NAME: Final = re.compile(r"[a-z0-9_]+")
_REPLACED: Final = re.compile(r"[/.\- ]")
_SCHEMA: Final = re.compile(r"[^./\s\x00-\x1f\x7f]+")
_LEFT_OUT: Final = "tables/"
"""The folder in which the tables of assets are. Names leave it out."""


def table_name(path: str, longest: int) -> str:
    """Return the name of the table at a path: `tables/Sales/2024.orders` is `sales_2024_orders`.

    Raises InvalidTableName for a path with other characters, or that is too long.
    """
    return check_table_name(
        _REPLACED.sub("_", path.removeprefix(_LEFT_OUT)).lower(), longest, f"the table {path!r}", f"{path}=NAME"
    )


def schema_name(base: str, branch: str, longest: int) -> str:
    """Return the name of a branch's schema, beside that of the main branch. Raises InvalidTableName."""
    return check_table_name(_REPLACED.sub("_", f"{base}_{branch}").lower(), longest, f"the branch {branch!r}", None)


def check_schema_name(schema: str, longest: int, *, folds_case: bool) -> None:
    """Check the name of a schema, which may exist and need not be plain. Raises InvalidTableName."""
    if not _SCHEMA.fullmatch(schema) or len(schema) > longest:
        raise InvalidTableName(
            f"a schema cannot be called {schema!r}: a name has at most {longest} characters, and no dots, slashes, "
            "blanks or control characters"
        )
    if folds_case and schema != schema.lower():
        raise InvalidTableName(f"the catalog keeps names in lower case: write the schema {schema!r} so")


def check_table_name(name: str, longest: int, what: str, remedy: str | None) -> str:
    """Return a name that catalogs can hold. Raises InvalidTableName, which says how to choose another one."""
    advice = f": choose a name by --name '{remedy}'" if remedy else ""
    if not _NAME.fullmatch(name):
        raise InvalidTableName(
            f"{what} cannot be called {name!r} in a catalog, where names have lower-case letters, digits and _{advice}"
        )
    if len(name) > longest:
        raise InvalidTableName(f"{what} has a name of {len(name)} characters, and the catalog holds {longest}{advice}")
    return name


def names_of(
    paths: Iterable[str], chosen: Mapping[str, str], longest: int, holders: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the name of each table by its path, and the reason for each that gets none.

    Args:
        paths: The paths of the tables.
        chosen: The names that the caller chose, by path.
        longest: The most characters of a name.
        holders: Paths of tables that are registered, by name. They keep their names, if several ask for one.
    """
    names: dict[str, str] = {}
    refused: dict[str, str] = {}
    claims: dict[str, list[str]] = {}
    for path in sorted(paths):
        try:
            name = (
                check_table_name(chosen[path], longest, f"the table {path!r}", f"{path}=NAME")
                if path in chosen
                else table_name(path, longest)
            )
        except InvalidTableName as error:
            refused[path] = str(error)
            continue
        claims.setdefault(name, []).append(path)
    for name, claimants in claims.items():
        winner = claimants[0] if len(claimants) == 1 else holders.get(name)
        for path in claimants:
            if path == winner:
                names[path] = name
            else:
                refused[path] = _collision(name, path, claimants)
    return names, refused


def _collision(name: str, path: str, claimants: Sequence[str]) -> str:
    others = ", ".join(repr(other) for other in claimants if other != path)
    return f"the tables {path!r} and {others} would both be called {name!r}: choose a name by --name '{path}=NAME'"
