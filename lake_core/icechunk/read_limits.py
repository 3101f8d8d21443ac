"""How much of a repository is read concurrently, and so is in memory at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of concurrent reads."""

    snapshots: int = 50
    manifest_bytes: int = 512 * 2**20
    """Bytes of manifests, compressed. A single manifest may be larger."""
    manifests: int = 500

    def __post_init__(self) -> None:
        if min(self.snapshots, self.manifest_bytes, self.manifests) < 1:
            raise ValueError("the limits must allow at least one snapshot, and one manifest of one byte, in memory")


def batches(sizes: Mapping[bytes, int], limits: ReadLimits) -> Iterator[list[bytes]]:
    """Yield the ids of manifests that are read together. `sizes`: the bytes of each."""
    batch: list[bytes] = []
    size = 0
    for manifest_id, manifest_size in sizes.items():
        if batch and (len(batch) >= limits.manifests or size + manifest_size > limits.manifest_bytes):
            yield batch
            batch, size = [], 0
        batch.append(manifest_id)
        size += manifest_size
    if batch:
        yield batch
