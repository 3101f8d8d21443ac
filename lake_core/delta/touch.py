"""Whether a change of a table touched what another one read.

A change touches the rows of the files that it added and removed, and those that it deleted in deletion vectors. One
that only rearranges rows touches nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.commit_range import CommitRange
from lake_core.delta.conflict import Reads
from lake_core.delta.difference import difference
from lake_core.delta.numpy_arrays import mask
from lake_core.delta.row_conflict import VectorChanges, has_match, holding
from lake_core.delta.skipping import skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate

_ADD = [name for name, _ in ADD_FIELDS]


def reads_between(before: Snapshot | None, after: Snapshot | None) -> Sequence[Reads | Predicate]:
    """Return what the commits between two states read. A drop reads the whole table."""
    if after is None:
        return [] if before is None else [Reads.WHOLE_TABLE]
    return CommitRange.between(before, after).reads((before or after).metadata)


def touches(
    reads: Sequence[Reads | Predicate], before: Snapshot | None, after: Snapshot | None, *, deleted: bool = False
) -> bool:
    """Return whether the change from one state to another touched rows that may be among what was read.

    With `deleted`, only the rows count that it took out.
    """
    either = after or before
    if either is None or (before is not None and after is not None and rearranges(before, after)):
        return False
    if before is None or after is None:
        return not (deleted and before is None) and any(_has_read(read, either.files(_ADD), either) for read in reads)
    changed = difference(before, after)
    marked = VectorChanges.of(changed.removes, changed.adds)
    adds, removes = marked.without(changed.adds), marked.without(changed.removes)
    rows = list(marked.rows(before.roots).values()) if len(marked) else []
    return any(
        (not deleted and _has_read(read, adds, after))
        or _has_read(read, removes, before)
        or (len(marked) and _has_read_rows(read, marked, rows, before))
        for read in reads
    )


def only_deletes(before: Snapshot | None, after: Snapshot | None) -> bool:
    """Return whether each of the commits between two states is a DELETE."""
    return before is not None and after is not None and CommitRange.between(before, after).operation() == "DELETE"


def rearranges(before: Snapshot, after: Snapshot) -> bool:
    """Return whether the commits between two states only rearrange rows."""
    commits = CommitRange.between(before, after)
    return commits.continues and commits.only_rearranges()


def _has_read_rows(
    read: Reads | Predicate, marked: VectorChanges, rows: Sequence[npt.NDArray[np.int64]], before: Snapshot
) -> bool:
    if isinstance(read, Reads):
        return read is Reads.WHOLE_TABLE
    return has_match(before, marked.before, read, rows)


def _has_read(read: Reads | Predicate, files: pa.Table, snapshot: Snapshot) -> bool:
    if isinstance(read, Reads) or not len(files):
        return bool(len(files)) and read is Reads.WHOLE_TABLE
    return bool(len(holding(snapshot)(files.filter(mask(skip(files, read, snapshot.metadata))), read)))
