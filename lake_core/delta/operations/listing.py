"""Listing of a table's folder by ranges of keys, and deletion by batches of keys. Each range or batch is a task."""

from __future__ import annotations

import hashlib
import itertools
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.file_name import is_hidden
from lake_core.delta.log_segment import LOG_FOLDER
from lake_core.delta.numpy_arrays import empty_table, mask
from lake_core.delta.path import partition_folder
from lake_core.errors import InvalidKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.runner import Runner
    from lake_core.store import ObjectMeta, ObjectStore

_LISTED = pa.schema([("key", pa.string()), ("size", pa.int64()), ("put", pa.int64())])
_KEYS_A_TASK = 1 << 16
_KEYS_AT_ONCE = 1 << 13
_DELETED_AT_ONCE = 1000
_BATCHES_AT_ONCE = 256


def list_unknown(
    store: ObjectStore, known: pa.ChunkedArray, live: pa.ChunkedArray, partition_columns: Sequence[str], run: Runner
) -> pa.Table:
    """List what may be data files, in a large table without those that are live.

    Args:
        store: At the table's root.
        known: The keys of the files that the log names: the bounds of the tasks' ranges are some of them.
        live: The keys of the files that are needed in any case. Most files of a large table are, so tasks leave them
            out, which saves memory.
        partition_columns: Folders of their values are never hidden, nor are those that the log names.
        run: Calls the tasks.

    Returns:
        Keys, sizes in bytes, and the store's times in milliseconds since the epoch.
    """
    starts = _starts(known)
    hashes = np.sort(_hashes(live)) if len(starts) > 1 else np.empty(0, np.uint64)
    folders = _partition_folders(known, partition_columns)
    parts = list(run(_ListTask(store, starts, hashes, folders), len(starts)))
    listed = pa.concat_tables([empty_table(_LISTED), *(part.files for part in parts)])
    # A folder with its own log is another table.
    for folder in {folder for part in parts for folder in part.tables}:
        listed = listed.filter(pc.invert(pc.starts_with(listed["key"], folder)))
    return listed


def delete_keys(store: ObjectStore, keys: pa.Array, run: Runner) -> None:
    """Delete objects, batch by batch."""
    for start in range(0, len(keys), _DELETED_AT_ONCE * _BATCHES_AT_ONCE):
        part = keys[start : start + _DELETED_AT_ONCE * _BATCHES_AT_ONCE]
        # The batch is copied, because a slice is pickled with the whole array.
        task = _DeleteTask(store, pa.concat_arrays([part]))
        for _ in run(task, -(-len(part) // _DELETED_AT_ONCE)):
            pass


@dataclass(frozen=True, slots=True)
class _Listing:
    """The objects that a task found in its range."""

    files: pa.Table
    tables: tuple[str, ...]
    """The folders of other tables."""


@dataclass(frozen=True, slots=True)
class _ListTask:
    """Lists one range of keys. Picklable."""

    store: ObjectStore
    starts: tuple[str, ...]
    """The keys after which the ranges begin."""
    left_out: npt.NDArray[np.uint64]
    """The hashes of the keys to leave out, sorted. Another key with one of these hashes is kept as if it were live."""
    partition_folders: tuple[str, ...]
    """How the names of folders begin that look hidden, but are not."""

    def __call__(self, index: int) -> _Listing:
        """List the objects of the range of this number."""
        batches, tables = [], set[str]()
        listing = self.store.list(start_after=self.starts[index])
        if index + 1 < len(self.starts):
            last = self.starts[index + 1]
            listing = itertools.takewhile(lambda meta: meta.key <= last, listing)
        while metas := list(itertools.islice(listing, _KEYS_AT_ONCE)):
            tables |= {meta.key.split(f"/{LOG_FOLDER}/")[0] + "/" for meta in metas if f"/{LOG_FOLDER}/" in meta.key}
            batches.append(self._batch([meta for meta in metas if not is_hidden(meta.key, self.partition_folders)]))
        return _Listing(pa.Table.from_batches(batches, _LISTED), tuple(tables))

    def _batch(self, metas: list[ObjectMeta]) -> pa.RecordBatch:
        columns = (
            [meta.key for meta in metas],
            [meta.size for meta in metas],
            [int(meta.last_modified.timestamp() * 1000) for meta in metas],
        )
        batch = pa.record_batch(
            [pa.array(column, child.type) for column, child in zip(columns, _LISTED, strict=True)], schema=_LISTED
        )
        if not len(self.left_out):
            return batch
        hashes = _hashes(batch["key"])
        positions = np.minimum(np.searchsorted(self.left_out, hashes), len(self.left_out) - 1)
        return batch.filter(mask(self.left_out[positions] != hashes))


@dataclass(frozen=True, slots=True)
class _DeleteTask:
    """Deletes one batch of objects. Picklable."""

    store: ObjectStore
    keys: pa.Array

    def __call__(self, index: int) -> None:
        """Delete the objects of the batch of this number."""
        keys = self.keys[index * _DELETED_AT_ONCE : (index + 1) * _DELETED_AT_ONCE].to_pylist()
        try:
            self.store.delete(keys)
        except InvalidKey:
            # The log names a file that a link leads out of the table. The others are deleted nevertheless.
            for key in keys:
                with suppress(InvalidKey):
                    self.store.delete([key])


def _starts(known: pa.ChunkedArray) -> tuple[str, ...]:
    """Return the keys after which ranges of about equally many files begin, in order."""
    if len(known) <= _KEYS_A_TASK:
        return ("",)
    order = pc.sort_indices(known)
    bounds = known.take(order.take(pa.array(range(_KEYS_A_TASK, len(known), _KEYS_A_TASK)))).to_pylist()
    # A store may list another form of a key that has more than one.
    return ("", *dict.fromkeys(bound for bound in bounds if bound.isascii()))


def _partition_folders(known: pa.ChunkedArray, partition_columns: Sequence[str]) -> tuple[str, ...]:
    """Return how the names of folders begin that look hidden, but are a partition's. Partitioning may have changed."""
    columns = [partition_folder((name,), ("",)).removesuffix("/") for name in partition_columns]
    keys = known.filter(pc.match_substring_regex(known, r"(?:^|/)\.[^/]*=")).to_pylist()
    folders = itertools.chain(columns, (part for key in keys for part in key.split("/")[:-1]))
    return tuple({f"{folder.split('=')[0]}=" for folder in folders if folder.startswith(".") and "=" in folder})


def _hashes(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return hashes that are the same in every process."""
    hashes = np.empty(len(keys), np.uint64)
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        part = keys.slice(start, _KEYS_AT_ONCE).to_pylist()
        digests = b"".join(hashlib.blake2b(key.encode(), digest_size=8).digest() for key in part)
        hashes[start : start + len(part)] = np.frombuffer(digests, np.uint64)
    return hashes
