"""Conflicts by rows, where several commits changed the deletion vector of one file.

A deletion vector is a set of rows. Changes of different rows do not contradict one another, unless an operation read a
row that the other changed. An operation has read the rows for which its predicate is true. Whichever is committed last
names the vector of the other, and deletes the rows of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.action_fields import ADD_FIELDS, with_fields
from lake_core.delta.conflict import Footprint, Isolation, Reads
from lake_core.delta.deletion_vector_writer import with_vectors, write_vectors
from lake_core.delta.errors import ConcurrentDeleteDelete, ConcurrentDeleteRead, DataFileMissing, MalformedAction
from lake_core.delta.numpy_arrays import mask, numbers
from lake_core.delta.path import same_paths
from lake_core.delta.scan import Scan, deleted_of_files, open_data_files
from lake_core.delta.skipping import num_records
from lake_core.expression import EvaluationFailed, Predicate, columns
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.delta.commit_file import CommitRun
    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_MOST_BYTES = 64 << 20
"""The most bytes of added files that are read to find out whether they hold a row that an operation read."""


@dataclass(frozen=True, slots=True)
class VectorChanges:
    """The files that two states of a table have with different deletion vectors."""

    before: pa.Table
    """Their actions in one state."""
    after: pa.Table
    """Their actions in the other, in the same order."""

    @classmethod
    def of(cls, removes: pa.Table, adds: pa.Table) -> VectorChanges:
        """Return those among the files that a change removes and adds."""
        if not (len(removes) and len(adds)):
            return cls(removes.slice(0, 0), adds.slice(0, 0))
        place = pc.index_in(same_paths(removes["path"]), value_set=same_paths(adds["path"]))
        return cls(removes.filter(place.is_valid()), adds.take(place.drop_null()))

    def __len__(self) -> int:
        return len(self.before)

    def have(self, files: pa.Table) -> pa.ChunkedArray:
        """Return for each of some files whether it is one of these."""
        return pc.is_in(same_paths(files["path"]), value_set=same_paths(self.before["path"]))

    def without(self, files: pa.Table) -> pa.Table:
        """Return the other files."""
        return files.filter(pc.invert(self.have(files))) if len(self) and len(files) else files

    def rows(self, roots: Sequence[ObjectStore]) -> dict[str, npt.NDArray[np.int64]]:
        """Return the rows of each file that are deleted in one of the two states, by its path."""
        sides = [deleted_of_files(side, roots) or [None] * len(side) for side in (self.before, self.after)]
        paths = same_paths(self.before["path"]).to_pylist()
        return {
            path: np.setxor1d(_rows(old), _rows(new), assume_unique=True)
            for path, old, new in zip(paths, *sides, strict=True)
        }


def _rows(gone: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    return np.empty(0, np.int64) if gone is None else gone


def without_changes(run: CommitRun, theirs: VectorChanges) -> CommitRun:
    """Return commits without their actions on files of which only the deletion vector changed in the end."""
    return replace(run, adds=theirs.without(run.adds), removes=theirs.without(run.removes))


def check_rows(footprint: Footprint, ours: VectorChanges, theirs: VectorChanges, base: Snapshot, version: int) -> None:
    """Check an operation against the rows that others deleted, or brought back, in files that the table keeps.

    Args:
        footprint: What the operation read and removes.
        ours: The files whose deletion vectors the operation changes.
        theirs: The files whose deletion vectors others changed since.
        base: The state that the operation was planned on.
        version: The version of the others, for errors.

    Raises:
        ConcurrentDeleteDelete: Both change a row.
        ConcurrentDeleteRead: The operation read a row that the others changed.
    """
    if not len(theirs):
        return
    changed = theirs.rows(base.roots)
    own = ours.rows(base.roots)
    removed = footprint.removed
    for path in [] if removed is None else same_paths(removed["path"]).to_pylist():
        rows = changed.get(path)
        if rows is None:
            continue
        if path not in own:
            # It names the file by the vector that it had, so it cannot remove the file as it is.
            raise ConcurrentDeleteDelete(
                f"version {version} changed the deletion vector of a file that this operation removes ({path})",
                version=version,
            )
        both = len(np.intersect1d(rows, own[path], assume_unique=True))
        if both:
            raise ConcurrentDeleteDelete(
                f"version {version} changed {count_of(both, 'row')} that this operation changes too ({path})",
                version=version,
            )
    if footprint.reads is Reads.NOTHING or footprint.isolation is Isolation.SNAPSHOT:
        return
    read = count_of(sum(map(len, changed.values())), "row")
    if isinstance(footprint.reads, Reads) or has_match(
        base, theirs.before, footprint.reads, only=list(changed.values())
    ):
        raise ConcurrentDeleteRead(
            f"version {version} changed some of {read} that this operation read ({theirs.before['path'][0]})",
            version=version,
        )


def holding(snapshot: Snapshot) -> Callable[[pa.Table, Predicate], pa.Table]:
    """Return a function that returns those of some added files that hold a row for which a predicate is true.

    Files that are too large to look into, or gone, count as if they did.
    """

    def those(files: pa.Table, predicate: Predicate) -> pa.Table:
        if not len(files) or (pc.sum(files["size"]).as_py() or 0) > _MOST_BYTES:
            return files
        return files.filter(
            mask(np.array([has_match(snapshot, files.slice(n, 1), predicate) for n in range(len(files))]))
        )

    return those


def has_match(
    snapshot: Snapshot,
    files: pa.Table,
    predicate: Predicate,
    only: Sequence[npt.NDArray[np.int64]] | None = None,
) -> bool:
    """Return whether a predicate is true for a row of these files. If that cannot be told, it may be.

    `only`: the rows of each to look at, deleted ones too; by default all that are not deleted.
    """
    whole = snapshot.metadata.arrow_schema
    named = {column.path[0] for column in columns(predicate)}
    if not named <= set(whole.names):
        return True  # about a column that the operation adds
    schema = pa.schema([child for child in whole if child.name in named])
    opened = open_data_files(Scan(snapshot, schema, predicate, files, schema), predicate=predicate)
    if only is not None:
        opened = replace(opened, deleted=(), only=list(only))
    try:
        return any(part.num_rows for index in range(len(opened.keys)) for part in opened.open(index).parts())
    except (DataFileMissing, EvaluationFailed):
        return True


def combined(
    removes: pa.Table, adds: pa.Table, theirs: VectorChanges, base: Snapshot, data_root: ObjectStore, now: int
) -> tuple[pa.Table, pa.Table]:
    """Return the file actions of a change on top of others' changes of deletion vectors, which it does not contradict.

    Args:
        removes: The files that the change removes.
        adds: Those that it adds; among them the removed ones that get another deletion vector.
        theirs: The files whose deletion vectors others changed since.
        base: The state that the change was planned on.
        data_root: The store that new vectors are written to.
        now: Milliseconds since the epoch.
    """
    ours = VectorChanges.of(removes, adds)
    in_both = ours.before.filter(theirs.have(ours.before)) if len(ours) and len(theirs) else ours.before.slice(0, 0)
    if not len(in_both):
        return removes, adds
    place = pc.index_in(same_paths(in_both["path"]), value_set=same_paths(theirs.before["path"]))
    current = theirs.after.take(place)
    own = ours.rows(base.roots)
    gone = deleted_of_files(current, base.roots) or [None] * len(current)
    paths = same_paths(current["path"]).to_pylist()
    together = [
        np.setxor1d(_rows(there), own[path], assume_unique=True) for path, there in zip(paths, gone, strict=True)
    ]
    totals = num_records(current["stats"])
    if totals.null_count:
        raise MalformedAction(
            f"a file with a deletion vector lacks its number of rows ({paths[0]}). Restore the table's log"
        )
    stays = np.array([len(rows) for rows in together]) < numbers(totals)
    kept = current.filter(mask(stays))
    vectors = write_vectors(data_root, [together[number] for number in np.flatnonzero(stays).tolist()], now)
    overtaken = VectorChanges(in_both, in_both)
    return (
        pa.concat_tables([with_fields(overtaken.without(removes), ADD_FIELDS), current]),
        pa.concat_tables(
            [overtaken.without(adds), with_vectors(kept, vectors, num_records(kept["stats"]).to_pylist())]
        ),
    )
