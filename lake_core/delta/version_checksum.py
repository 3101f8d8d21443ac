"""Version checksums (`N.crc`): the state of a version as its writer knew it, compared with the log.

A checksum is never read instead of the log. Any writer may write it after the commit, and a wrong checksum would make
the table wrong without an error. The checkpoint and the commits have to be read for the files in any case. A checksum
serves to find logs that have lost or gained actions. Protocol section: Version Checksum File.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lake_core.delta.action import DomainMetadata, Metadata, Protocol, SetTransaction
from lake_core.delta.errors import MalformedAction, MalformedMetadata, MalformedProtocol
from lake_core.delta.features import supported_features
from lake_core.delta.log_segment import LOG_FOLDER
from lake_core.delta.row_counts import deletions
from lake_core.errors import NotFound
from lake_core.json_numbers import loads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore


def checksum_key(version: int) -> str:
    """Return the key of a version's checksum in the log."""
    return f"{LOG_FOLDER}/{version:020d}.crc"


@dataclass(frozen=True, slots=True)
class VersionChecksum:
    """The content of a checksum file; None for absent fields."""

    version: int
    num_files: int | None = None
    size_bytes: int | None = None
    """Of all data files together."""
    deleted_rows: int | None = None
    """The rows that deletion vectors delete."""
    vectors: int | None = None
    """The files with a deletion vector."""
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Sequence[SetTransaction] | None = None
    domains: Sequence[DomainMetadata] | None = None
    """The metadata domains in force."""
    commit_id: str | None = None
    commit_time: int | None = None
    """The in-commit timestamp, in milliseconds."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file. Fields that are None are left out."""
        has_vectors = self.protocol is not None and _has_vectors(self.protocol)
        body = {
            "txnId": self.commit_id,
            "tableSizeBytes": self.size_bytes,
            "numFiles": self.num_files,
            "numDeletedRecordsOpt": self.deleted_rows if has_vectors else None,
            "numDeletionVectorsOpt": self.vectors if has_vectors else None,
            "numMetadata": 1,
            "numProtocol": 1,
            "inCommitTimestampOpt": self.commit_time,
            "setTransactions": _bodies(self.transactions),
            "domainMetadata": _bodies(self.domains),
            "metadata": None if self.metadata is None else self.metadata.to_json(),
            "protocol": None if self.protocol is None else self.protocol.to_json(),
        }
        return {key: value for key, value in body.items() if value is not None}


def _has_vectors(protocol: Protocol) -> bool:
    return "deletionVectors" in supported_features(protocol)


def _bodies(actions: Sequence[SetTransaction] | Sequence[DomainMetadata] | None) -> list[dict[str, Any]] | None:
    return None if actions is None else [action.to_json() for action in actions]


def read_checksum(store: ObjectStore, version: int) -> VersionChecksum | None:
    """Read the checksum of a version. Return None if it is missing, because it is optional, or invalid."""
    try:
        body = loads(store.get(checksum_key(version)))
        if not isinstance(body, dict):
            return None
        protocol = Protocol.from_json(body["protocol"]) if isinstance(body.get("protocol"), dict) else None
        # Without the feature, the writer need not say that there are none.
        vectors = None if protocol is None or _has_vectors(protocol) else 0
        transactions, domains = body.get("setTransactions"), body.get("domainMetadata")
        return VersionChecksum(
            version,
            _count(body.get("numFiles")),
            _count(body.get("tableSizeBytes")),
            _count(body.get("numDeletedRecordsOpt", vectors)),
            _count(body.get("numDeletionVectorsOpt", vectors)),
            protocol,
            Metadata.from_json(body["metadata"]) if isinstance(body.get("metadata"), dict) else None,
            [SetTransaction.from_json(each) for each in transactions] if isinstance(transactions, list) else None,
            [DomainMetadata.from_json(each) for each in domains] if isinstance(domains, list) else None,
        )
    except (
        NotFound,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        MalformedProtocol,
        MalformedMetadata,
        MalformedAction,
    ):
        return None


def disagreements(snapshot: Snapshot) -> list[str]:
    """List the differences between a version's checksum and its log as sentences. Empty if there is no checksum.

    Protocol section: Version Checksum File, State Validation.
    """
    checksum = read_checksum(snapshot.store, snapshot.version)
    return [] if checksum is None else list(_differences(checksum, snapshot))


def _differences(checksum: VersionChecksum, snapshot: Snapshot) -> Iterator[str]:
    files = snapshot.files(["path", "size", "deletionVector"])
    if checksum.num_files not in (None, len(files)):
        yield f"the checksum counts {checksum.num_files} files, the log {len(files)}"
    size = pc.sum(files["size"]).as_py() or 0
    if checksum.size_bytes not in (None, size):
        yield f"the checksum counts {checksum.size_bytes} bytes of data, the log {size}"
    vectors, deleted = deletions(files)
    if checksum.vectors not in (None, vectors):
        yield f"the checksum counts {checksum.vectors} deletion vectors, the log {vectors}"
    if checksum.deleted_rows not in (None, deleted):
        yield f"the checksum counts {checksum.deleted_rows} deleted rows, the log {deleted}"
    if checksum.protocol not in (None, snapshot.protocol):
        yield f"the checksum has the protocol {checksum.protocol}, the log {snapshot.protocol}"
    if checksum.metadata not in (None, snapshot.metadata):
        yield f"the checksum has other metadata than the log: {checksum.metadata} instead of {snapshot.metadata}"
    if checksum.transactions is not None:
        transactions = snapshot.transactions().select(["appId", "version"]).to_pylist()
        recorded = {row["appId"]: row["version"] for row in transactions}
        # The writer may have expired txn actions that the log still has.
        listed = {marker.app_id: marker.version for marker in checksum.transactions}
        if any(recorded.get(app) != version for app, version in listed.items()):
            yield f"the checksum has the transaction identifiers {listed}, the log {recorded}"
    if checksum.domains is not None:
        found, domains = (
            {each.domain: each.configuration for each in listed_domains if not each.removed}
            for listed_domains in (checksum.domains, snapshot.domains)
        )
        if found != domains:
            yield f"the checksum has the metadata domains {sorted(found)}, the log {sorted(domains)}"


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
