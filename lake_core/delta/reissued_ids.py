"""Row ids of files that a publish or a merge brings to another state of their table.

The two sides give ids and versions of their own, which say nothing on the other side. So new rows get theirs from the
commit that brings them, and rows that were copied from a file which the other side has, too, keep those that they have
there. A file whose rows took other ones with them is written again.
Protocol section: Row Tracking.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.commit_range import CommitRange, shared_version
from lake_core.delta.copied_file import Copies, tag_of
from lake_core.delta.data_file import DataFileWriter
from lake_core.delta.errors import VersionNotFound
from lake_core.delta.file_layout import file_layout
from lake_core.delta.numpy_arrays import integers, mask, numbers
from lake_core.delta.path import same_paths
from lake_core.delta.row_tracking import (
    ROW_COMMIT_VERSION,
    ROW_ID,
    ROW_ID_FIELDS,
    gives_ids,
    high_water_mark,
    materialized_columns,
)
from lake_core.delta.scan import Scan, open_data_files, with_tracked_rows
from lake_core.delta.snapshot import load_snapshot
from lake_core.errors import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.delta.data_file import AddFile
    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_FILE = ["path", "size"]
_IDS = ["baseRowId", "defaultRowCommitVersion"]
_GIVER = [*_FILE, "partitionValues", *_IDS]
_UNKNOWN = -1
"""An id or a version that a row gets from the commit."""


def reissued(
    adds: pa.Table,
    removes: pa.Table,
    before: Snapshot | None,
    after: Snapshot,
    head: Snapshot | None,
    *,
    continues: bool,
    data_root: ObjectStore | None,
    now: int,
) -> pa.Table:
    """Return the files that a change adds with the ids that their rows get from the next commit on `head`.

    Args:
        adds: The add actions, in the columns of `action_fields.ADD_FIELDS`. The head has none of these files.
        removes: The file actions that the change removes.
        before: The state from which both sides come, if the table existed then.
        after: The state that has the files.
        head: The state that they are added to; None if the table does not exist there.
        continues: Whether `after` is made on top of the head itself, so that ids on both sides are the same.
        data_root: The store that files are written to; None to write none.
        now: Milliseconds since the epoch.
    """
    sides = [after] if head is None else [head, after]
    if not len(adds) or not any(gives_ids(side.protocol, side.metadata) for side in sides):
        return adds
    version = 0 if head is None else head.version + 1
    if continues or head is None:
        known, newest = (-1, -1) if before is None else (high_water_mark(before.domains), before.version)
        bases = pc.fill_null(adds["baseRowId"], scalar(known + 1, pa.int64()))
        fresh = mask(np.asarray(numbers(bases) > known))
        new = adds.filter(fresh)
        if after.version != version:
            # Several commits become one, so rows may have taken versions with them that the table will not have.
            new = _written_again(new, after, _InOrder(newest, version), data_root, now)
        return pa.concat_tables([adds.filter(pc.invert(fresh)), _added_in(new, version, keep_ids=True)])
    earlier = _ids_of(adds, head.tombstones())
    returns = earlier["baseRowId"].is_valid()
    old = _with(adds.filter(returns), earlier.filter(returns), _IDS)
    new = _written_again(adds.filter(pc.invert(returns)), after, _Copied(removes, after, head), data_root, now)
    return pa.concat_tables([old, _added_in(new, version, keep_ids=False)])


def with_ids_of(files: pa.Table, head: Snapshot) -> pa.Table:
    """Return files that the head has, too, with the ids that their rows have there."""
    if not len(files):
        return files
    if not gives_ids(head.protocol, head.metadata):
        return _with(files, pa.table({name: pa.nulls(len(files), pa.int64()) for name in _IDS}), _IDS)
    return _with(files, _ids_of(files, head.files([*_IDS, *head.identity])), _IDS)


def _ids_of(files: pa.Table, known: pa.Table) -> pa.Table:
    """Return the ids that a state has for files, null for those that it does not know."""
    return known.select(_IDS).take(pc.index_in(same_paths(files["path"]), value_set=same_paths(known["path"])))


def _with(files: pa.Table, others: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return file actions with some fields of others."""
    columns = {name: others[name] if name in names else files[name] for name in files.column_names}
    return pa.table(columns, files.schema)


def _added_in(files: pa.Table, version: int, *, keep_ids: bool) -> pa.Table:
    """Return add actions as a version has them; without `keep_ids`, it gives their rows ids."""
    versions = pa.chunked_array([pa.repeat(scalar(version, pa.int64()), len(files))])
    bases = files["baseRowId"] if keep_ids else pa.chunked_array([pa.nulls(len(files), pa.int64())])
    return _with(files, pa.table(dict(zip(_IDS, (bases, versions), strict=True))), _IDS)


class _Translation(Protocol):
    """The ids and versions on the other side of rows that took these with them."""

    def __call__(
        self, ids: npt.NDArray[np.int64], versions: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return them; `_UNKNOWN` for those that the commit gives."""


@dataclass(frozen=True, slots=True)
class _InOrder:
    """Both sides have the same ids. The versions of several commits that become one are that one's."""

    newest: int
    """The last version that both sides have."""
    version: int

    def __call__(
        self, ids: npt.NDArray[np.int64], versions: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return ids, np.where((versions > self.newest) & (versions != self.version), _UNKNOWN, versions)


class _Copied:
    """Rows keep the ids and versions that they have on both sides. All others get theirs anew.

    Those are the ones that were given before the two logs went apart, those of rows in removed files that both sides
    have, and those that came from another file which both sides know.
    """

    def __init__(self, removes: pa.Table, after: Snapshot, head: Snapshot) -> None:
        self._removes, self._after, self._head = removes, after, head
        self._rows: tuple[npt.NDArray[np.int64], ...] | None = None
        self._fork = self._mark = _UNKNOWN
        self._row_counts: dict[int, int] = {}

    def __call__(
        self, ids: npt.NDArray[np.int64], versions: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if self._rows is None:  # most changes bring no row that took its id with it, and need none of this
            self._fork = shared_version(self._head, self._after)
            self._mark = _mark_of(self._head, self._fork)
            self._rows = self._shared()
        there, there_versions, here, here_versions = self._rows
        new_ids = np.where(ids <= self._mark, ids, _UNKNOWN)
        new_versions = np.where(versions <= self._fork, versions, _UNKNOWN)
        if len(there):
            place = np.minimum(np.searchsorted(there, ids), len(there) - 1)
            found = there[place] == ids
            same = found & (there_versions[place] == versions)
            new_ids = np.where(found, here[place], new_ids)
            new_versions = np.where(same, here_versions[place], new_versions)
        lacking = (ids >= 0) & (new_ids < 0)
        if lacking.any():
            new_ids[lacking], giver_versions = self._of_givers(ids[lacking], versions[lacking])
            new_versions[lacking] = np.where(giver_versions < 0, new_versions[lacking], giver_versions)
        return new_ids, new_versions

    def _of_givers(
        self, ids: npt.NDArray[np.int64], versions: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ids on the head of rows by the files that gave them theirs on the side of the change."""
        files, (bases, base_versions, here_bases, here_versions) = self._givers
        if not len(files):
            return np.full_like(ids, _UNKNOWN), np.full_like(versions, _UNKNOWN)
        place = np.searchsorted(bases, ids, side="right") - 1
        offsets = ids - bases[np.maximum(place, 0)]
        counts = np.zeros(len(bases), np.int64)
        for number in np.unique(place[place >= 0]).tolist():
            if number not in self._row_counts:
                self._row_counts[number] = _row_count(self._head, files.slice(number, 1))
            counts[number] = self._row_counts[number]
        is_given = (place >= 0) & (offsets < counts[np.maximum(place, 0)])
        place = np.where(is_given, place, 0)
        same = is_given & (base_versions[place] == versions)
        return (
            np.where(is_given, here_bases[place] + offsets, _UNKNOWN),
            np.where(same, here_versions[place], _UNKNOWN),
        )

    @cached_property
    def _givers(self) -> tuple[pa.Table, list[npt.NDArray[np.int64]]]:
        """Return the files that both sides know, and their ids and versions on the side of the change and on the head.

        By the id on the side of the change, ascending.
        """
        there, here, copies = self._known
        other = here.take(pc.index_in(copies.origins(there["path"]), value_set=copies.origins(here["path"])))
        both = pc.and_(there["baseRowId"].is_valid(), other["baseRowId"].is_valid())
        there, other = there.filter(both), other.filter(both)
        order = pc.sort_indices(there["baseRowId"])
        there, other = there.take(order), other.take(order)
        return there, [numbers(side[name]) for side in (there, other) for name in _IDS]

    @cached_property
    def _known(self) -> tuple[pa.Table, pa.Table, Copies]:
        """Return the files that the side of the change knows, live ones first, those of the head, and the copies."""
        sides = (self._head, self._after)
        live = [state.files([*_GIVER, "tags", *state.identity]) for state in sides]
        # Remove actions have no tags.
        earlier = CommitRange.between(self._head, self._after).copies()
        here, there = (
            pa.concat_tables([files.select(_GIVER), state.tombstones().select(_GIVER)])
            for files, state in zip(live, sides, strict=True)
        )
        return there, here, Copies.among(self._removes, *live, earlier.files)

    def _shared(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Return the ids and versions that the rows of removed files have on the side of the change, and on the head.

        By the id on the side of the change, ascending.
        """
        there, here, copies = self._known
        removed = copies.origins(self._removes["path"])
        pairs = [known.take(pc.index_in(removed, value_set=copies.origins(known["path"]))) for known in (there, here)]
        both = pc.and_(pairs[0]["baseRowId"].is_valid(), pairs[1]["baseRowId"].is_valid())
        # The vectors are those of the removed files. Files with the same rows have them in the same places.
        files = self._removes.filter(both)
        sides = [_row_ids(self._head, _with(files, known.filter(both), [*_FILE, *_IDS])) for known in pairs]
        rows = [(*old, *new) for old, new in zip(*sides, strict=True) if old is not None and new is not None]
        columns = [np.concatenate([np.empty(0, np.int64), *(each[number] for each in rows)]) for number in range(4)]
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)


def _mark_of(head: Snapshot, version: int) -> int:
    """Return the highest id that a version of a log had given; -1 if that is not known."""
    if version < 0:
        return -1
    if version == head.version:
        return high_water_mark(head.domains)
    try:
        return high_water_mark(load_snapshot(head.store, version).domains)
    except VersionNotFound:
        return -1


def _row_ids(snapshot: Snapshot, files: pa.Table) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None]:
    """Return the ids and versions of the rows of each file, in their order; None for a file that is gone.

    Rows of such a file are new rows to the other side.
    """
    schema = pa.schema(list(ROW_ID_FIELDS))
    opened = open_data_files(Scan(snapshot, schema, None, files, schema))
    ids_of_files: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None] = []
    for index in range(len(files)):
        try:
            rows = opened.read(index)
        except ObjectMissing:
            ids_of_files.append(None)
        else:
            ids_of_files.append((numbers(rows[ROW_ID]), numbers(rows[ROW_COMMIT_VERSION])))
    return ids_of_files


def _row_count(snapshot: Snapshot, file: pa.Table) -> int:
    """Return how many rows a file has, deleted ones included; 0 if it is gone, so that its rows get new ids."""
    nothing = pa.schema([])
    try:
        opened = open_data_files(Scan(snapshot, nothing, None, file, nothing)).open(0)
    except ObjectMissing:
        return 0
    count: int = opened.parquet.metadata.num_rows
    return count


def _written_again(
    files: pa.Table, after: Snapshot, translation: _Translation, data_root: ObjectStore | None, now: int
) -> pa.Table:
    """Return the files, those written anew whose rows have other ids on the other side than they took with them."""
    if data_root is None or not len(files) or not materialized_columns(after.protocol, after.metadata):
        return files
    schema = after.metadata.arrow_schema
    # Without defaults, so that only the ids are read that the files themselves have.
    opened = replace(open_data_files(with_tracked_rows(Scan(after, schema, None, files, schema))), row_ids=None)
    changes = np.array([_changes(opened, index, translation) for index in range(len(files))], np.bool_)
    if not changes.any():
        return files
    writer = DataFileWriter(data_root, after.metadata, now, layout=file_layout(after.protocol, after.metadata))
    written: list[AddFile] = []
    origins: list[str | None] = []
    first = Copies.among(files).origins(files["path"])
    for index in np.flatnonzero(changes).tolist():
        values = dict(files["partitionValues"][index].as_py())
        new = writer.write_one((_translated(rows, translation) for rows in opened.batches(index)), values)
        written += new
        # Rows that a vector deletes are not written again, so the others move up.
        moved = files["deletionVector"][index].is_valid
        origins += [None if moved else first[index].as_py()] * len(new)
    return pa.concat_tables([files.filter(mask(~changes)), _actions(written, origins)])


def _changes(files: DataFiles, index: int, translation: _Translation) -> bool:
    ids = files.only_columns([ROW_ID, ROW_COMMIT_VERSION])
    if not ids.stored_names(ids.open(index).parquet.schema_arrow):
        return False
    return any(not _translated(rows, translation).equals(rows) for rows in ids.batches(index))


def _translated(rows: pa.Table, translation: _Translation) -> pa.Table:
    """Return rows with the ids and versions that they take with them, null for those that the commit gives."""
    ids, versions = (
        numbers(pc.fill_null(rows[name], scalar(_UNKNOWN, pa.int64()))) for name in (ROW_ID, ROW_COMMIT_VERSION)
    )
    new_ids, new_versions = translation(ids, versions)
    # What a row did not take with it comes from its file.
    new_ids, new_versions = np.where(ids < 0, _UNKNOWN, new_ids), np.where(versions < 0, _UNKNOWN, new_versions)
    for name, values in ((ROW_ID, new_ids), (ROW_COMMIT_VERSION, new_versions)):
        place = rows.column_names.index(name)
        column = pc.if_else(mask(values >= 0), integers(values), scalar(None, pa.int64()))
        rows = rows.set_column(place, rows.schema.field(place), pa.chunked_array([column]))
    return rows


def _actions(adds: list[AddFile], origins: list[str | None]) -> pa.Table:
    """Return written files as add actions, tagged with the files whose rows they have in the same places."""

    def values() -> Iterator[dict[str, object]]:
        for add, origin in zip(adds, origins, strict=True):
            tags = None if origin is None else [tag_of(origin)]
            yield {**add.to_json(), "partitionValues": list(add.partition_values.items()), "tags": tags}

    return pa.Table.from_pylist(list(values()), schema=pa.schema(list(ADD_FIELDS)))
