"""Commits: the author of a change to a pool, its time and its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lake_core.pool.ksuid import KSUID, NIL
from lake_core.pool.marked_write import MarkedWrites, marked_from, marked_texts
from lake_core.pool.marker import MARKERS, Markers, markers_from, markers_value
from lake_core.pool.metadata import Record, id_value, named_record, nanoseconds_of
from lake_core.pool.types import BOOL, INT64, STRING, TIME, UINT8, ArrayType, Field, RecordType, Type, under
from lake_core.pool.value import NULL_VALUE, Value

if TYPE_CHECKING:
    from datetime import datetime

_MAX_RETRIES: Final = 255


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit.

    Attributes:
        id: Its id, and the name of its file.
        parent: The id of the commit before it; `NIL` for the first one.
        retries: How many times its writer tried again because another writer came first.
        author: Who made it.
        date: When, in UTC.
        message: Why.
        meta: Any value that its author added.
        markers: The markers that counted when it was made; None for a commit of another client, which carries none.
        merged: The tip of the branch that it merged; `NIL` for any other commit, and for those of other clients.
        absorbed: Data objects that several commits added and deleted before they became this one.
        reads: The records that it depended on; see `read_set`. None for a commit of another client or an older version.
        carries: Whether its data objects hold only records that were there before.
        writes: How many writes became this commit; None if that is unknown.
        marked: The writes with a marker that became this commit, if it is several writes.

    The format has a single field for such data. It stores `meta` together with the markers and the merged tip.
    """

    id: str
    parent: str
    retries: int
    author: str
    date: datetime
    message: str
    meta: Value = NULL_VALUE
    markers: Markers | None = None
    merged: str = NIL
    absorbed: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None
    carries: bool = False
    writes: int | None = None
    marked: MarkedWrites = field(default_factory=dict)

    @classmethod
    def from_value(cls, value: Value) -> Commit:
        """Return the commit of a record of metadata. Raises InvalidZng."""
        record = Record(value)
        parts = _parts(record.field("meta"))
        return cls(
            id=record.ksuid("id"),
            parent=record.ksuid("parent"),
            retries=record.integer("retries"),
            author=record.text("author"),
            date=record.time("date"),
            message=record.text("message"),
            **parts,
        )

    def to_value(self) -> Value:
        """Return it as a record of metadata."""
        return named_record(
            "commits.Commit",
            {
                "id": id_value(self.id),
                "parent": id_value(self.parent),
                "retries": Value.of(UINT8, min(self.retries, _MAX_RETRIES)),
                "author": Value.of(STRING, self.author),
                "date": Value.of(TIME, nanoseconds_of(self.date)),
                "message": Value.of(STRING, self.message),
                "meta": self._meta(),
            },
        )

    def _meta(self) -> Value:
        if self.markers is None:
            return self.meta
        fields = {_TXN: markers_value(self.markers), _MERGED: id_value(self.merged), _META: self.meta}
        if self.absorbed:
            fields[_ABSORBED] = Value.of(_TEXTS, list(self.absorbed))
        if self.reads is not None:
            fields[_READS] = Value.of(_TEXTS, list(self.reads))
        if self.carries:
            fields[_CARRIES] = Value.of(BOOL, True)
        if self.writes is not None:
            fields[_WRITES] = Value.of(INT64, self.writes)
        if self.marked:
            fields[_MARKED] = Value.of(_TEXTS, marked_texts(self.marked))
        return named_record("", fields)


_TXN: Final = "txn"
_MERGED: Final = "merged"
_META: Final = "meta"
_ABSORBED: Final = "absorbed"
_READS: Final = "reads"
_CARRIES: Final = "carries"
_WRITES: Final = "writes"
_MARKED: Final = "marked"
_TEXTS: Final = ArrayType(STRING)


def _parts(meta: Value) -> dict[str, Any]:
    """Return what a commit stores as its meta, by the names of its attributes. Raises InvalidZng."""
    record = under(meta.type)
    if (
        not isinstance(record, RecordType)
        or record.fields[:2] != (Field(_TXN, MARKERS), Field(_MERGED, KSUID))
        or meta.body is None
    ):
        return {"meta": meta}
    fields = Record(meta)

    def part(name: str, type: Type) -> Any:
        return fields.field(name).decode() if Field(name, type) in record.fields else None

    reads = part(_READS, _TEXTS)
    return {
        "meta": fields.field(_META),
        "markers": markers_from(fields.field(_TXN)),
        "merged": fields.ksuid(_MERGED),
        "absorbed": tuple(part(_ABSORBED, _TEXTS) or ()),
        "reads": None if reads is None else tuple(reads),
        "carries": bool(part(_CARRIES, BOOL)),
        "writes": part(_WRITES, INT64),
        "marked": marked_from(part(_MARKED, _TEXTS) or ()),
    }
