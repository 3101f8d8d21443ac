"""Segments: Parquet objects with old records of a journal.

Columns: `key`, `value` (JSON text), `number` (of the entry that set the value) and `time` (of that entry, in
microseconds since 1970). Rows are in the order of their numbers, so that neighbors in history are read together.
"""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake_core.journal.entry import EPOCH
from lake_core.journal.errors import JournalDamaged
from lake_core.journal.record import StateRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

_ROWS_PER_GROUP = 2048
_CACHED_GROUPS = 4
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


def table_of(records: Iterable[tuple[str, StateRecord]]) -> pa.Table:
    """Return records as the rows of a segment."""
    rows = sorted((record.number, key, record.time, record.value) for key, record in records)
    columns = {
        "key": [key for _, key, _, _ in rows],
        "value": [json.dumps(value, ensure_ascii=False, separators=(",", ":")) for _, _, _, value in rows],
        "number": [number for number, _, _, _ in rows],
        "time": [time for _, _, time, _ in rows],
    }
    return pa.table(columns, schema=_SCHEMA)


def merge_tables(tables: Iterable[pa.Table], removed: Iterable[str]) -> pa.Table:
    """Return the rows of several segments without the keys that were removed, each key once."""
    table = pa.concat_tables(tables).sort_by([("number", "ascending"), ("key", "ascending")])
    gone = pc.is_in(table["key"], pa.array(sorted(removed), pa.string()))
    rows = pa.array(range(len(table)))
    last_row = pa.table({"key": table["key"], "row": rows}).group_by("key").aggregate([("row", "max")])
    is_last = pc.is_in(rows, last_row["row_max"].combine_chunks())
    return table.filter(pc.and_(pc.invert(gone), is_last))


def encode_segment(table: pa.Table) -> bytes:
    """Return the bytes of a segment with these rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=_ROWS_PER_GROUP, use_dictionary=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class OpenSegment:
    """A segment in memory: compressed, with its keys in order. Threads may share it."""

    def __init__(self, name: str, data: bytes) -> None:
        """Raise JournalDamaged for bytes that are not a segment."""
        self._name = name
        try:
            self._file = pq.ParquetFile(pa.BufferReader(data))
            if not self._file.schema_arrow.equals(_SCHEMA):
                raise ValueError("its columns are not those of a segment")
            # Not `to_numpy`, which imports pandas where it is installed.
            keys = np.array(self._file.read(["key"])["key"].cast(pa.binary()).to_pylist(), np.bytes_)
        except (pa.ArrowException, OSError, ValueError) as error:
            self._raise(error)
        self._order: NDArray[np.intp] = np.argsort(keys, kind="stable")
        self._keys: NDArray[np.bytes_] = keys[self._order]
        self._starts = np.cumsum(
            [0, *(self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups))]
        )
        self._groups: dict[int, dict[str, list[Any]]] = {}
        self._lock = threading.Lock()
        """Held while the file is read: threads that read one file at the same time crash the process."""

    def table(self) -> pa.Table:
        """Return all rows. Raises JournalDamaged."""
        try:
            with self._lock:
                return self._file.read()
        except (pa.ArrowException, OSError) as error:
            self._raise(error)

    def has(self, key: str) -> bool:
        """Return whether it has a record of a key."""
        return self._find(key) is not None

    def record(self, key: str) -> StateRecord | None:
        """Return the record of a key. Raises JournalDamaged."""
        at = self._find(key)
        if at is None:
            return None
        row = int(self._order[at])
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._decode(self._columns(group), row - int(self._starts[group]))

    def keys(self, prefix: str) -> list[str]:
        """List the keys that start with a prefix, in order."""
        start, end = self._range(prefix)
        return [key.decode() for key in self._keys[start:end].tolist()]

    def _range(self, prefix: str) -> tuple[int, int]:
        """Return where the keys that start with a prefix begin and end among the keys in order."""
        text = prefix.encode()
        return int(np.searchsorted(self._keys, text)), int(np.searchsorted(self._keys, text + b"\xff"))

    def records(self, prefix: str) -> Iterator[tuple[str, StateRecord]]:
        """Walk the records whose keys start with a prefix, in the order of their numbers. Raises JournalDamaged."""
        rows = self._order[slice(*self._range(prefix))]
        for group in np.unique(np.searchsorted(self._starts, rows, side="right") - 1).tolist():
            columns = self._columns(group)
            for row, key in enumerate(columns["key"]):
                if key.startswith(prefix):
                    yield key, self._decode(columns, row)

    def _find(self, key: str) -> int | None:
        """Return the position of a key among the keys in order."""
        text = key.encode()
        if len(text) > self._keys.itemsize:  # for which NumPy would convert all keys
            return None
        at = int(np.searchsorted(self._keys, text))
        return at if at < len(self._keys) and self._keys[at] == text else None

    def _columns(self, group: int) -> dict[str, list[Any]]:
        with self._lock:
            columns = self._groups.get(group)
            if columns is None:
                columns = self._read_columns(group)
                while len(self._groups) >= _CACHED_GROUPS:
                    del self._groups[next(iter(self._groups))]
                self._groups[group] = columns
            return columns

    def _read_columns(self, group: int) -> dict[str, list[Any]]:
        try:
            table = self._file.read_row_group(group)
        except (pa.ArrowException, OSError) as error:
            self._raise(error)
        columns = {name: table[name].to_pylist() for name in ("key", "value", "number")}
        # As numbers: Arrow would import pandas for timestamps.
        columns["time"] = table["time"].cast(pa.int64()).to_pylist()
        return columns

    def _decode(self, columns: dict[str, list[Any]], row: int) -> StateRecord:
        try:
            value = json.loads(columns["value"][row])
        except (ValueError, RecursionError) as error:
            self._raise(error)
        time = EPOCH + timedelta(microseconds=columns["time"][row])
        return StateRecord(value, columns["number"][row], time)

    def _raise(self, error: Exception) -> NoReturn:
        raise JournalDamaged(f"{self._name} is damaged: {str(error)[:200]}. Restore it from a backup") from None
