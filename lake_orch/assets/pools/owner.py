"""The owner of a pool: the asset that wrote it last, according to its commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lake_core.pool import Pool
from lake_orch.assets.owner import Owner, claim_by_commits
from lake_orch.definition_metadata import Ownership


def claim(pool: Pool, writer: Owner | None, ownership: Ownership, *, replaces: bool) -> Mapping[str, str]:
    """Check that an asset may write, and return the owner for its commit's metadata. Raises TableOwned."""
    subject = f"the pool {pool.config.name!r}"
    return claim_by_commits(
        _commits(pool), writer, ownership, replaces=replaces, subject=subject, replaced="its records"
    )


def _commits(pool: Pool) -> Iterator[Mapping[str, Any]]:
    """Yield the metadata of each commit, latest first. Yield {} for a commit whose metadata is not a record."""
    for commit in pool.log():
        metadata = commit.meta.decode()
        yield metadata if isinstance(metadata, Mapping) else {}
