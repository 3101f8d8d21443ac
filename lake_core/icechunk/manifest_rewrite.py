"""Rewriting manifests: the references of all arrays are spread over manifests by the current configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.icechunk.config import ManifestSplitCondition, ManifestSplitDimCondition, SplitSizes
from lake_core.icechunk.snapshot import ArrayNode, Snapshot
from lake_core.icechunk.splitting import NO_SPLIT, split_cell, split_sizes

if TYPE_CHECKING:
    from lake_core.icechunk.manifest import Extents

METADATA_KEY = "splitting_config"
"""The key of the splitting rules in the metadata of the commit."""

_DEFAULT = (ManifestSplitCondition("path_matches", ".*"), ((ManifestSplitDimCondition("Any"), NO_SPLIT),))


def splitting_document(rules: SplitSizes) -> dict[str, Any]:
    """Return splitting rules as metadata of a commit."""
    return {
        "split_sizes": [
            [
                _condition(condition),
                [{"condition": _dimension(dimension), "num_chunks": number} for dimension, number in sizes],
            ]
            for condition, sizes in rules or (_DEFAULT,)
        ]
    }


def count_mergeable(snapshot: Snapshot, rules: SplitSizes) -> int:
    """Count the manifests that hold only references of splits for which there is another manifest."""
    splits: dict[bytes, set[tuple[bytes, Extents]]] = {}
    for node in snapshot.nodes.values():
        if isinstance(node, ArrayNode):
            sizes = split_sizes(rules, node)
            for ref in node.manifests:
                splits.setdefault(ref.manifest_id, set()).add((node.node_id, split_cell(ref.extents, sizes)))
    covered: set[tuple[bytes, Extents]] = set()
    mergeable = 0
    for manifest_id in sorted(splits, key=lambda manifest_id: len(splits[manifest_id]), reverse=True):
        mergeable += splits[manifest_id] <= covered
        covered |= splits[manifest_id]
    return mergeable


def _condition(condition: ManifestSplitCondition) -> Any:
    argument = condition.argument
    if isinstance(argument, tuple):
        return {condition.kind: [_condition(part) for part in argument]}
    return condition.kind if argument is None else {condition.kind: {"regex": argument}}


def _dimension(condition: ManifestSplitDimCondition) -> Any:
    return condition.kind if condition.argument is None else {condition.kind: condition.argument}
