"""An operation as it is to be committed: its files, its definition of the table, and what it has read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake_core.delta.clustering import check_clustering
from lake_core.delta.column_mapping import with_highest_id
from lake_core.delta.conflict import Footprint, Isolation, Reads, isolation_level
from lake_core.delta.errors import TableNotFound
from lake_core.delta.features import upgraded_for
from lake_core.delta.iceberg_compat import check_change
from lake_core.delta.identity import with_highest_marks, without_marks
from lake_core.delta.row_tracking import DOMAIN as ROW_IDS_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lake_core.delta.action import DomainMetadata, Metadata, Protocol, SetTransaction
    from lake_core.delta.data_file import AddFile
    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of a commit, as the log stores it."""

    name: str
    """As in commitInfo: WRITE, CREATE TABLE, …"""
    parameters: Mapping[str, str] = field(default_factory=dict)
    base: Snapshot | None = None
    """The snapshot that it was planned on, since which other commits are checked; None if it creates the table."""
    metrics: Mapping[str, int] = field(default_factory=dict)
    adds: Sequence[AddFile] = ()
    restored: pa.Table | None = None
    """File actions to add as they are, deletion vectors included (columns of `action_fields.ADD_FIELDS`)."""
    restated: pa.Table | None = None
    """File actions of the table's own, with the same rows, to add anew so that the rows get ids (the same columns)."""
    changes: Sequence[AddFile] = ()
    """Change data files, which readers of the change data feed read instead of the adds and removes."""
    removes: pa.Table | None = None
    """File actions to remove: path, partitionValues, size, deletionVector where present."""
    reads: Reads | Predicate = Reads.NOTHING
    read_files: pa.Table | None = None
    """File actions that the operation read or depends on (path, deletionVector). None: those that are removed."""
    data_change: bool = True
    """False if the files hold the same rows as before, in another arrangement."""
    transaction: SetTransaction | None = None
    markers: Sequence[SetTransaction] = ()
    """The txn actions of other applications that it sets."""
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: Sequence[DomainMetadata] = ()

    @property
    def planned_on(self) -> Snapshot:
        """Return the base. Raises TableNotFound for an operation that creates its table; see `commit_first`."""
        if self.base is None:
            raise TableNotFound(
                f"{self.name} has no version to start from: open the table first, and run the operation on it"
            )
        return self.base

    @property
    def is_blind_append(self) -> bool:
        """Return whether it only adds files and read nothing, so no other append conflicts with it."""
        defines = (self.metadata is not None and not self.gives_numbers) or self.protocol is not None
        only_adds = not self.removes and not defines and self.restored is None
        return self.reads is Reads.NOTHING and not self.read_files and only_adds

    @property
    def gives_numbers(self) -> bool:
        """Return whether all that changes of the table's definition are the numbers that identity columns gave."""
        if (
            self.metadata is None
            or self.base is None
            or self.metadata.schema_string == self.base.metadata.schema_string
        ):
            return False
        before = replace(self.base.metadata, schema=self.metadata.schema, schema_string=self.metadata.schema_string)
        return before == self.metadata and without_marks(self.metadata.schema) == without_marks(
            self.base.metadata.schema
        )

    def defining(self, metadata: Metadata, protocol: Protocol | None = None) -> Operation:
        """Return the operation with a change of the table's definition, limited to what differs from the base's.

        `protocol`: the lowest that the metadata needs by default. Raises UnsupportedWriterFeature; InvalidProperty for
        a column by which the table is clustered that would get no statistics.
        """
        base = self.planned_on
        if metadata.id == base.metadata.id or metadata.column_mapping.mode != "none":
            configuration = with_highest_id(metadata.configuration, base.metadata.configuration)
            metadata = with_highest_marks(replace(metadata, configuration=configuration), base.metadata)
        check_clustering(metadata, self.domains or base.domains)
        lowest = upgraded_for(base.protocol, base.metadata, metadata) if protocol is None else protocol
        if metadata.id == base.metadata.id:
            check_change(metadata, lowest, base.metadata, base.protocol)
        return replace(
            self,
            metadata=metadata if metadata != base.metadata else None,
            protocol=lowest if lowest != base.protocol else None,
        )

    @property
    def isolation(self) -> Isolation:
        """Return the isolation level, which depends on the table's properties and the operation."""
        only_files = self.metadata is None and self.protocol is None and not self.domains
        return isolation_level(
            self.metadata or self.planned_on.metadata, data_change=self.data_change or not only_files
        )

    @property
    def footprint(self) -> Footprint:
        """Return the properties that decide which commits it may follow."""
        return Footprint(
            self.reads,
            self.removes if self.read_files is None else self.read_files,
            self.removes,
            self.transaction,
            self.isolation,
            self.protocol is not None,
            self.metadata,
            frozenset(domain.domain for domain in self.domains if domain.domain != ROW_IDS_DOMAIN),
            frozenset(marker.app_id for marker in self.markers),
        )
