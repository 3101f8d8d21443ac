"""The refs journal, the only mutable state of a lake: branches, tags, sessions and commits.

It is a key-value view of numbered entries (see `lake_core.journal`). Keys:

    branch/<name>      {"commit"}
    tag/<name>         {"commit"}; `commit` is null for a deleted tag, whose name cannot be used again
    session/<id>       see `SessionRecord`
    batch/<session>/…  see `Batch`; in lakes of version 1 and 2 the session's record has them
    commit/<id>        the commit record
    commit-link/<id>   what stays of a commit whose content was collected, see `CommitLink`
    protect/<pattern>  {}: matching branches accept only merges; in this journal, so that it takes effect at one entry
    place/<branch>     {"commit"}: the branch is known to be checked out up to this commit
    collection/<id>    see `pending_deletions`
    last-collection    {"id"}: the collection that began last
    fence/<owner>      see `fence`
    retention/<path>   {"before"}: objects that only older states of a dataset reach may be collected
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake_core.journal import Action, Add, State, Update
from lake_core.lake.errors import ContentGone, DamagedLake, InvalidRef, RefNotFound, SessionNotFound
from lake_core.lake.refs.commit_link import LINKS, CommitLink, link_of, read_link
from lake_core.lake.refs.commit_record import commit_of
from lake_core.lake.refs.session_record import BATCHES, Batch, SessionRecord, batch_prefix
from lake_core.lake.refs.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake_core.graveler import Commit

NAME = re.compile(r"\w[-.\w]{0,99}", re.ASCII)
COMMIT_ID = re.compile(r"[0-9a-f]{64}")

DELETED: Mapping[str, None] = {"commit": None}
"""The value of a tag that was deleted."""


def check_name(name: str, what: str) -> str:
    """Check that a branch, tag or session can have this name. Raises InvalidRef."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or COMMIT_ID.fullmatch(name) or name.endswith("."):
        raise InvalidRef(
            f"{name!r} is not a valid name of a {what}: use letters, digits, '_', '-' and '.', and begin "
            "with one of the first three"
        )
    return name


@dataclass(frozen=True, slots=True)
class RefsState:
    """The refs as of one entry of their journal."""

    state: State

    @property
    def number(self) -> int:
        """Return the number of the last journal entry in this state."""
        return self.state.number

    def branch(self, name: str) -> str:
        """Return the commit of a branch. Raises RefNotFound."""
        value = self.state.get(f"branch/{name}")
        if value is None:
            raise RefNotFound(
                f"the branch {name!r} does not exist; the branches are {', '.join(sorted(self.branches())) or 'none'}"
            )
        return text_of(f"branch/{name}", value, "commit")

    def branches(self) -> dict[str, str]:
        """List the commit of each branch."""
        return {name: text_of(f"branch/{name}", value, "commit") for name, value in self._under("branch/")}

    def tags(self) -> dict[str, str]:
        """List the commit of each tag."""
        values = ((name, value) for name, value in self._under("tag/") if value != DELETED)
        return {name: text_of(f"tag/{name}", value, "commit") for name, value in values}

    def named(self) -> set[str]:
        """List the commits of all branches and tags."""
        return {*self.branches().values(), *self.tags().values()}

    def has_commit(self, id: str) -> bool:
        """Return whether the lake retains a commit."""
        return f"commit/{id}" in self.state

    def commit(self, id: str) -> Commit:
        """Return a commit by its id. Raises RefNotFound."""
        value = self.state.get(f"commit/{id}")
        if value is None:
            raise RefNotFound(
                f"the commit {id!r} does not exist in this lake, or was garbage-collected after the retention"
            )
        return commit_of(id, value)

    def link(self, id: str) -> CommitLink | None:
        """Return the place of a commit in the graph, whether or not its content is retained.

        Return None for a commit that the lake never had, or whose link an earlier release deleted. Raises DamagedLake.
        """
        value = self.state.get(f"commit/{id}")
        if value is not None:
            return link_of(commit_of(id, value))
        value = self.state.get(f"{LINKS}{id}")
        return None if value is None else read_link(id, value)

    def commit_for(self, purpose: str, id: str) -> Commit:
        """Return a commit that an operation needs. Raises ContentGone, which names the purpose; RefNotFound."""
        if not self.has_commit(id) and (record := self.state.record(f"{LINKS}{id}")) is not None:
            raise ContentGone(id, purpose, record.time)
        return self.commit(id)

    def first_parent(self, commit: Commit) -> Commit:
        """Return the first parent of a commit.

        Raises RefNotFound if it was collected; DamagedLake for a cycle.
        """
        parent = self.commit(commit.parents[0])
        if parent.generation >= commit.generation:
            raise DamagedLake(f"commit {commit.id[:12]} is not younger than its parent")
        return parent

    def commits(self) -> Iterator[Commit]:
        """List all commits that the lake retains, in no particular order."""
        records = self.state.records_under("commit/")
        return (commit_of(key.removeprefix("commit/"), record.value) for key, record in records)

    def commit_ids(self) -> set[str]:
        """List the ids of all commits that the lake retains."""
        return {key.removeprefix("commit/") for key in self.state.under("commit/")}

    def session(self, id: str) -> SessionRecord:
        """Return a session by its id. Raises SessionNotFound."""
        value = self.state.get(f"session/{id}")
        if value is None:
            raise SessionNotFound(
                f"the session {id!r} does not exist: it was never opened, or ended more than a week ago"
            )
        return SessionRecord.from_json(id, value)

    def sessions(self) -> list[SessionRecord]:
        """List all sessions in the journal, oldest first."""
        return sorted(
            (SessionRecord.from_json(id, value) for id, value in self._under("session/")),
            key=lambda record: record.opened,
        )

    def batches(self, record: SessionRecord) -> list[Batch]:
        """List all batches of a session in the order of their flushes. Raises DamagedLake."""
        return [*record.batches, *self._batches_under(record.id, f"{BATCHES}{record.id}/")]

    def batches_of(self, record: SessionRecord, task: str | None, writer: str) -> list[Batch]:
        """List the batches of a task, or of a writer if there is no task. Raises DamagedLake."""
        batches = [*record.batches, *self._batches_under(record.id, batch_prefix(record.id, task, writer))]
        return [batch for batch in batches if batch.task == task and (task is not None or batch.writer == writer)]

    def _batches_under(self, session: str, prefix: str) -> list[Batch]:
        records = [record for key in self.state.under(prefix) if (record := self.state.record(key)) is not None]
        records.sort(key=lambda record: record.number)
        try:
            return [Batch.from_json(record.value) for record in records]
        except (TypeError, AttributeError) as error:
            raise DamagedLake(f"a batch of session {session!r} in the refs journal is damaged: {error!r}") from None

    def checked_out(self, branch: str) -> str | None:
        """Return the commit up to which a branch is known to be checked out."""
        value = self.state.get(f"place/{branch}")
        return None if value is None else text_of(f"place/{branch}", value, "commit")

    def protected(self, branch: str) -> str | None:
        """Return the pattern that restricts a branch to merges, or None for an unprotected branch."""
        return next((pattern for pattern, _ in self._under("protect/") if fnmatch.fnmatchcase(branch, pattern)), None)

    def _under(self, prefix: str) -> Iterator[tuple[str, Any]]:
        return ((key[len(prefix) :], self.state[key]) for key in self.state.under(prefix))

    def under(self, prefix: str) -> dict[str, Any]:
        """List the values whose keys begin with `prefix`, by the rest of their keys."""
        return dict(self._under(prefix))


def put(state: RefsState, key: str, value: Any) -> Action:
    """Return the action that adds or updates the value of a key."""
    return Update(key, value) if key in state.state else Add(key, value)
