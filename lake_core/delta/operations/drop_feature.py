"""DROP FEATURE: take a feature out of a table's protocol, after what it left in the table is gone.

Older versions may still need a feature that readers must know. Then the table gets the feature `checkpointProtection`,
by which the log before is cleaned up at once or not at all, and a checkpoint from which other readers begin.
Protocol section: Checkpoint Protection.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core.delta.action import DomainMetadata
from lake_core.delta.action_fields import REMOVE_FIELDS
from lake_core.delta.clustering import DOMAIN as CLUSTERING_DOMAIN
from lake_core.delta.conflict import Reads
from lake_core.delta.deletion_vector import vector_keys
from lake_core.delta.errors import FeatureInUse
from lake_core.delta.features import (
    CHECKPOINT_PROTECTION,
    CLUSTERING,
    PROTECTED_BEFORE,
    ROW_TRACKING,
    V2_CHECKPOINT,
    properties_of,
    supported_features,
    used_features,
    without_feature,
)
from lake_core.delta.log_cleanup import protected_before
from lake_core.delta.log_segment import list_log
from lake_core.delta.operation import Operation
from lake_core.delta.operations.plain_files import COLUMN_MAPPING, WITH_TRACES, without_traces
from lake_core.delta.path import encode_path
from lake_core.delta.row_tracking import DOMAIN as ROW_IDS_DOMAIN

if TYPE_CHECKING:
    from lake_core.delta.action import Metadata
    from lake_core.delta.snapshot import Snapshot

VECTORS = "deletionVectors"
_IN_THE_HISTORY = frozenset({VECTORS, V2_CHECKPOINT, *WITH_TRACES})
"""Features that readers of older versions need."""
_OF_THE_ROWS = frozenset({"identityColumns", "timestampNtz"})
"""Features of which the rows themselves keep traces."""
_DOMAINS = {ROW_TRACKING: ROW_IDS_DOMAIN, CLUSTERING: CLUSTERING_DOMAIN}
"""The metadata domains of features."""
_NEEDED_BY = {
    "domainMetadata": _DOMAINS.keys(),
    ROW_TRACKING: {"icebergCompatV3"},
    COLUMN_MAPPING: {"icebergCompatV1", "icebergCompatV2", "icebergCompatV3"},
}


def turned_off(snapshot: Snapshot, feature: str) -> Metadata:
    """Return the metadata without the properties of a feature. Raises FeatureInUse if the table uses it all the same.

    Raises FeatureInUse, too, for a feature that the table does not have, or that cannot be dropped.
    """
    if feature not in supported_features(snapshot.protocol):
        listed = ", ".join(sorted(supported_features(snapshot.protocol)))
        raise FeatureInUse(f"the table does not have the feature {feature!r}; it has {listed}")
    if snapshot.store.versioned:
        raise FeatureInUse("the history of a lake needs the features of all of its versions: release the table first")
    if feature in _OF_THE_ROWS or feature.startswith("variant"):
        raise FeatureInUse(f"rows may depend on the feature {feature!r}: copy them to a new table, which lacks it")
    others = supported_features(snapshot.protocol) & set(_NEEDED_BY.get(feature, ()))
    if others:
        raise FeatureInUse(f"the feature {feature!r} is needed by {', '.join(sorted(others))}: drop that first")
    names = properties_of(feature.removesuffix("-preview"))
    configuration = {
        key: value for key, value in snapshot.metadata.configuration.items() if not key.startswith(tuple(names))
    }
    metadata = replace(snapshot.metadata, configuration=configuration)
    if feature in WITH_TRACES:
        metadata = without_traces(metadata, feature)
    if feature in used_features(metadata):
        raise FeatureInUse(f"the table's columns or constraints use the feature {feature!r}: change these first")
    if feature == "domainMetadata" and snapshot.domains:
        kept = ", ".join(domain.domain for domain in snapshot.domains)
        raise FeatureInUse(f"the table has metadata domains, which need {feature!r}: {kept}")
    if feature == CHECKPOINT_PROTECTION:
        _check_cleaned(snapshot)
    return metadata


def _check_cleaned(snapshot: Snapshot) -> None:
    before = protected_before(snapshot)
    oldest = min(list_log(snapshot.store, end=snapshot.version).commits, default=before)
    if oldest < before:
        raise FeatureInUse(
            f"the versions from {oldest} on, which are before {before}, need features that were dropped: clean the log "
            "with clean_log once they are past the retention, and try again"
        )


def drop_feature(snapshot: Snapshot, feature: str, metadata: Metadata) -> Operation:
    """Plan the commit that drops a feature, of which nothing is left but in older versions.

    Raises FeatureInUse if another writer has used it meanwhile.
    """
    vectors = snapshot.files(["deletionVector"])["deletionVector"]
    if feature == VECTORS and vectors.null_count < len(vectors):
        raise FeatureInUse("another writer has given files deletion vectors meanwhile: drop the feature again")
    if metadata.schema != snapshot.metadata.schema:
        raise FeatureInUse(f"another writer has used the feature {feature!r} meanwhile: drop it again")
    protects = feature in _IN_THE_HISTORY
    if protects:
        since = {PROTECTED_BEFORE: str(snapshot.version + 1)}
        metadata = replace(metadata, configuration={**metadata.configuration, **since})
    protocol = without_feature(snapshot.protocol, feature, {CHECKPOINT_PROTECTION} if protects else ())
    domains = [
        DomainMetadata(domain.domain, domain.configuration, removed=True)
        for domain in snapshot.domains
        if domain.domain == _DOMAINS.get(feature)
    ]
    operation = Operation(
        "DROP FEATURE",
        {"featureName": feature},
        snapshot,
        removes=_vector_tombstones(snapshot) if feature == VECTORS else None,
        reads=Reads.WHOLE_TABLE,
        domains=domains,
    )
    return operation.defining(metadata, protocol)


def protect_since(snapshot: Snapshot, feature: str) -> Operation | None:
    """Plan to protect all earlier versions too, if others committed before the drop of a feature that these need."""
    if feature not in _IN_THE_HISTORY or protected_before(snapshot) >= snapshot.version:
        return None
    since = {PROTECTED_BEFORE: str(snapshot.version)}
    metadata = replace(snapshot.metadata, configuration={**snapshot.metadata.configuration, **since})
    return Operation("SET TBLPROPERTIES", {"properties": json.dumps(since)}, snapshot).defining(metadata)


def _vector_tombstones(snapshot: Snapshot) -> pa.Table | None:
    """Return remove actions of the files of vectors that older versions use.

    Writers that do not know vectors would vacuum these files at once, as if they belonged to nobody.
    """
    keys = sorted(vector_keys(snapshot.tombstones(), snapshot.data_root))
    if not keys:
        return None
    rows = [{"path": encode_path(key), "partitionValues": None} for key in keys]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(REMOVE_FIELDS)))
