"""Values from environment variables, which keep secrets out of definitions."""

import os
from typing import Any

from lake_orch.errors import InvalidDefinition


def from_environment(value: Any) -> Any:
    """Replace each `{"env": name}` in options, or `dagster.EnvVar`, at any depth, by the variable's value.

    Raises InvalidDefinition for a variable that is not set.
    """
    if hasattr(value, "env_var_name"):
        value = {"env": value.env_var_name}
    if not isinstance(value, dict):
        return value
    if set(value) != {"env"}:
        return {key: from_environment(child) for key, child in value.items()}
    name = value["env"]
    if name not in os.environ:
        raise InvalidDefinition(f"storage_options take a value from the environment variable {name}, which is not set")
    return os.environ[name]
