"""Shared sessions in the refs journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from lake_core.lake.errors import DamagedLake

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OPEN, FAILED, PUBLISHED, ABANDONED, EXPIRED = "open", "failed", "published", "abandoned", "expired"

BATCHES = "batch/"
"""The prefix of batches in the refs journal."""

MOST_EXPIRY = timedelta(days=7)
"""The longest life of a session."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The changes of one flush into a shared session."""

    id: str
    writer: str
    """The id of the `SessionWriter`."""
    before: str
    """The tree of the session before the flush."""
    after: str
    task: str | None = None
    """The caller's name for what was written. A later attempt at the same task replaces it."""
    attempt: int = 0
    is_last: bool = False
    """Whether this is the last batch of the part. A part without it died, and is made again."""
    token: str = ""
    """What tells two attempts of the same number apart."""
    part: str = ""
    """The caller's name for the part of the attempt. Its parts count together."""

    def to_json(self) -> dict[str, Any]:
        """Return the batch as in the journal, under the names of `_BATCH_FIELDS`."""
        named = {"token": self.token, "part_name": self.part}
        return {
            "id": self.id,
            "part": self.writer,
            "before": self.before,
            "after": self.after,
            "output": self.task,
            "attempt": self.attempt,
            "done": self.is_last,
            **{name: text for name, text in named.items() if text},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Batch:
        """Read what `to_json` wrote. Raises KeyError, TypeError."""
        unknown = body.keys() - _BATCH_FIELDS.keys()
        if unknown:
            raise TypeError(f"a batch has no {', '.join(sorted(unknown))}")
        return cls(**{_BATCH_FIELDS[name]: value for name, value in body.items()})


def batch_prefix(session: str, task: str | None, writer: str) -> str:
    """Return the prefix of the keys of a task's batches, or of a writer's batches if there is no task."""
    name = writer if task is None else task
    return f"{BATCHES}{session}/{sha256(name.encode()).hexdigest()[:16]}/"


def batch_key(session: str, batch: Batch) -> str:
    """Return the key of a batch in the refs journal."""
    return f"{batch_prefix(session, batch.task, batch.writer)}{batch.id}"


_BATCH_FIELDS = {
    "id": "id",
    "part": "writer",
    "before": "before",
    "after": "after",
    "output": "task",
    "attempt": "attempt",
    "done": "is_last",
    "token": "token",
    "part_name": "part",
}
"""The fields of a batch by their names in the journal."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The record of a shared session in the refs journal."""

    id: str
    branch: str
    base: str
    """The commit that the session is based on."""
    tree: str
    """The metarange of the session's state."""
    epoch: int
    state: str
    opened: datetime
    expires: datetime
    opened_at: int
    """The number of the last entry of the refs journal when it began."""
    lineage: str
    """An id that the session shares with those forked from it after a conflict."""
    message: str = ""
    isolation: str = "snapshot"
    reads: Sequence[str] = ()
    """What the session read, if its isolation requires that: keys, and prefixes ending in "*"."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    batches: Sequence[Batch] = ()
    """The batches in the record itself, in a lake of version 1 or 2. `RefsState.batches` lists all."""
    commit: str | None = None
    """The commit that the session was published as."""
    reason: str = ""
    """The reason of the failure."""
    owner: str = ""
    """What opened or resumed the session at its epoch, and settles it, such as the id of a run; empty if unknown."""
    conflicts: bool = False
    """Whether it failed because it conflicts with what others published, as it would again."""
    renews: str = ""
    """The id of the first generation, if another one may follow: it can replace what this one has published."""
    batch_count: int | None = None
    """How many batches it had when it was published. If there are fewer, they were removed since."""

    @property
    def key(self) -> str:
        """Return the key of the record in the refs journal."""
        return f"session/{self.id}"

    @property
    def is_published(self) -> bool:
        """Return whether the session's changes are on its branch."""
        return self.state == PUBLISHED

    @property
    def replaceable(self) -> bool:
        """Return whether it is published, and its batches are kept for a while, for a later session to replace them."""
        return self.is_published and bool(self.renews)

    def to_json(self) -> dict[str, Any]:
        """Return the record as in the journal, with times in ISO 8601. Its id is in the key."""
        body = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("id", "batches", "opened", "expires")
        }
        batches = [batch.to_json() for batch in self.batches]
        times = {"opened": self.opened.isoformat(), "expires": self.expires.isoformat()}
        return body | times | {"reads": list(self.reads), "metadata": dict(self.metadata), "batches": batches}

    @classmethod
    def from_json(cls, id: str, body: Mapping[str, Any]) -> SessionRecord:
        """Read what `to_json` wrote. Raises DamagedLake."""
        try:
            fields = {name: body[name] for name in cls.__dataclass_fields__ if name in body}
            times = {name: datetime.fromisoformat(body[name]) for name in ("opened", "expires")}
            record = cls(
                id=id,
                **(fields | times | {"batches": tuple(Batch.from_json(batch) for batch in body.get("batches", ()))}),
            )
            record._check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedLake(f"the record of session {id!r} in the refs journal is damaged: {error!r}") from None
        return record

    def _check(self) -> None:
        texts = [self.branch, self.base, self.tree, self.state, self.lineage, self.message, self.isolation]
        texts += [self.owner, self.renews, *self.reads]
        texts += [text for batch in self.batches for text in (batch.id, batch.writer, batch.before, batch.after)]
        texts += [text for pair in self.metadata.items() for text in pair]
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.reads, list):
            raise ValueError("what should be text is not")
        if type(self.conflicts) is not bool:
            raise ValueError("what should be true or false is not")
        if type(self.batch_count) not in (int, type(None)):
            raise ValueError("what should be a number is not")
        if type(self.epoch) is not int or any(type(batch.attempt) is not int for batch in self.batches):
            raise ValueError("what should be a number is not")
        if self.opened.tzinfo is None or self.expires.tzinfo is None:
            raise ValueError("an instant has no time zone")
