"""Commit records (lakeFS's `CommitData`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lake_core.graveler import wire
from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.identity import commit_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT32 = 1 << 31


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit. `Commit.create` names it, and `is_named_right` checks the name of a commit from any source."""

    id: str
    committer: str
    message: str
    creation_date: datetime
    """With a zone. Only whole seconds are part of the id."""
    metarange_id: str
    """The id of the tree, or "" for the empty tree."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    parents: Sequence[str] = ()
    version: int = 1
    """1: the first parent is the branch's earlier head. Not part of the id."""
    generation: int = 1
    """1 + the highest of the parents. Not part of the id."""

    @classmethod
    def create(
        cls,
        committer: str,
        message: str,
        creation_date: datetime,
        metarange_id: str,
        *,
        metadata: Mapping[str, str] | None = None,
        parents: Sequence[Commit] = (),
    ) -> Commit:
        """Return a commit with its id and generation. Raises ValueError for a time without a zone."""
        names = tuple(parent.id for parent in parents)
        generation = 1 + max((parent.generation for parent in parents), default=0)
        name = commit_id(committer, message, metarange_id, creation_date, metadata or {}, names)
        return cls(name, committer, message, creation_date, metarange_id, dict(metadata or {}), names, 1, generation)

    @property
    def is_named_right(self) -> bool:
        """Return whether the id matches the contents."""
        return self.id == commit_id(
            self.committer, self.message, self.metarange_id, self.creation_date, self.metadata, self.parents
        )

    def encode(self) -> bytes:
        """Encode the message. Raises ValueError for a time without a zone."""
        if self.creation_date.tzinfo is None:
            raise ValueError("a commit's creation date needs a time zone")
        microseconds = (self.creation_date - _EPOCH) // timedelta(microseconds=1)
        return b"".join(
            (
                wire.put_text(1, self.id),
                wire.put_text(2, self.committer),
                wire.put_text(3, self.message),
                wire.put_timestamp(4, microseconds * 1000),
                wire.put_text(5, self.metarange_id),
                wire.put_text_map(6, self.metadata),
                *(wire.put_octets_always(7, parent.encode()) for parent in self.parents),
                wire.put_number(8, self.version),
                wire.put_number(9, self.generation),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Commit:
        """Decode a commit. Its id is not checked. Raises CorruptTable."""
        fields = wire.read_message(data)
        version, generation = wire.number(fields, 8), wire.number(fields, 9)
        if not (-_INT32 <= version < _INT32 and -_INT32 <= generation < _INT32):
            raise CorruptTable(f"version {version} or generation {generation} of a commit is out of range")
        return cls(
            id=wire.text(fields, 1),
            committer=wire.text(fields, 2),
            message=wire.text(fields, 3),
            creation_date=_EPOCH + timedelta(microseconds=wire.timestamp(fields, 4) // 1000),
            metarange_id=wire.text(fields, 5),
            metadata=wire.text_map(fields, 6),
            parents=tuple(wire.texts(fields, 7)),
            version=version,
            generation=generation,
        )
