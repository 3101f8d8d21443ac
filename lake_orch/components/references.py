"""Resolution of references in YAML: functions of Python modules, and environment variables that are read later."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import dagster as dg
from pydantic import Field

from lake_orch.errors import InvalidDefinition

_ENVIRONMENT = re.compile(r"""\{\{\s*env(?:\.(\w+)|\(\s*['"](\w+)['"]\s*\))\s*\}\}""")


def load_function(reference: str, context: dg.ComponentLoadContext) -> Callable[..., Any]:
    """Import the function that `module:name` names. A module that begins with a dot is in the component's folder.

    Raises InvalidDefinition if it does not exist.
    """
    module, _, name = reference.partition(":")
    if not module or not name:
        raise InvalidDefinition(
            f"{reference!r} does not name a function: "
            "write module:function, or .module:function for a file beside defs.yaml"
        )
    if module.startswith("."):
        module = f"{context.defs_relative_module_name(context.path)}{module}"
    try:
        value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ModuleNotFoundError, AttributeError) as error:
        raise InvalidDefinition(f"{reference!r} cannot be imported: {error}") from error
    if not callable(value):
        raise InvalidDefinition(f"{reference!r} is a {type(value).__name__}: name a function")
    function: Callable[..., Any] = value
    return function


def keep_environment(context: dg.ResolutionContext, value: Any) -> Any:
    """Keep `{{ env.NAME }}` in a value from YAML as a reference, so that neither the UI nor a repr shows the value."""
    if isinstance(value, str):
        match = _ENVIRONMENT.fullmatch(value.strip())
        return dg.EnvVar(match[1] or match[2]) if match else context.resolve_value(value)
    if isinstance(value, Mapping):
        return {name: keep_environment(context, child) for name, child in value.items()}
    if isinstance(value, Sequence):
        return [keep_environment(context, child) for child in value]
    return value


def described(text: str) -> dg.Resolver:
    """Describe a field in the schema. Dagster keeps a description only together with a resolver."""
    resolver: dg.Resolver = dg.Resolver.default(description=text)
    return resolver


_SECRET = "{{ env.NAME }} stays a reference to the variable: its value shows nowhere."

StorageOptions: TypeAlias = Annotated[
    dict[str, Any],
    dg.Resolver(keep_environment, model_field_type=Mapping[str, Any], description=f"fsspec's options. {_SECRET}"),
    Field(repr=False),
]
"""Options of a store, with references to environment variables in them."""

SecretText: TypeAlias = Annotated[
    Any,  # text or an EnvVar, of which pydantic would make text
    dg.Resolver(
        keep_environment,
        model_field_type=str | None,
        inject_before_resolve=False,
        description=f"It may be a secret. {_SECRET}",
    ),
    Field(repr=False),
]
"""Text that may be a secret."""

SensorStatus: TypeAlias = Annotated[
    Literal["RUNNING", "STOPPED"], described("Whether the sensor runs once the location is loaded.")
]
"""The default status of a sensor."""
