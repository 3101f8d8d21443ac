"""Release of a dataset from the lake, after which other clients may write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.lake.errors import Conflict, Diverged, ProtectedBranch, PublishTimeout
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.publish.prepare import Proposal, head_of, prepare_tree
from lake_core.lake.publish.tree_update import TreeUpdate
from lake_core.lake.state.claims import claim, disclaim

if TYPE_CHECKING:
    from lake_core.lake.publish.branch_update import BranchUpdate
    from lake_core.lake.publish.published import Published
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.session.private_session import Session
    from lake_core.lake.state.content import Item
    from lake_core.lake.state.dataset_record import DatasetRecord


def release(repository: Repository, session: Session, path: str) -> Published:
    """Remove a dataset from main, but keep its files, so that other clients can write it.

    From then on the lake deletes nothing in its folder. Raises DatasetNotFound.
    """
    view = session.dataset(path)
    record = view.record
    if view.format.is_managed(view):
        view.format.release(view)
        session.publish()

    # First, because the folder is no longer the lake's from the commit on, whatever happens to this process. If it ends
    # before the commit, nothing in the folder is collected until the release is repeated.
    disclaim(repository.root, record.path)
    try:
        return commit_to_branch(repository, _Release(repository, session.branch, record))
    except (Conflict, Diverged, ProtectedBranch, PublishTimeout):
        claim(repository.root, record.path, record.format, occupied=True)
        raise


@dataclass(frozen=True, slots=True)
class _Release:
    """A `Source` that removes a dataset from a branch's tree and keeps its files."""

    repository: Repository
    branch: str
    record: DatasetRecord
    compares_checkout: bool = False

    def prepare(self, refs: RefsState) -> BranchUpdate:
        record = self.record
        target = head_of(self.repository, refs, self.branch)
        items: dict[str, Item | None] = {key: None for key, _ in target.view.list(f"{record.path}/")}
        if target.view.get(record.key) is not None:
            items[record.key] = None
        proposal = Proposal(self.branch, f"Release {record.path}", {"release": record.path})
        return prepare_tree(
            self.repository, refs, proposal, target, TreeUpdate(items, target.view.tree), target.registered()
        )
