"""The columns by which a table is clustered: writers must collect statistics for them. Section: Clustered Table.

Their physical names are in the domain `delta.clustering`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from lake_core.delta.errors import InvalidProperty, MalformedAction
from lake_core.delta.statistics import indexed_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lake_core.delta.action import DomainMetadata, Metadata

_DOMAIN: Final = "delta.clustering"


def clustering_columns(domains: Iterable[DomainMetadata]) -> Sequence[tuple[str, ...]]:
    """Return the columns by which a table is clustered, by their physical names from the top level down.

    A column that is not in a struct may stand there as its name alone. Raises MalformedAction.
    """
    for domain in domains:
        if domain.domain == _DOMAIN and not domain.removed:
            try:
                listed = json.loads(domain.configuration)["clusteringColumns"]
            except (ValueError, KeyError, TypeError):
                listed = None
            if not isinstance(listed, list):
                raise MalformedAction(f"the domain {_DOMAIN} has no list of columns: {domain.configuration[:80]!r}")
            return [(each,) if isinstance(each, str) else tuple(map(str, each)) for each in listed]
    return ()


def check_clustering(metadata: Metadata, domains: Iterable[DomainMetadata]) -> None:
    """Check that all columns by which a table is clustered get statistics. Raises InvalidProperty, MalformedAction."""
    clustered = clustering_columns(domains)
    if not clustered:
        return
    mapping = metadata.column_mapping
    indexed = {
        mapping.physical_path(path)
        for path, _ in indexed_leaves(metadata.arrow_schema, metadata.partition_columns, metadata.configuration)
    }
    for path in clustered:
        if path not in indexed:
            raise InvalidProperty(
                f"the table is clustered by column {'.'.join(path)!r}, which would get no statistics: keep it among "
                "those of delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols, or cluster by other "
                "columns first (ALTER TABLE … CLUSTER BY, in Spark)"
            )
