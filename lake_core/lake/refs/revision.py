"""Ref expressions: a branch, a tag, a commit or a session, or a commit before it (lakeFS: ref expressions).

main  v1  4f4cc1feb893…  a unique prefix of a commit's id  s-…      names
main~3  main^2  main@                            the third first parent; the second parent; the branch's head
main@{2026-01-31T12:00:00Z}                      the branch as it was then
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from lake_core.journal.errors import HistoryPurged, NoSuchEntry
from lake_core.lake.errors import InvalidRef, RefNotFound
from lake_core.lake.refs.refs_state import COMMIT_ID, RefsState
from lake_core.lake.refs.session_record import SessionRecord
from lake_core.readable import count_of

if TYPE_CHECKING:
    from lake_core.graveler import Commit
    from lake_core.journal import Journal

_EXPRESSION = re.compile(r"([\w][-.\w]*)((?:[~^][0-9]*|@(?:\{[^{}]*\})?)*)", re.ASCII)
_MODIFIER = re.compile(r"([~^])([0-9]*)|@(?:\{([^{}]*)\})?")
_PREFIX = re.compile(r"[0-9a-f]{6,64}")

Revision: TypeAlias = "Commit | SessionRecord"
"""The target of an expression."""


def resolve(refs: RefsState, journal: Journal, expression: str) -> Revision:
    """Resolve an expression. Raises InvalidRef, RefNotFound."""
    match = _EXPRESSION.fullmatch(expression) if isinstance(expression, str) else None
    if match is None:
        raise InvalidRef(
            f"{expression!r} is not a ref: write a branch, tag, commit or session, "
            f"optionally followed by ~n, ^n or @{{time}}"
        )
    name, suffix = match[1], match[2]
    modifiers = list(_MODIFIER.finditer(suffix))
    if modifiers and modifiers[0][0].startswith("@"):
        first = modifiers.pop(0)
        refs.branch(name)
        revision: Revision = refs.commit(refs.branch(name)) if first[3] is None else _at(refs, journal, name, first[3])
    else:
        revision = _named(refs, name)
    for modifier in modifiers:
        if modifier[0].startswith("@"):
            raise InvalidRef(f"{expression!r} is not a ref: @ must directly follow a branch")
        if isinstance(revision, SessionRecord):
            revision = (
                refs.commit(revision.base)
                if modifier[1] == "~" and modifier[2] in ("", "1")
                else _no_parent(expression)
            )
            continue
        number = int(modifier[2][:8] or 1)
        if number > 1_000_000:
            raise InvalidRef(f"{expression!r} goes back further than any history")
        revision = (
            _ancestor(refs, revision, number, expression)
            if modifier[1] == "~"
            else _parent(refs, revision, number, expression)
        )
    return revision


def resolve_commit(refs: RefsState, journal: Journal, expression: str) -> Commit:
    """Resolve an expression to a commit. Raises InvalidRef if it names a session; RefNotFound."""
    revision = resolve(refs, journal, expression)
    if isinstance(revision, SessionRecord):
        raise InvalidRef(
            f"{expression!r} is a session, but a commit is needed: "
            f"publish the session, or name its base, {expression}~1"
        )
    return revision


def _named(refs: RefsState, name: str) -> Revision:
    if COMMIT_ID.fullmatch(name) and refs.has_commit(name):
        return refs.commit(name)
    if f"branch/{name}" in refs.state:
        return refs.commit(refs.branch(name))
    if name in refs.tags():
        return refs.commit(refs.tags()[name])
    if f"session/{name}" in refs.state:
        return refs.session(name)
    if _PREFIX.fullmatch(name):
        matches = refs.state.under(f"commit/{name}")
        if len(matches) == 1:
            return refs.commit(matches[0].removeprefix("commit/"))
        if matches:
            raise InvalidRef(f"the ids of {len(matches)} commits begin with {name!r}: write more of the id")
    raise RefNotFound(
        f"{name!r} is not a branch, tag, commit or session; the branches are "
        f"{', '.join(sorted(refs.branches())) or 'none'}"
    )


def _at(refs: RefsState, journal: Journal, branch: str, text: str) -> Commit:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRef(f"{text!r} is not a timestamp: use ISO 8601, such as 2026-01-31T12:00:00Z") from None
    if when.tzinfo is None:
        raise InvalidRef(f"{text!r} has no time zone: add one, such as Z")
    try:
        when = when.astimezone(UTC)
    except OverflowError:
        raise InvalidRef(f"{text!r} is outside the years 1 to 9999 in UTC") from None
    try:
        return refs.commit(RefsState(journal.state_at(when)).branch(branch))
    except (HistoryPurged, NoSuchEntry):
        pass
    except RefNotFound:
        raise RefNotFound(f"the branch {branch!r} did not exist at {text}") from None
    # The journal's entries of that time are deleted, but commits record their own times.
    revision = refs.commit(refs.branch(branch))
    while revision.creation_date > when:
        if not revision.parents:
            raise RefNotFound(f"the branch {branch!r} did not exist at {text}")
        revision = refs.first_parent(revision)
    return revision


def _ancestor(refs: RefsState, commit: Commit, number: int, expression: str) -> Commit:
    for _ in range(number):
        if not commit.parents:
            _no_parent(expression)
        commit = refs.first_parent(commit)
    return commit


def _parent(refs: RefsState, commit: Commit, number: int, expression: str) -> Commit:
    if number == 0:
        return commit
    if number > len(commit.parents):
        what = (
            f"{count_of(len(commit.parents), 'parent')}"
            if commit.parents
            else "no parent, because it is the first commit"
        )
        raise RefNotFound(f"{expression!r} names a parent that does not exist: commit {commit.id[:12]} has {what}")
    return refs.commit(commit.parents[number - 1])


def _no_parent(expression: str) -> Commit:
    raise RefNotFound(f"{expression!r} goes back past the first commit")
