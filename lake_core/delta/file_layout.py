"""How a table's data files hold its columns, which its properties and features decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lake_core.delta.features import MATERIALIZED_PARTITIONS, SHREDDING, compat_version, supported_features

if TYPE_CHECKING:
    from lake_core.delta.action import Metadata, Protocol


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How data files hold a table's columns."""

    with_partitions: bool = False
    """Whether they hold the partition columns as well. Section: Materialize Partition Columns."""
    shredded: bool = False
    """Whether they shred columns of variants. Section: Variant Shredding."""


PLAIN: Final = FileLayout()


def file_layout(protocol: Protocol, metadata: Metadata) -> FileLayout:
    """Return how new data files of a table hold its columns."""
    supported = supported_features(protocol)
    with_partitions = (
        _is_set(metadata, "delta.writePartitionColumnsToParquet")
        or compat_version(protocol, metadata) is not None
        or MATERIALIZED_PARTITIONS in supported
    )
    return FileLayout(
        with_partitions, bool(SHREDDING & supported) and _is_set(metadata, "delta.enableVariantShredding")
    )


def _is_set(metadata: Metadata, name: str) -> bool:
    return metadata.configuration.get(name, "false").lower() == "true"
