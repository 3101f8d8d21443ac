"""Commits: who changed a pool, when and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lake_core.pool.metadata import Record, id_value, named_record, nanoseconds_of
from lake_core.pool.types import STRING, TIME, UINT8
from lake_core.pool.value import NULL_VALUE, Value


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit.

    Attributes:
        id: Its id, and the name of its file.
        parent: The id of the commit before it; that of no commit is `NIL`.
        retries: How often its writer lost to another one.
        author: Who made it.
        date: When, in UTC.
        message: Why.
        meta: Anything that its author keeps with it.
    """

    id: str
    parent: str
    retries: int
    author: str
    date: datetime
    message: str
    meta: Value = NULL_VALUE

    @classmethod
    def from_value(cls, value: Value) -> Commit:
        """Return the commit of a record of metadata. Raises InvalidZng."""
        record = Record(value)
        return cls(
            id=record.ksuid("id"),
            parent=record.ksuid("parent"),
            retries=record.integer("retries"),
            author=record.text("author"),
            date=record.time("date"),
            message=record.text("message"),
            meta=record.field("meta"),
        )

    def to_value(self) -> Value:
        """Return it as a record of metadata."""
        return named_record(
            "commits.Commit",
            {
                "id": id_value(self.id),
                "parent": id_value(self.parent),
                "retries": Value.of(UINT8, self.retries),
                "author": Value.of(STRING, self.author),
                "date": Value.of(TIME, nanoseconds_of(self.date)),
                "message": Value.of(STRING, self.message),
                "meta": self.meta,
            },
        )
