"""The read set of a commit in a lake: what the operation read, recorded in the commitInfo.

The log does not show, for example, that a full overwrite read the table. The protocol's conflict rules need this when a
publish or a merge applies the commit to another state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.delta.conflict import Reads
from lake_core.expression import InvalidExpression, Predicate, parse_predicate, predicate_sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lake_core.delta.action import Metadata

READS_FIELD = "lakeReads"
"""The field of commitInfo: predicates in Spark SQL; empty if nothing was read, `["*"]` for the whole table."""

_ALL = "*"
_MOST = 64
"""The most predicates that a read set lists. More are recorded as the whole table."""


def read_set_texts(reads: Iterable[Reads | Predicate]) -> list[str]:
    """Return reads as texts for commitInfo."""
    texts: list[str] = []
    for read in reads:
        if read is Reads.NOTHING:
            continue
        text = None if isinstance(read, Reads) else predicate_sql(read)
        if text is None:
            return [_ALL]
        if text not in texts:
            texts.append(text)
    return texts if len(texts) <= _MOST else [_ALL]


def read_set_of(info: Mapping[str, Any], metadata: Metadata) -> Sequence[Reads | Predicate]:
    """Return the reads in a commitInfo, or if it does not record them, the reads that are safe to assume."""
    texts = info.get(READS_FIELD)
    if not isinstance(texts, list):
        return [] if info.get("isBlindAppend") is True else [Reads.WHOLE_TABLE]
    reads: list[Reads | Predicate] = []
    for text in texts:
        try:
            reads.append(Reads.WHOLE_TABLE if text == _ALL else parse_predicate(text, metadata.arrow_schema))
        except InvalidExpression:
            return [Reads.WHOLE_TABLE]  # about columns that were renamed or dropped since
    return reads
