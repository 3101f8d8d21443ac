"""The verb that lets go of a dataset, which other clients may write from then on."""

from __future__ import annotations

from lake_core.lake.publish.change import Change
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.publish.published import Published
from lake_core.lake.publish.tree_update import TreeUpdate
from lake_core.lake.repository import Repository
from lake_core.lake.session.private_session import Session
from lake_core.lake.state.claims import disclaim
from lake_core.lake.state.content import Item
from lake_core.lake.state.state_store import StateStore


def release(repository: Repository, session: Session, path: str) -> Published:
    """Make a dataset of main a plain one: other clients may write it, and the lake knows it no more.

    Its data stays where it is, and the lake deletes nothing there from now on. Raises DatasetNotFound.
    """
    view = session.dataset(path)
    record = view.record
    if view.resolver.managed(view):
        view.resolver.release(view)
        session.publish()

    def forgotten(target: StateStore) -> TreeUpdate:
        items: dict[str, Item | None] = {key: None for key, _ in target.view.list(f"{record.path}/")}
        if target.view.get(record.key) is not None:
            items[record.key] = None
        return TreeUpdate(items, target.view.tree)

    refs = repository.refs()
    head = repository.commit_state(refs.commit(refs.branch(session.branch)), session.branch)
    change = Change(session.branch, head, head, f"Release {record.path}", {"release": record.path}, make=forgotten)
    published = commit_to_branch(repository, change)
    disclaim(repository.root, record.path)
    return published
