"""Creation and deletion of branches, tags and protections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.journal import Action, Add, Append, Delete, Journal, State, Update
from lake_core.lake.errors import RefExists, RefNotFound
from lake_core.lake.refs.refs_state import DELETED, RefsState, check_name
from lake_core.lake.refs.revision import resolve_commit
from lake_core.lake.refs.values import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def create_branch(journal: Journal, name: str, at: str, exist_ok: bool) -> str:
    """Create a branch at a ref, and return its commit. Raises RefExists, InvalidRef, RefNotFound."""
    check_name(name, "branch")
    return _add_ref(journal, f"branch/{name}", at, exist_ok)


def delete_branch(journal: Journal, name: str, at: str | None) -> bool:
    """Delete a branch, with `at` only if it is at this commit. Return whether it is gone. Raises RefNotFound."""

    def plan(state: State) -> Append[bool]:
        goes = at in (None, RefsState(state).branch(name))
        return Append([Delete(f"branch/{name}")] if goes else (), goes)

    return journal.append(plan)


def create_tag(journal: Journal, name: str, at: str) -> str:
    """Give a commit a permanent name, and return the commit. Raises RefExists, InvalidRef, RefNotFound."""
    check_name(name, "tag")
    return _add_ref(journal, f"tag/{name}", at, False)


def delete_tag(journal: Journal, name: str) -> None:
    """Delete a tag. Its name cannot be used again. Raises RefNotFound."""

    def plan(state: State) -> Sequence[Action]:
        if name not in RefsState(state).tags():
            raise RefNotFound(f"the tag {name!r} does not exist")
        return [Update(f"tag/{name}", dict(DELETED))]

    journal.append(plan)


def protect(journal: Journal, pattern: str) -> None:
    """Protect the branches with matching names: they accept only merges."""

    def plan(state: State) -> Sequence[Action]:
        return () if f"protect/{pattern}" in state else [Add(f"protect/{pattern}", {})]

    journal.append(plan)


def unprotect(journal: Journal, pattern: str) -> None:
    """Remove a protection. Raises RefNotFound."""

    def plan(state: State) -> Sequence[Action]:
        if f"protect/{pattern}" not in state:
            raise RefNotFound(f"the protection {pattern!r} does not exist")
        return [Delete(f"protect/{pattern}")]

    journal.append(plan)


def _add_ref(journal: Journal, key: str, at: str, exist_ok: bool) -> str:
    name = key.split("/", 1)[1]

    def plan(state: State) -> Append[str]:
        commit = resolve_commit(RefsState(state), journal, at)
        if key in state and exist_ok:
            return Append((), text_of(key, state[key], "commit"))
        if any(f"{other}/{name}" in state for other in ("branch", "tag", "session")):
            raise RefExists(f"{name!r} is or was the name of a branch, tag or session: choose another one")
        return Append([Add(key, {"commit": commit.id})], commit.id)

    return journal.append(plan)
