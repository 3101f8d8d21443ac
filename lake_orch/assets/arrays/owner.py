"""The owner of arrays: the asset that wrote them last, according to the commits of their repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lake_core.icechunk import Repository
from lake_orch.assets.owner import Owner, claim_by_commits
from lake_orch.definition_metadata import Ownership


def claim(repository: Repository, writer: Owner | None, ownership: Ownership, *, replaces: bool) -> Mapping[str, str]:
    """Check that an asset may write, and return the owner for its commit's metadata. Raises TableOwned."""
    subject = f"the arrays {repository.storage.url()}"
    return claim_by_commits(
        _commits(repository), writer, ownership, replaces=replaces, subject=subject, replaced="them"
    )


def _commits(repository: Repository) -> Iterator[Mapping[str, str]]:
    """Yield the metadata of each commit, latest first."""
    for snapshot in repository.ancestry(branch="main"):
        yield snapshot.metadata
