"""Branches of a pool: names for commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.journal import Action, Add, Delete, Journal, State
from lake_core.journal.errors import KeyExists
from lake_core.pool.config_journal import branch_of, read_state
from lake_core.pool.errors import BranchExists, InvalidBranchName, InvalidValue, NoSuchBranch, NoSuchCommit
from lake_core.pool.ksuid import parse_ksuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.pool.commit_store import CommitStore
    from lake_core.pool.config import BranchConfig


def create_branch(journal: Journal, branch: BranchConfig) -> None:
    """Create a branch. Raises InvalidBranchName, BranchExists, DamagedLake."""
    _check_name(branch.name)
    read_state(journal)
    try:
        journal.append(lambda state: [Add(branch.name, branch)])
    except KeyExists:
        raise BranchExists(
            f"the pool already has a branch {branch.name!r}; choose another name, or delete that branch first"
        ) from None


def delete_branch(journal: Journal, name: str) -> None:
    """Delete a branch, main included. Raises NoSuchBranch, DamagedLake."""

    def plan(state: State) -> Sequence[Action]:
        branch_of(state, name)
        return [Delete(name)]

    read_state(journal)
    journal.append(plan)


def check_start(commits: CommitStore, state: State, at: str) -> None:
    """Check that a branch can begin at a commit. Raises NoSuchBranch where `at` names none."""
    try:
        parse_ksuid(at)
        commits.check(at)
    except (InvalidValue, NoSuchCommit):
        raise NoSuchBranch(
            f"the pool has no branch or commit {at!r}; its branches are {', '.join(state) or 'none'}"
        ) from None


def _check_name(name: str) -> None:
    if not name or "@" in name or not name.isprintable() or _is_id(name):
        raise InvalidBranchName(
            f"a branch cannot be named {name!r}; use printable characters other than '@', and not the id of a commit"
        )


def _is_id(name: str) -> bool:
    try:
        parse_ksuid(name)
    except InvalidValue:
        return False
    return True
