"""Which protocol versions and table features this implementation reads and writes; everything else is refused by name.

Protocol sections: Protocol Evolution, Table Features, Writer Version Requirements.
"""

from __future__ import annotations

from lake_core.delta.action import Metadata, Protocol
from lake_core.delta.errors import UnsupportedReaderFeature, UnsupportedWriterFeature
from lake_core.delta.schema import walk

READER_VERSION = 1
WRITER_VERSION = 2

READABLE_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "vacuumProtocolCheck", "v2Checkpoint"}
)
"""Reader features that are implemented, or that ask nothing of readers."""

WRITABLE_FEATURES = frozenset[str]()
"""Writer features that are implemented when listed by writer version 7."""


def check_readable(protocol: Protocol, metadata: Metadata) -> None:
    """Raises UnsupportedReaderFeature naming the first feature that reading the table would need."""
    if protocol.min_reader_version > 3:
        raise UnsupportedReaderFeature(
            f"the table needs reader version {protocol.min_reader_version}; version 3 is the newest known. Upgrade lake-orch",
            feature=f"readerVersion={protocol.min_reader_version}",
        )
    for feature in sorted(protocol.reader_features or ()):
        if feature in READABLE_FEATURES:
            continue
        _refuse_read(feature)
    if metadata.column_mapping.mode not in ("none", "name", "id"):
        _refuse_read(f"columnMapping mode {metadata.column_mapping.mode}")


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Raises UnsupportedWriterFeature naming the first feature that writing the table would need."""
    if protocol.min_reader_version > READER_VERSION:
        features = sorted(protocol.reader_features or ()) or ["columnMapping"]
        _refuse_write(features[0])
    if protocol.writer_features is not None:
        for feature in sorted(protocol.writer_features - WRITABLE_FEATURES):
            _refuse_write(feature)
    elif protocol.min_writer_version > WRITER_VERSION:
        _refuse_write(
            {3: "checkConstraints", 4: "changeDataFeed", 5: "columnMapping", 6: "identityColumns"}.get(
                protocol.min_writer_version, f"writerVersion={protocol.min_writer_version}"
            )
        )
    if metadata.configuration.get("delta.appendOnly", "false").lower() == "true":
        _refuse_write("appendOnly")
    for child in walk(metadata.schema):
        if "delta.invariants" in child.metadata:
            _refuse_write("invariants", f" (column {child.name!r})")


def check_creatable(metadata: Metadata) -> None:
    """Raises UnsupportedWriterFeature if a new table's properties ask for a feature that writing it would then need."""
    for key, value in metadata.configuration.items():
        if key in _FEATURE_OF_PROPERTY and value.lower() not in ("false", "none", ""):
            _refuse_write(_FEATURE_OF_PROPERTY[key])
        if key.startswith("delta.constraints."):
            _refuse_write("checkConstraints")
        if key.startswith("delta.feature."):
            _refuse_write(key.removeprefix("delta.feature."))
    check_writable(Protocol(READER_VERSION, WRITER_VERSION), metadata)


_FEATURE_OF_PROPERTY = {
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.columnMapping.mode": "columnMapping",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
}


def _refuse_read(feature: str) -> None:
    raise UnsupportedReaderFeature(
        f"the table uses the feature {feature!r}, which this reader does not implement. Read it with another Delta client, "
        f"or drop the feature there (ALTER TABLE … DROP FEATURE {feature})",
        feature=feature,
    )


def _refuse_write(feature: str, where: str = "") -> None:
    raise UnsupportedWriterFeature(
        f"the table uses the feature {feature!r}{where}, which this writer does not implement: writing would break its promise "
        f"to others. Write it with another Delta client, or into a new table",
        feature=feature,
    )
