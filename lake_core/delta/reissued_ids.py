"""Row ids of files that a publish or a merge brings to another state of their table.

Ids and versions that a session or a branch gave since the two went apart may be others' there, so these rows get them
anew from the commit that brings them. Rows that a file copied with such an id are written again, without it.
Protocol section: Row Tracking.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, scalar
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.data_file import DataFileWriter
from lake_core.delta.features import holds_partitions
from lake_core.delta.numpy_arrays import mask, numbers
from lake_core.delta.path import same_paths
from lake_core.delta.row_tracking import (
    ROW_COMMIT_VERSION,
    ROW_ID,
    gives_ids,
    high_water_mark,
    materialized_columns,
)
from lake_core.delta.scan import Scan, open_data_files, with_tracked_rows
from lake_core.delta.skipping import num_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.delta.data_file import AddFile
    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_IDS = ["baseRowId", "defaultRowCommitVersion"]
_HIGHEST = 2**63 - 1


def reissued(
    adds: pa.Table,
    removes: pa.Table,
    before: Snapshot | None,
    after: Snapshot,
    head: Snapshot | None,
    *,
    commits: int,
    data_root: ObjectStore | None,
    now: int,
) -> pa.Table:
    """Return the files that a change adds with the ids that their rows get from the next commit on `head`.

    Files from before the two sides went apart keep theirs.

    Args:
        adds: The add actions, in the columns of `action_fields.ADD_FIELDS`.
        removes: The file actions that the change removes, in the same columns.
        before: The state from which both sides come, if the table existed then.
        after: The state that has the files.
        head: The state that they are added to; None if the table does not exist there.
        commits: How many commits have added them.
        data_root: The store that files are written to; None to write none.
        now: Milliseconds since the epoch.
    """
    target = after if head is None else head
    if not len(adds) or not gives_ids(target.protocol, target.metadata):
        return adds
    known = -1 if before is None else high_water_mark(before.domains)
    moved = head is not None and high_water_mark(head.domains) != known
    version = 0 if head is None else head.version + 1
    bases = pc.fill_null(adds["baseRowId"], scalar(_HIGHEST, pa.int64()))
    fresh = np.asarray(numbers(bases) > known)
    moves = [] if head is None else _moves(removes, head)
    new, old = adds.filter(mask(fresh)), adds.filter(mask(~fresh))
    if data_root is not None and (moved or moves or commits > 1 or after.version != version):
        given = _Given(known if moved else _HIGHEST, -1 if before is None else before.version, tuple(moves))
        new = _written_again(new, after, given, data_root, now)
    columns = {name: new[name] for name in new.column_names}
    columns["defaultRowCommitVersion"] = pa.repeat(scalar(version, pa.int64()), len(new))
    if moved:
        columns["baseRowId"] = pa.nulls(len(new), pa.int64())
    return pa.concat_tables([old, pa.table(columns, schema=old.schema)])


def with_ids_of(files: pa.Table, head: Snapshot) -> pa.Table:
    """Return files that the head has, too, with the ids that their rows have there."""
    if not len(files) or not gives_ids(head.protocol, head.metadata):
        return files
    here = head.files([*_IDS, *head.identity])
    here = here.take(pc.index_in(same_paths(files["path"]), value_set=same_paths(here["path"])))
    return pa.table({name: here[name] if name in _IDS else files[name] for name in files.column_names})


@dataclass(frozen=True, slots=True)
class _Move:
    """A file whose rows have other ids on the two sides."""

    start: int
    """The first id that its rows have where they were copied."""
    rows: int
    shift: int
    version: int
    """The version that added it there."""
    version_here: int


def _moves(removes: pa.Table, head: Snapshot) -> list[_Move]:
    """Return how the ids of removed files differ from those on the head."""
    if not len(removes):
        return []
    here = head.files([*_IDS, *head.identity])
    place = pc.index_in(same_paths(removes["path"]), value_set=same_paths(here["path"]))
    there, here = removes.filter(place.is_valid()), here.take(place.drop_null())
    rows = num_records(there["stats"]).to_pylist()
    pairs = zip(there.select(_IDS).to_pylist(), here.select(_IDS).to_pylist(), rows, strict=True)
    return [
        _Move(
            old["baseRowId"],
            count,
            new["baseRowId"] - old["baseRowId"],
            old["defaultRowCommitVersion"],
            new["defaultRowCommitVersion"],
        )
        for old, new, count in pairs
        if old != new and None not in (count, *old.values(), *new.values())
    ]


@dataclass(frozen=True, slots=True)
class _Given:
    """The ids and versions that rows may take with them."""

    highest_id: int
    highest_version: int
    moves: tuple[_Move, ...]

    def translated(self, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Return the ids and versions of rows on the other side, null where the commit is to give them."""
        ids, versions = (pc.cast(rows[name], pa.int64()).combine_chunks() for name in (ROW_ID, ROW_COMMIT_VERSION))
        new_ids = _up_to(ids, self.highest_id)
        new_versions = _up_to(versions, self.highest_version)
        for move in self.moves:
            first, last = scalar(move.start, pa.int64()), scalar(move.start + move.rows, pa.int64())
            own = pc.fill_null(pc.and_(pc.greater_equal(ids, first), pc.less(ids, last)), FALSE_VALUE)
            new_ids = pc.if_else(own, pc.add(ids, scalar(move.shift, pa.int64())), new_ids)
            # Rows that had come to the file, with ids of others, were changed by its commit as well.
            same = pc.fill_null(pc.equal(versions, scalar(move.version, pa.int64())), FALSE_VALUE)
            new_versions = pc.if_else(same, scalar(move.version_here, pa.int64()), new_versions)
        return new_ids, new_versions

    def changes(self, rows: pa.Table) -> bool:
        """Return whether rows have other ids or versions on the other side."""
        translated = self.translated(rows)
        return any(
            not rows[name].combine_chunks().equals(values)
            for name, values in zip((ROW_ID, ROW_COMMIT_VERSION), translated, strict=True)
        )

    def applied(self, rows: pa.Table) -> pa.Table:
        """Return rows with the ids and versions that they have on the other side."""
        for name, values in zip((ROW_ID, ROW_COMMIT_VERSION), self.translated(rows), strict=True):
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.schema.field(place), values)
        return rows


def _up_to(values: pa.Array, highest: int) -> pa.Array:
    return pc.if_else(pc.greater(values, scalar(highest, pa.int64())), scalar(None, pa.int64()), values)


def _written_again(files: pa.Table, after: Snapshot, given: _Given, data_root: ObjectStore, now: int) -> pa.Table:
    """Return the files, those written anew whose rows may not keep the ids that they have in them."""
    if not len(files) or not materialized_columns(after.protocol, after.metadata):
        return files
    schema = after.metadata.arrow_schema
    # Without defaults, so that only the ids are read that the files themselves have.
    opened = replace(open_data_files(with_tracked_rows(Scan(after, schema, None, files, schema))), row_ids=None)
    ids = opened.only_columns([ROW_ID, ROW_COMMIT_VERSION])
    late = [any(given.changes(rows) for rows in ids.batches(index)) for index in range(len(files))]
    if not any(late):
        return files
    with_partitions = holds_partitions(after.protocol, after.metadata)
    writer = DataFileWriter(data_root, after.metadata, now, with_partitions=with_partitions)
    written: list[AddFile] = []
    for index in np.flatnonzero(late).tolist():
        values = dict(files["partitionValues"][index].as_py())
        written += writer.write_one(map(given.applied, opened.batches(index)), values)
    return pa.concat_tables([files.filter(mask(~np.array(late))), _actions(written)])


def _actions(adds: list[AddFile]) -> pa.Table:
    """Return written files as add actions."""

    def values() -> Iterator[dict[str, object]]:
        for add in adds:
            yield {**add.to_json(), "partitionValues": list(add.partition_values.items())}

    return pa.Table.from_pylist(list(values()), schema=pa.schema(list(ADD_FIELDS)))
