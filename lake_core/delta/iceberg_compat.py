"""What a table keeps so that Iceberg readers can read its files: IcebergCompatV1 to IcebergCompatV3.

Columns have field ids at every level, data files hold the partition columns, and some types are not allowed. Versions 1
and 2 have no deletion vectors; version 3 may have them, and its rows have ids. This writer keeps such tables as they
are. It writes no Iceberg metadata. Protocol sections: Iceberg Compatibility V1, V2, V3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lake_core.delta.column_mapping import MODE_PROPERTY
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.features import compat_version
from lake_core.delta.row_tracking import ENABLED
from lake_core.delta.schema import ArrayType, MapType, PrimitiveType, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.delta.action import Metadata, Protocol

_PROPERTIES: Final = {version: f"delta.enableIcebergCompatV{version}" for version in (1, 2, 3)}
WITH_ROW_IDS: Final = 3
"""The version from which on vectors and variants are allowed, and rows have ids."""
_VECTORS: Final = "delta.enableDeletionVectors"
_NOT_IN_ICEBERG: Final = {1: ("void", "variant"), 2: ("void", "variant"), WITH_ROW_IDS: ("void",)}


def asked_version(properties: Mapping[str, str]) -> int | None:
    """Return the version that properties ask for."""
    asked = [version for version, name in _PROPERTIES.items() if properties.get(name, "false").lower() == "true"]
    return max(asked, default=None)


def with_compat(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties of a new table with those that its Iceberg compatibility needs."""
    version = asked_version(properties)
    if version is None:
        return properties
    needed = {MODE_PROPERTY: "name"} | ({ENABLED: "true"} if version >= WITH_ROW_IDS else {})
    return needed | dict(properties)


def file_tags(protocol: Protocol, metadata: Metadata) -> dict[str, str] | None:
    """Return the tags of new data files, by which other clients know which of them have what Iceberg needs."""
    version = compat_version(protocol, metadata)
    return None if version is None else {"ICEBERG_COMPAT_VERSION": str(version)}


def check_change(metadata: Metadata, protocol: Protocol, before: Metadata, protocol_before: Protocol) -> None:
    """Check a change of a table's definition, if the rules are in force after it. Raises InvalidProperty."""
    version = compat_version(protocol, metadata)
    if version is not None and compat_version(protocol_before, before) != version:
        raise InvalidProperty(
            f"{_PROPERTIES[version]} can be set only when a table is created: the files of this one lack what Iceberg "
            "readers need. Delta Spark rewrites them (REORG TABLE … APPLY (UPGRADE UNIFORM))"
        )
    if version is not None:
        check_compat(metadata, before)


def check_compat(metadata: Metadata, before: Metadata | None = None) -> None:
    """Check the definition of a table, or a change of it, against the rules that its properties ask for.

    Raises:
        InvalidProperty: A rule is broken.
    """
    version = asked_version(metadata.configuration)
    if version is None:
        return
    name = _PROPERTIES[version]
    if metadata.column_mapping.mode == "none":
        raise InvalidProperty(f"{name} needs {MODE_PROPERTY} to be 'name' or 'id'")
    if sum(metadata.configuration.get(each, "false").lower() == "true" for each in _PROPERTIES.values()) > 1:
        raise InvalidProperty(f"{name} does not go with other versions of Iceberg compatibility: set one of them")
    if version >= WITH_ROW_IDS and metadata.configuration.get(ENABLED, "false").lower() != "true":
        raise InvalidProperty(f"{name} needs {ENABLED} to be true: Iceberg's rows have ids")
    if version < WITH_ROW_IDS and metadata.configuration.get(_VECTORS, "false").lower() == "true":
        raise InvalidProperty(f"{name} does not go with deletion vectors: set {_VECTORS} to false")
    if before is not None and before.partition_columns != metadata.partition_columns:
        raise InvalidProperty(f"{name} does not allow the table to be partitioned by other columns: create a new table")
    for child in walk(metadata.schema):
        kind = child.type
        if isinstance(kind, PrimitiveType) and kind.name in _NOT_IN_ICEBERG[version]:
            raise InvalidProperty(f"{name} does not allow column {child.name!r} of type {kind.name}")
        if version == 1 and isinstance(kind, ArrayType | MapType):
            raise InvalidProperty(f"{name} does not allow column {child.name!r}, an array or a map: use version 2")
