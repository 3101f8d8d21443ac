"""The one mutable thing of a lake: the refs journal. Branches, tags, sessions, and the commit that each entry adds.

A key-value view over numbered entries (see `lake_core.journal`). Keys:

    branch/<name>      {"commit"}
    tag/<name>         {"commit"}; `commit` is null once it was deleted: the name is not used again
    session/<id>       see `SessionRecord`
    commit/<id>        the commit record
    protect/<pattern>  {}: branches that match take merges only; here, so that it holds from one entry to the next
    place/<branch>     {"commit"}: up to this one the branch is known to stand in place
    collection/<id>    see `collect`
    retention/<path>   {"before"}: what only older states of a dataset reach may be collected
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lake_core.graveler import Commit
from lake_core.journal import Action, Add, State, Update
from lake_core.lake.errors import DamagedLake, InvalidRef, RefNotFound, SessionNotFound

NAME = re.compile(r"\w[-.\w]{0,99}", re.ASCII)
_COMMIT_ID = re.compile(r"[0-9a-f]{64}")

OPEN, FAILED, PUBLISHED, ABANDONED, EXPIRED = "open", "failed", "published", "abandoned", "expired"


def check_name(name: str, what: str) -> str:
    """Raises InvalidRef for what cannot name a branch, tag or session."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or _COMMIT_ID.fullmatch(name) or name.endswith("."):
        raise InvalidRef(f"{name!r} cannot name a {what}: letters, digits, '_', '-' and '.', beginning with one of the first three")
    return name


@dataclass(frozen=True, slots=True)
class Batch:
    """What one flush brought into a shared session."""

    id: str
    part: str
    """The joined process's handle."""
    before: str
    """The session's tree that it was applied to."""
    after: str
    output: str | None = None
    """What it wrote, by the caller's name for it: a later attempt at the same output replaces it."""
    attempt: int = 0
    done: bool = False
    """Whether the attempt had come to its end with it: one that died half-way is made again, not taken for whole."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as the refs journal has it: Arraylake's session, shared by processes."""

    id: str
    branch: str
    base: str
    """The commit that it began with."""
    tree: str
    """Its own state: a metarange."""
    epoch: int
    state: str
    opened: datetime
    expires: datetime
    opened_at: int
    """The number of the refs entry that it began after."""
    lineage: str
    """The same for a session and those that carry its work on after a conflict."""
    message: str = ""
    isolation: str = "snapshot"
    reads: Sequence[str] = ()
    """What it read, where its isolation asks for that: keys, prefixes ending in "*"."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    batches: Sequence[Batch] = ()
    commit: str | None = None
    """The commit that it was published as."""
    reason: str = ""
    """Why it failed."""

    @property
    def key(self) -> str:
        return f"session/{self.id}"

    def to_json(self) -> dict[str, Any]:
        body = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("id", "batches", "opened", "expires")}
        batches = [{name: getattr(batch, name) for name in Batch.__dataclass_fields__} for batch in self.batches]
        times = {"opened": self.opened.isoformat(), "expires": self.expires.isoformat()}
        return body | times | {"reads": list(self.reads), "metadata": dict(self.metadata), "batches": batches}

    @classmethod
    def from_json(cls, id: str, body: Mapping[str, Any]) -> SessionRecord:
        """Raises DamagedLake."""
        try:
            known = {name: body[name] for name in cls.__dataclass_fields__ if name in body}
            times = {name: datetime.fromisoformat(body[name]) for name in ("opened", "expires")}
            made = cls(id=id, **(known | times | {"batches": tuple(Batch(**batch) for batch in body.get("batches", ()))}))
            made._check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedLake(f"the record of session {id!r} in the refs journal makes no sense: {error!r}") from None
        return made

    def _check(self) -> None:
        texts = [self.branch, self.base, self.tree, self.state, self.lineage, self.message, self.isolation, *self.reads]
        texts += [text for batch in self.batches for text in (batch.id, batch.part, batch.before, batch.after)]
        texts += [text for pair in self.metadata.items() for text in pair]
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.reads, list):
            raise ValueError("what should be text is not")
        if type(self.epoch) is not int or any(type(batch.attempt) is not int for batch in self.batches):
            raise ValueError("what should be a number is not")
        if self.opened.tzinfo is None or self.expires.tzinfo is None:
            raise ValueError("an instant has no time zone")


@dataclass(frozen=True, slots=True)
class RefsState:
    """The refs as of one entry of their journal."""

    state: State

    @property
    def number(self) -> int:
        return self.state.number

    def branch(self, name: str) -> str:
        """The commit that a branch points at. Raises RefNotFound."""
        found = self.state.get(f"branch/{name}")
        if found is None:
            raise RefNotFound(f"no branch {name!r}; branches are {', '.join(sorted(self.branches())) or 'none'}")
        return text_of(f"branch/{name}", found, "commit")

    def branches(self) -> dict[str, str]:
        """The commit of each branch."""
        return {name: text_of(f"branch/{name}", value, "commit") for name, value in self._under("branch/")}

    def tags(self) -> dict[str, str]:
        """The commit of each tag."""
        standing = ((name, value) for name, value in self._under("tag/") if value != DELETED)
        return {name: text_of(f"tag/{name}", value, "commit") for name, value in standing}

    def commit(self, id: str) -> Commit:
        """A commit by its id. Raises RefNotFound."""
        found = self.state.get(f"commit/{id}")
        if found is None:
            raise RefNotFound(f"no commit {id!r} in this lake, or it is past the retention and was collected")
        return commit_of(id, found)

    def first_parent(self, commit: Commit) -> Commit:
        """What a branch pointed at before a commit. Raises RefNotFound where that was collected, DamagedLake for a history in a circle."""
        parent = self.commit(commit.parents[0])
        if parent.generation >= commit.generation:
            raise DamagedLake(f"commit {commit.id[:12]} is not younger than its parent")
        return parent

    def commits(self) -> Iterator[Commit]:
        """All commits that the lake retains, in no order that means anything."""
        return (commit_of(id, value) for id, value in self._under("commit/"))

    def session(self, id: str) -> SessionRecord:
        """A session by its id. Raises SessionNotFound."""
        found = self.state.get(f"session/{id}")
        if found is None:
            raise SessionNotFound(f"no session {id!r}: it was never opened, or ended more than a week ago")
        return SessionRecord.from_json(id, found)

    def sessions(self) -> list[SessionRecord]:
        """All sessions on record, oldest first."""
        return sorted((SessionRecord.from_json(id, value) for id, value in self._under("session/")), key=lambda found: found.opened)

    def placed(self, branch: str) -> str | None:
        """The commit up to which a branch is known to stand in place."""
        found = self.state.get(f"place/{branch}")
        return None if found is None else text_of(f"place/{branch}", found, "commit")

    def protected(self, branch: str) -> str | None:
        """The pattern by which a branch takes merges only, None for one that takes everything."""
        return next((pattern for pattern, _ in self._under("protect/") if fnmatch.fnmatchcase(branch, pattern)), None)

    def _under(self, prefix: str) -> Iterator[tuple[str, Any]]:
        return ((key[len(prefix) :], self.state[key]) for key in self.state.under(prefix))

    def under(self, prefix: str) -> dict[str, Any]:
        """The values whose keys begin with `prefix`, by the rest of their keys."""
        return dict(self._under(prefix))


DELETED: Mapping[str, None] = {"commit": None}
"""The value of a tag that was deleted."""


def text_of(key: str, value: Any, name: str) -> str:
    """A text that a value of the refs journal holds. Raises DamagedLake where it holds none."""
    found = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(found, str):
        raise DamagedLake(f"the value of {key!r} in the refs journal makes no sense: {str(value)[:100]!r}")
    return found


def instant_of(key: str, value: Any, name: str) -> datetime:
    """An instant that a value of the refs journal holds. Raises DamagedLake."""
    try:
        found = datetime.fromisoformat(text_of(key, value, name))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise DamagedLake(f"the value of {key!r} in the refs journal holds no instant: {str(value)[:100]!r}")
    return found


def put(state: RefsState, key: str, value: Any) -> Action:
    """The action that gives a key a value, whether it has one or not."""
    return Update(key, value) if key in state.state else Add(key, value)


def commit_value(commit: Commit) -> dict[str, Any]:
    """A commit as its entry in the refs journal keeps it."""
    return {
        "committer": commit.committer,
        "message": commit.message,
        "date": commit.creation_date.isoformat(),
        "tree": commit.metarange_id,
        "metadata": dict(commit.metadata),
        "parents": list(commit.parents),
        "generation": commit.generation,
    }


def commit_of(id: str, value: Mapping[str, Any]) -> Commit:
    """The commit that `commit_value` kept. Raises DamagedLake."""
    try:
        made = Commit(
            id=id,
            committer=value["committer"],
            message=value["message"],
            creation_date=datetime.fromisoformat(value["date"]),
            metarange_id=value["tree"],
            metadata=dict(value["metadata"]),
            parents=tuple(value["parents"]),
            generation=value["generation"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedLake(f"the record of commit {id!r} in the refs journal makes no sense: {error!r}") from None
    texts = [made.metarange_id, made.message, made.committer, *made.parents, *made.metadata, *made.metadata.values()]
    if type(made.generation) is not int or not all(isinstance(text, str) for text in texts) or made.creation_date.tzinfo is None:
        raise DamagedLake(f"the record of commit {id!r} in the refs journal makes no sense")
    return made


MOST_EXPIRY = timedelta(days=7)
"""How long a session may live."""
