"""The resources of a code location, from its module."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import dagster as dg
from dagster.components.definitions import LazyDefinitions

from lake_orch.errors import InvalidDefinition


def resources_of(module: str) -> Mapping[str, object]:
    """Return the resources that a module's Definitions name.

    Raises InvalidDefinition if it has none, or cannot be imported.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidDefinition(
            f"no module {error.name!r}: name the module of a code location, as for `dagster dev -m`"
        ) from error
    return _definitions(imported).resources or {}


def _definitions(module: ModuleType) -> dg.Definitions:
    definitions = [value for value in vars(module).values() if isinstance(value, dg.Definitions | LazyDefinitions)]
    if len(definitions) != 1:
        raise InvalidDefinition(
            f"module {module.__name__} has {len(definitions)} dagster.Definitions: define exactly one"
        )
    (definition,) = definitions
    loaded = definition() if isinstance(definition, LazyDefinitions) else definition
    if not isinstance(loaded, dg.Definitions):
        raise InvalidDefinition(f"module {module.__name__} defines a repository: define dagster.Definitions instead")
    return loaded
