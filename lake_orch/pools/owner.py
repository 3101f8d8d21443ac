"""The owner of a pool: the asset that wrote it last, according to its commits."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from lake_core.pool import Pool
from lake_orch.definition_metadata import Ownership
from lake_orch.tables.owner import Owner, owned

_COMMITS = 100
"""How far back a commit is searched that names an owner: other writers name none."""


def claim(pool: Pool, writer: Owner | None, ownership: Ownership, *, replaces: bool) -> Mapping[str, str]:
    """Check that an asset may write, and return what its commit is to say of the owner.

    Raises:
        TableOwned: The asset would replace records of another.
    """
    if writer is None or ownership == "shared":
        return {}
    owner = owner_of(pool)
    if owner is None or ownership == "take" or not owner.is_other(writer):
        return writer.properties
    if not replaces:
        return {}
    raise owned(f"the pool {pool.config.name!r} was made by {owner}, and {writer} would replace its records")


def owner_of(pool: Pool) -> Owner | None:
    """Return the owner that the latest commit with an owner names; None where no commit has one."""
    for commit in islice(pool.log(), _COMMITS):
        meta = commit.meta.decode()
        owner = Owner.of_properties(meta) if isinstance(meta, Mapping) else None
        if owner is not None:
            return owner
    return None
