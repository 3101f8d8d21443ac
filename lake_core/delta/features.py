"""The protocol versions and table features that this implementation reads and writes. Others are refused by name.

Protocol sections: Protocol Evolution, Table Features, Writer Version Requirements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.action import NEWEST_READER, Metadata, Protocol
from lake_core.delta.errors import ManagedTable, UnsupportedReaderFeature, UnsupportedWriterFeature
from lake_core.delta.schema import PrimitiveType, leaf_types, walk, zoneless

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lake_core.store import ObjectStore

READER_VERSION = 1
WRITER_VERSION = 2

MANAGED = "lakeManaged"
"""The writer feature of a lake's tables. Other clients do not support it, so they read such a table but never write."""

DEFAULTS = "allowColumnDefaults"
"""The writer feature of tables whose columns may have defaults."""
MATERIALIZED_PARTITIONS = "materializePartitionColumns"
"""The writer feature of tables whose data files hold the partition columns as well."""
CHECKPOINT_PROTECTION = "checkpointProtection"
"""The writer feature of tables of which a feature was dropped, whose older versions need it."""

IDENTITY = "identityColumns"
"""The writer feature of tables that give numbers to new rows."""
V2_CHECKPOINT = "v2Checkpoint"
"""The feature of tables that may have checkpoints of version 2."""
CLUSTERING = "clustering"
"""The writer feature of tables that OPTIMIZE sorts by columns of theirs."""
ROW_TRACKING = "rowTracking"
"""The writer feature of tables whose rows have ids."""

SHREDDING = frozenset({"variantShredding", "variantShredding-preview"})
_VARIANTS = frozenset({"variantType", "variantType-preview"}) | SHREDDING
"""The features of tables with variants. delta-spark 4.4 lists the preview of shredding beside the final type."""

CATALOG_MANAGED = "catalogManaged"
"""The feature of tables whose commits go through a catalog."""
_OF_CATALOGS = frozenset({CATALOG_MANAGED, "catalogOwned-preview"})

READABLE_FEATURES = frozenset(
    {
        *_OF_CATALOGS,
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "vacuumProtocolCheck",
        "v2Checkpoint",
        *_VARIANTS,
    }
)
"""Reader features that are implemented, or that require nothing of readers; those of catalogs need staged commits."""

WRITABLE_FEATURES = frozenset(
    {
        DEFAULTS,
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        CHECKPOINT_PROTECTION,
        CLUSTERING,
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        IDENTITY,
        "inCommitTimestamp",
        "invariants",
        MANAGED,
        MATERIALIZED_PARTITIONS,
        ROW_TRACKING,
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        *_VARIANTS,
    }
)
"""Table features that writing respects."""

_OF_WRITER_VERSION: tuple[tuple[int, frozenset[str]], ...] = (
    (2, frozenset({"appendOnly", "invariants"})),
    (3, frozenset({"checkConstraints"})),
    (4, frozenset({"changeDataFeed", "generatedColumns"})),
    (5, frozenset({"columnMapping"})),
    (6, frozenset({IDENTITY})),
)
_READER_VERSION_OF: Mapping[str, int] = {
    "columnMapping": 2,
    "deletionVectors": 3,
    "timestampNtz": 3,
    "typeWidening": 3,
    "typeWidening-preview": 3,
    "v2Checkpoint": 3,
    "vacuumProtocolCheck": 3,
    **dict.fromkeys(_VARIANTS, 3),
}
"""Features that readers must know too, with the lowest reader version that has them."""


def supported_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that writers must support: those listed, or those that a legacy writer version implies."""
    if protocol.writer_features is not None:
        return protocol.writer_features
    return frozenset().union(
        *(names for version, names in _OF_WRITER_VERSION if version <= protocol.min_writer_version)
    )


def compat_version(protocol: Protocol, metadata: Metadata) -> int | None:
    """Return the version of the rules by which a table is kept readable for Iceberg; None for a table without any."""
    active = [version for version in (1, 2, 3) if is_active(f"icebergCompatV{version}", protocol, metadata)]
    return max(active, default=None)


def upgraded_for(
    protocol: Protocol, before: Metadata | None, after: Metadata, asked: Mapping[str, str] | None = None
) -> Protocol:
    """Return the lowest protocol for a table's definition, or for a change of it.

    `asked` are the properties that the change sets.

    A feature that the definition named before is not enabled if the protocol does not have it. Raises
    UnsupportedWriterFeature; UnsupportedType for timestamps without a zone in a table that does not enable them,
    because older readers could no longer read it.
    """
    used = used_features(after) - (frozenset() if before is None else used_features(before))
    if "timestampNtz" in used - supported_features(protocol):
        raise zoneless(
            next(
                child.name for child in after.schema.fields if PrimitiveType("timestamp_ntz") in leaf_types(child.type)
            )
        )
    return upgraded(protocol, used | _features_of_properties(asked or {}))


def _features_of_properties(properties: Mapping[str, str]) -> frozenset[str]:
    needed = set()
    for key, value in properties.items():
        feature = _FEATURE_OF_PROPERTY.get(key)
        if feature is not None and value.lower() not in ("false", "none", "classic", ""):
            needed.add(feature)
        if key.startswith(CONSTRAINT_PREFIX):
            needed.add("checkConstraints")
    return frozenset(needed)


def used_features(metadata: Metadata) -> frozenset[str]:
    """Return the features that a table's columns and properties need."""
    needed = set(_features_of_properties(metadata.configuration))
    for child in walk(metadata.schema):
        if "delta.generationExpression" in child.metadata:
            needed.add("generatedColumns")
        if "delta.invariants" in child.metadata or not child.nullable:
            needed.add("invariants")
        if "CURRENT_DEFAULT" in child.metadata:
            needed.add(DEFAULTS)
        if "delta.identity.start" in child.metadata:
            needed.add(IDENTITY)
    for kind in leaf_types(metadata.schema):
        if kind.name == "timestamp_ntz":
            needed.add("timestampNtz")
        if kind.name == "variant":
            needed.add("variantType")
    return frozenset(needed)


def upgraded(protocol: Protocol, features: Iterable[str]) -> Protocol:
    """Return the lowest protocol that adds these features to its own; the protocol itself if it has them all.

    Legacy versions are used as long as they can express the features. Feature lists (reader 3, writer 7) are used only
    where a feature has no version. Raises UnsupportedWriterFeature for a feature that is not implemented.
    """
    requested = set(features)
    missing = sorted(requested - supported_features(protocol))
    # A writer version may imply a feature that the reader version does not, as reader 1 with writer 5.
    reader = max(protocol.min_reader_version, *(_READER_VERSION_OF.get(feature, 1) for feature in requested), 1)
    if not missing and reader == protocol.min_reader_version:
        return protocol
    for feature in missing:
        if feature not in WRITABLE_FEATURES:
            _refuse_write(feature)
    version_of = {name: version for version, names in _OF_WRITER_VERSION for name in names}
    if protocol.writer_features is None and all(feature in version_of for feature in missing):
        return Protocol(reader, max([protocol.min_writer_version, *(version_of[feature] for feature in missing)]))
    listed = supported_features(protocol) | set(missing)
    if listed & {"icebergCompatV1", "icebergCompatV2", "icebergCompatV3"}:
        listed |= {"columnMapping"}
    if "icebergCompatV3" in listed:
        listed |= {ROW_TRACKING}
    if listed & {CLUSTERING, ROW_TRACKING}:
        listed |= {"domainMetadata"}
    if "columnMapping" in listed:
        reader = max(reader, 2)
    in_readers = frozenset(feature for feature in listed if feature in _READER_VERSION_OF) | (
        protocol.reader_features or frozenset()
    )
    return Protocol(reader, 7, in_readers if reader >= 3 else None, listed)


def without_feature(protocol: Protocol, feature: str, added: Iterable[str] = ()) -> Protocol:
    """Return a protocol that lists its features without one, and with others, at the lowest reader version."""
    listed = (supported_features(protocol) - {feature}) | set(added)
    reader = max((_READER_VERSION_OF.get(name, 1) for name in listed), default=1)
    in_readers = frozenset(listed & _READER_VERSION_OF.keys())
    return Protocol(reader, 7, in_readers if reader >= NEWEST_READER else None, listed)


def with_versions(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """Return a protocol of at least these versions, with the features that it has and those that they imply."""
    if protocol.writer_features is None and reader < 3 and writer < 7:
        return Protocol(max(protocol.min_reader_version, reader), max(protocol.min_writer_version, writer))
    reader = max(protocol.min_reader_version, reader)
    listed = supported_features(protocol) | ({"columnMapping"} if reader == 2 else frozenset())
    in_readers = frozenset(listed & _READER_VERSION_OF.keys()) | (protocol.reader_features or frozenset())
    return Protocol(reader, 7, in_readers if reader >= 3 else None, listed)


def check_readable(protocol: Protocol, metadata: Metadata, *, asked_catalog: bool = False) -> None:
    """Raise UnsupportedReaderFeature naming the first unsupported feature that reading the table would need.

    `asked_catalog`: whether the caller knows the commits of a catalog-managed table from its catalog.
    """
    check_protocol(protocol, asked_catalog=asked_catalog)
    if metadata.column_mapping.mode not in ("none", "name", "id"):
        _refuse_read(f"columnMapping mode {metadata.column_mapping.mode}")


def check_protocol(protocol: Protocol, *, asked_catalog: bool = False) -> None:
    """Check what `check_readable` checks without the metadata."""
    managed = sorted(_OF_CATALOGS & (protocol.reader_features or frozenset()))
    if managed and not asked_catalog:
        raise UnsupportedReaderFeature(
            f"the table has the feature {managed[0]!r}: only its catalog knows its latest commits. Ask the catalog for "
            "them, and open the table with staged_commits=[their names]",
            feature=managed[0],
        )
    if protocol.min_reader_version > NEWEST_READER:
        raise UnsupportedReaderFeature(
            f"the table needs reader version {protocol.min_reader_version}, but the newest supported version "
            f"is {NEWEST_READER}: upgrade lake-orch",
            feature=f"readerVersion={protocol.min_reader_version}",
        )
    for feature in sorted(protocol.reader_features or ()):
        if feature not in READABLE_FEATURES:
            _refuse_read(feature)


def check_writable(protocol: Protocol, metadata: Metadata, store: ObjectStore) -> None:
    """Raise UnsupportedWriterFeature naming the first unsupported feature that writing the table would need.

    Raises ManagedTable for a lake's own table that was not opened through the lake.
    """
    if MANAGED in supported_features(protocol) and not store.versioned:
        raise ManagedTable(
            f"the table at {store.url()} is managed by a lake (it has the feature {MANAGED!r}), and can only "
            "be written through the lake: open it in a session with "
            "Lake.open(root).session(branch).delta(path), or make it a plain table with "
            "lake.maintenance.release(path)",
            feature=MANAGED,
        )
    if protocol.min_writer_version > 7:
        _refuse_write(f"writerVersion={protocol.min_writer_version}")
    for feature in sorted(supported_features(protocol) | (protocol.reader_features or frozenset())):
        if feature not in WRITABLE_FEATURES:
            _refuse_write(feature)


def is_active(feature: str, protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether the protocol supports a feature, and the property that enables it is set."""
    name = next(key for key, value in _FEATURE_OF_PROPERTY.items() if value == feature)
    return feature in supported_features(protocol) and metadata.configuration.get(name, "false").lower() == "true"


def properties_of(feature: str) -> Sequence[str]:
    """Return how the names of the properties begin that stand for a feature."""
    return [name for name, value in (*_FEATURE_OF_PROPERTY.items(), *_OTHER_PROPERTIES) if value == feature]


CONSTRAINT_PREFIX = "delta.constraints."
"""Table properties that hold CHECK constraints: the constraint's name follows."""

_FEATURE_OF_PROPERTY = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.columnMapping.mode": "columnMapping",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableRowTracking": ROW_TRACKING,
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableIcebergCompatV3": "icebergCompatV3",
    "delta.enableMaterializePartitionColumnsFeature": MATERIALIZED_PARTITIONS,
    "delta.enableVariantShredding": "variantShredding",
    "delta.checkpointPolicy": V2_CHECKPOINT,
}


PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"
"""The property with the version before which a table's log is cleaned up at once, or not at all."""
_OTHER_PROPERTIES = (
    ("delta.inCommitTimestampEnablement", "inCommitTimestamp"),
    ("delta.rowTracking", ROW_TRACKING),
    (PROTECTED_BEFORE, CHECKPOINT_PROTECTION),
)


def _refuse_read(feature: str) -> None:
    raise UnsupportedReaderFeature(
        f"the table uses the feature {feature!r}, which this reader does not implement. Read it with another Delta "
        f"client, or drop the feature there (ALTER TABLE … DROP FEATURE {feature})",
        feature=feature,
    )


def _refuse_write(feature: str) -> None:
    raise UnsupportedWriterFeature(
        f"the table uses the feature {feature!r}, which this writer does not implement, so a "
        "write could break the table for other clients. "
        "Write it with another Delta client, or write to a new table",
        feature=feature,
    )
