"""Translation of an asset's attributes in YAML into options of `@dg.asset`."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

_KIND = "dagster/kind/"


def asset_options(
    spec: dg.AssetSpec, *, kinds: Sequence[str], metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the options of `@dg.asset` for a spec.

    `kinds` is the default for a spec without kinds. `metadata` is added to the spec's metadata.
    """
    return {
        "key": spec.key,
        "deps": list(spec.deps),
        "description": spec.description,
        "metadata": {**spec.metadata, **(metadata or {})},
        "group_name": spec.group_name,
        "code_version": spec.code_version,
        "owners": list(spec.owners),
        "tags": {name: value for name, value in spec.tags.items() if not name.startswith(_KIND)},
        "kinds": set(spec.kinds or kinds),
        "automation_condition": spec.automation_condition,
        "partitions_def": spec.partitions_def,
        "freshness_policy": spec.freshness_policy,
        "output_required": not spec.skippable,
    }
