"""Rewriting manifests: the references of all arrays are spread over manifests as the configuration says now."""

from __future__ import annotations

from typing import Any

from lake_core.icechunk.config import ManifestSplitCondition, ManifestSplitDimCondition, SplitSizes
from lake_core.icechunk.splitting import NO_SPLIT

METADATA_KEY = "splitting_config"
"""Key in the metadata of the commit under which the rules of splitting are noted."""

_DEFAULT = (ManifestSplitCondition("path_matches", ".*"), ((ManifestSplitDimCondition("Any"), NO_SPLIT),))


def splitting_document(rules: SplitSizes) -> dict[str, Any]:
    """Return rules of splitting as the metadata of a commit shows them."""
    return {
        "split_sizes": [
            [_condition(condition), [{"condition": _dimension(dimension), "num_chunks": number} for dimension, number in sizes]]
            for condition, sizes in rules or (_DEFAULT,)
        ]
    }


def _condition(condition: ManifestSplitCondition) -> Any:
    argument = condition.argument
    if isinstance(argument, tuple):
        return {condition.kind: [_condition(part) for part in argument]}
    return condition.kind if argument is None else {condition.kind: {"regex": argument}}


def _dimension(condition: ManifestSplitDimCondition) -> Any:
    return condition.kind if condition.argument is None else {condition.kind: condition.argument}
