"""Version checksums (`N.crc`): the state of a version as its writer knew it, compared with the log.

A checksum is never read instead of the log. Any writer may write it after the commit, and a wrong checksum would make
the table wrong without an error. The checkpoint and the commits have to be read for the files in any case. A checksum
serves to find logs that have lost or gained actions. Protocol section: Version Checksum File.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lake_core.delta.action import Metadata, Protocol
from lake_core.delta.errors import MalformedMetadata, MalformedProtocol
from lake_core.delta.json_numbers import loads
from lake_core.delta.log_segment import LOG_FOLDER
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore


def checksum_key(version: int) -> str:
    """Return the key of a version's checksum in the log."""
    return f"{LOG_FOLDER}/{version:020d}.crc"


@dataclass(frozen=True, slots=True)
class VersionChecksum:
    """The content of a checksum file; None for absent fields."""

    num_files: int | None = None
    size_bytes: int | None = None
    """Of all data files together."""
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, int] | None = None
    """The version of each application's txn action."""
    domains: Mapping[str, str] | None = None
    """The configuration of each metadata domain in force."""


def read_checksum(store: ObjectStore, version: int) -> VersionChecksum | None:
    """Read the checksum of a version. Return None if it is missing, because it is optional, or invalid."""
    try:
        body = loads(store.get(checksum_key(version)))
        if not isinstance(body, dict):
            return None
        return VersionChecksum(
            _count(body.get("numFiles")),
            _count(body.get("tableSizeBytes")),
            Protocol.from_json(body["protocol"]) if isinstance(body.get("protocol"), dict) else None,
            Metadata.from_json(body["metadata"]) if isinstance(body.get("metadata"), dict) else None,
            _pairs(body.get("setTransactions"), "appId", "version"),
            _pairs(body.get("domainMetadata"), "domain", "configuration"),
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
    ):
        return None


def disagreements(snapshot: Snapshot) -> list[str]:
    """List the differences between a version's checksum and its log as sentences. Empty if there is no checksum.

    Protocol section: Version Checksum File, State Validation.
    """
    checksum = read_checksum(snapshot.store, snapshot.version)
    return [] if checksum is None else list(_differences(checksum, snapshot))


def _differences(checksum: VersionChecksum, snapshot: Snapshot) -> Iterator[str]:
    files = snapshot.files(["path", "size"])
    if checksum.num_files not in (None, len(files)):
        yield f"the checksum counts {checksum.num_files} files, the log {len(files)}"
    size = pc.sum(files["size"]).as_py() or 0
    if checksum.size_bytes not in (None, size):
        yield f"the checksum counts {checksum.size_bytes} bytes of data, the log {size}"
    if checksum.protocol not in (None, snapshot.protocol):
        yield f"the checksum has the protocol {checksum.protocol}, the log {snapshot.protocol}"
    if checksum.metadata not in (None, snapshot.metadata):
        yield f"the checksum has other metadata than the log: {checksum.metadata} instead of {snapshot.metadata}"
    if checksum.transactions is not None:
        transactions = snapshot.transactions().select(["appId", "version"]).to_pylist()
        recorded = {row["appId"]: row["version"] for row in transactions}
        # The writer may have expired txn actions that the log still has.
        if any(recorded.get(app) != version for app, version in checksum.transactions.items()):
            yield f"the checksum has the transaction identifiers {dict(checksum.transactions)}, the log {recorded}"
    domains = {domain.domain: domain.configuration for domain in snapshot.domains}
    if checksum.domains not in (None, domains):
        yield f"the checksum has the metadata domains {sorted(checksum.domains or ())}, the log {sorted(domains)}"


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _pairs(listed: Any, key: str, value: str) -> dict[str, Any] | None:
    """Convert a list of actions to a mapping, without those that were removed."""
    if not isinstance(listed, list):
        return None
    return {body[key]: body[value] for body in listed if not body.get("removed")}
