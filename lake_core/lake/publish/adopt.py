"""Adoption of the commits that other writers made to a dataset outside the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lake.errors import DatasetNotFound, NothingToApply
from lake_core.lake.publish.adoption import Adoption
from lake_core.lake.publish.commit_to_branch import commit_to_branch

if TYPE_CHECKING:
    from lake_core.lake.publish.published import Published
    from lake_core.lake.repository import Repository


def adopt(repository: Repository, path: str) -> Published:
    """Commit a dataset's checked-out state to main. Raises DatasetNotFound, NothingToApply, Conflict."""
    path = path.strip("/")
    branch = repository.format.branch
    refs = repository.refs()
    head = refs.branch(branch)
    if path not in repository.commit_state(refs.commit(head), branch).registered():
        raise DatasetNotFound(
            f"there is no dataset at {path!r} in {branch}: run `lake import {path}`, or call "
            f"session.import_delta({path!r})"
        )
    published = commit_to_branch(repository, Adoption(repository, path))
    if published.commit == head:
        raise NothingToApply(f"the checked-out log of {path!r} equals that of {branch}: there is nothing to adopt")
    return published
