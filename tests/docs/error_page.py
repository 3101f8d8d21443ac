"""The page of all errors, docs/reference/errors.md: `python -m tests.docs.error_page` writes its tables."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from inspect import cleandoc, isclass
from itertools import groupby
from types import ModuleType

import lake_core
import lake_orch
import lake_pipes
from lake_core.errors import LakeError
from tests.docs.blocks import DOCS

PAGE = DOCS / "reference" / "errors.md"
BEGIN, END = "<!-- begin of what tests/docs/error_page.py writes -->", "<!-- end -->"

TITLES: Mapping[str, str] = {
    "lake_core.lake": "Lakes",
    "lake_core.delta": "Delta tables",
    "lake_core.icechunk": "Arrays",
    "lake_core.pool": "Pools",
    "lake_core.catalog": "Catalogs",
    "lake_core.expression": "Predicates and expressions",
    "lake_core.spark": "Spark",
    "lake_orch": "Dagster",
    "lake_pipes": "External programs",
    "lake_core": "Stores, formats and the command line",
    "lake_core.journal": "Journals",
    "lake_core.graveler": "Trees of commits",
}
"""The titles of the sections, by package, in the order of the page."""

_LEFT_OUT = ("lake_core.testing", "lake_orch.airflow")
"""Modules for tests, and those that need Airflow, which define no errors."""
_CAUGHT_WITHIN = frozenset({"InvalidVarint", "NoLeaf", "UncomputedKey"})
"""Errors that the modules raising them turn into others."""


def error_classes() -> list[type[LakeError]]:
    """Return the errors that a user can get, by module, in the order of their definition."""
    return [
        value
        for module in _modules()
        for name, value in vars(module).items()
        if isclass(value) and issubclass(value, LakeError) and value.__module__ == module.__name__
        if not name.startswith("_") and name not in _CAUGHT_WITHIN
    ]


def _modules() -> Iterator[ModuleType]:
    for package in (lake_core, lake_orch, lake_pipes):
        yield package
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith(".__main__") and not info.name.startswith(_LEFT_OUT):
                yield importlib.import_module(info.name)


def package_of(error: type[LakeError]) -> str:
    """Return the package in whose section an error is."""
    return max((each for each in TITLES if f"{error.__module__}.".startswith(f"{each}.")), key=len)


def meaning(error: type[LakeError]) -> str:
    """Return an error's own docstring as the text of a cell, without its sections on arguments and attributes."""
    text = cleandoc(vars(error)["__doc__"] or "")
    summary = re.split(r"^(?:Args|Attributes):$", text, flags=re.MULTILINE)[0]
    return " ".join(summary.split()).replace("|", r"\|")


def section(package: str) -> str:
    """Return the section of a package in the page, with a table for each module."""
    lines = [f"## {TITLES[package]}", ""]
    errors = [error for error in error_classes() if package_of(error) == package]
    for module, of_module in groupby(errors, lambda error: error.__module__):
        lines += [f"`{module}`:", "", "| Error | What it means, and what to do |", "|---|---|"]
        lines += [f"| `{error.__name__}` | {meaning(error)}{_others(error)} |" for error in of_module]
        lines.append("")
    return "\n".join(lines)


def _others(error: type[LakeError]) -> str:
    """Return a sentence on the classes by which an error is caught as well, other than the base class of a package."""
    bases = [
        f"`{base.__name__}`"
        for base in error.__bases__
        if base is not Exception and "base class" not in (base.__doc__ or "").lower()
    ]
    return f" Also caught as {' and '.join(bases)}." if bases else ""


def sections() -> str:
    """Return all that the page has between its marks."""
    return "\n".join(map(section, TITLES))


def main() -> None:
    """Write the tables into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{sections()}\n{END}{after}")


if __name__ == "__main__":
    main()
