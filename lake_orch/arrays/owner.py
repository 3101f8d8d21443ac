"""The owner of arrays: the asset that wrote them last, according to the commits of their repository."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from lake_core.icechunk import Repository
from lake_orch.definition_metadata import Ownership
from lake_orch.tables.owner import Owner, owned

_COMMITS = 100
"""The number of commits to search for an owner. Other writers record none."""


def claim(repository: Repository, writer: Owner | None, ownership: Ownership, *, replaces: bool) -> Mapping[str, str]:
    """Check that an asset may write, and return the owner for its commit's metadata.

    Raises:
        TableOwned: The asset would replace arrays of another.
    """
    if writer is None or ownership == "shared":
        return {}
    owner = owner_of(repository)
    if owner is None or ownership == "take" or not owner.is_other(writer):
        return writer.properties
    if not replaces:
        return {}
    raise owned(f"the arrays {repository.storage.url()} were made by {owner}, and {writer} would replace them")


def owner_of(repository: Repository) -> Owner | None:
    """Return the owner that the latest commit with an owner names; None if no commit has one."""
    for snapshot in islice(repository.ancestry(branch="main"), _COMMITS):
        owner = Owner.of_properties(snapshot.metadata)
        if owner is not None:
            return owner
    return None
