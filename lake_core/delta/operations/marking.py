"""Marking rows as deleted in the deletion vectors of their files, instead of writing the files anew.

Protocol section: Deletion Vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.deletion_vector_writer import with_vectors, write_vectors
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.features import compat_version, is_active, supported_features
from lake_core.delta.file_key import file_key
from lake_core.delta.iceberg_compat import WITH_ROW_IDS
from lake_core.delta.numpy_arrays import empty_table, mask
from lake_core.delta.scan import deleted_of_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.snapshot import Snapshot

_ADD = [name for name, _ in ADD_FIELDS]
_FEATURE = "deletionVectors"


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """The rows of one data file that an operation deletes."""

    rows: npt.NDArray[np.int64]
    """Their numbers in the file, ascending. None of them was deleted before."""
    total: int
    """The number of rows in the file, deleted ones included."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The file actions by which an operation takes rows out of files."""

    removes: pa.Table
    restored: pa.Table | None = None
    """The same files with their new deletion vectors, where they keep rows; None where files are written anew."""
    vectors_before: int = 0
    """The number of those that had a deletion vector before."""

    @property
    def metrics(self) -> dict[str, int]:
        """Return what commitInfo says of deletion vectors, as delta-spark counts them."""
        if self.restored is None:
            return {}
        return {
            "numDeletionVectorsAdded": len(self.restored),
            "numDeletionVectorsUpdated": self.vectors_before,
            "numDeletionVectorsRemoved": _count_vectors(self.removes),
        }

    @property
    def gone(self) -> pa.Table:
        """Return the actions of the files that leave the table."""
        if self.restored is None or not len(self.restored):
            return self.removes
        return self.removes.filter(pc.invert(pc.is_in(self.removes["path"], value_set=self.restored["path"])))


def marks_rows(snapshot: Snapshot, asked: bool | None) -> bool:
    """Return whether an operation marks rows in deletion vectors.

    Args:
        snapshot: The table.
        asked: What the caller wants; None to do as the table's property `delta.enableDeletionVectors` says.

    Raises:
        InvalidProperty: The caller wants vectors, which the table's protocol does not allow.
    """
    if asked is None:
        return is_active(_FEATURE, snapshot.protocol, snapshot.metadata)
    if asked and (compat_version(snapshot.protocol, snapshot.metadata) or WITH_ROW_IDS) < WITH_ROW_IDS:
        raise InvalidProperty(
            f"the table at {snapshot.store.url()} is kept readable for Iceberg, which does not go with deletion vectors"
        )
    if asked and _FEATURE not in supported_features(snapshot.protocol):
        raise InvalidProperty(
            f"the table at {snapshot.store.url()} does not allow deletion vectors: set its property "
            "delta.enableDeletionVectors to true first, after which only clients that know them can read it"
        )
    return asked


def mark(snapshot: Snapshot, files: pa.Table, marked: Sequence[MarkedRows], now: int) -> Replaced:
    """Write the deletion vectors of files of which more rows are deleted. A file without any row left is removed.

    Args:
        snapshot: The table.
        files: The file actions: path, deletionVector if any.
        marked: The rows of each.
        now: Milliseconds since the epoch.

    Raises what reading and writing vectors raises.
    """
    before = deleted_of_files(files, snapshot.roots) or [None] * len(files)
    after = [
        part.rows if gone is None else np.union1d(gone, part.rows) for gone, part in zip(before, marked, strict=True)
    ]
    stays = np.array([len(rows) < part.total for rows, part in zip(after, marked, strict=True)], dtype=np.bool_)
    kept = files.filter(mask(stays))
    if not len(kept):
        return Replaced(files, empty_table(pa.schema(list(ADD_FIELDS))))
    actions = snapshot.files_named(_ADD, file_key(kept))
    actions = actions.take(pc.index_in(file_key(kept), value_set=file_key(actions)))
    chosen = np.flatnonzero(stays).tolist()
    vectors = write_vectors(snapshot.data_root, [after[number] for number in chosen], now)
    restored = with_vectors(actions, vectors, [marked[number].total for number in chosen])
    return Replaced(files, restored, _count_vectors(kept))


def _count_vectors(files: pa.Table) -> int:
    return len(files) - files["deletionVector"].null_count if "deletionVector" in files.column_names else 0
