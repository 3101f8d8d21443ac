"""Writing the checkpoint of a large table in parts, by the tasks of a runner.

A hash of the path decides to which part an action on a file belongs. So each task reconciles the actions of its part
alone: it reads the checkpoint before and the commits since, and keeps its share. The first part has all other actions.

Readers use a checkpoint of several parts only if all of them are there. A name is written once, and the parts of an
attempt that failed are not mixed with those of the next one, which has another number of parts. Protocol sections:
Multi-part checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.delta.action_fields import ADD_FIELDS, TRANSACTION_FIELDS
from lake_core.delta.checkpoint import Checkpoint
from lake_core.delta.checkpoint_writer import CheckpointActions, encode, write_checkpoint, write_hint
from lake_core.delta.errors import CheckpointRace, CorruptCheckpoint, CorruptCommit
from lake_core.delta.features import V2_CHECKPOINT, supported_features
from lake_core.delta.file_key import file_key
from lake_core.delta.log_segment import LOG_FOLDER, LogSegment, entry_key, find_segments, part_key
from lake_core.delta.numpy_arrays import empty_table, mask
from lake_core.delta.replay import live_files, tombstones, transactions
from lake_core.delta.snapshot import read_entries, replay_singles
from lake_core.errors import AlreadyExists

if TYPE_CHECKING:
    from lake_core.delta.action import DomainMetadata, Metadata, Protocol
    from lake_core.delta.commit_file import CommitRun
    from lake_core.delta.snapshot import Snapshot
    from lake_core.runner import Runner
    from lake_core.store import ObjectStore

PART_ROWS = 500_000
"""About how many actions a part has by default."""
_COMMITS_AT_ONCE = 256
_HASHED_AT_ONCE = 8192
_FACTORS = 1024


@dataclass(frozen=True, slots=True)
class PathShare:
    """Tells which actions on files belong to one of several parts, by their paths. Picklable."""

    number: int
    total: int

    def __call__(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return whether each action belongs to the part."""
        keys = file_key(rows.select(["path"])).combine_chunks()
        pieces = [
            _hashes(keys.slice(start, _HASHED_AT_ONCE)) % np.uint64(self.total) == np.uint64(self.number)
            for start in range(0, len(keys), _HASHED_AT_ONCE)
        ]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.bool_)


def _hashes(texts: pa.StringArray) -> npt.NDArray[np.uint64]:
    """Return a number for each text, the same in all processes: the sum of its bytes, each times a factor."""
    encoded = texts.cast(pa.large_binary())
    offsets = np.frombuffer(encoded.buffers()[1], dtype=np.int64)[encoded.offset : encoded.offset + len(encoded) + 1]
    body = np.frombuffer(encoded.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    positions = np.arange(len(body)) - np.repeat(starts, lengths)
    powers = np.cumprod(np.full(_FACTORS, 0x100000001B3, dtype=np.uint64))  # FNV's prime; overflow wraps around
    sums = np.concatenate(
        [np.zeros(1, dtype=np.uint64), np.cumsum(body * powers[positions % _FACTORS], dtype=np.uint64)]
    )
    mixed = sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    hashes: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(33))
    return hashes


@dataclass(frozen=True, slots=True)
class Part:
    """A part that was written."""

    rows: int
    adds: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes one part. Picklable."""

    store: ObjectStore
    target: ObjectStore
    segment: LogSegment
    protocol: Protocol
    metadata: Metadata
    domains: tuple[DomainMetadata, ...]
    now: int
    total: int
    as_text: bool

    def __call__(self, number: int) -> Part | None:
        """Write the part of this number, from 0 on. Return None if its statistics do not fit into columns.

        Raises CorruptCheckpoint, CorruptCommit, CheckpointRace.
        """
        share = PathShare(number, self.total)
        files = self.segment.checkpoint
        checkpoint = None if files is None else Checkpoint(self.store, files, share)
        runs = self._runs(checkpoint, share)
        actions = CheckpointActions(
            live_files(checkpoint, runs, [name for name, _ in ADD_FIELDS], vectors=True),
            tombstones(checkpoint, runs),
            empty_table(pa.schema(list(TRANSACTION_FIELDS))) if number else transactions(checkpoint, runs),
            self.metadata,
            self.protocol,
            self.domains,
        )
        table = actions.table(self.now, has_definition=number == 0, as_text=self.as_text)
        if table is None:
            return None
        body = encode(table)
        self._put(part_key(self.segment.version, number + 1, self.total), body.to_pybytes())
        return Part(table.num_rows, len(actions.adds), body.size)

    def _runs(self, checkpoint: Checkpoint | None, share: PathShare) -> list[CommitRun]:
        """Return the share of the commits since the checkpoint."""
        metadata = None if checkpoint is None else checkpoint.metadata()
        runs: list[CommitRun] = []
        entries = self.segment.entries
        for start in range(0, len(entries), _COMMITS_AT_ONCE):
            commits = read_entries(self.store, entries[start : start + _COMMITS_AT_ONCE])
            _, metadata, parsed, _ = replay_singles(commits, None, metadata)
            for run in parsed:
                adds, removes = (rows.filter(mask(share(rows))) for rows in (run.adds, run.removes))
                runs.append(replace(run, adds=adds, removes=removes, sources=()))
        return runs

    def _put(self, key: str, body: bytes) -> None:
        try:
            self.target.put(key, body, if_absent=True)
        except AlreadyExists:
            # The task may have run before, and its result was lost.
            if bytes(self.target.get(key)) != body:
                raise CheckpointRace(
                    f"another process writes {key} at the same time: nothing depends on it yet. Write the checkpoint "
                    "again if the table still lacks one"
                ) from None


def write_checkpoint_parts(
    snapshot: Snapshot, now: int, run: Runner, *, part_rows: int = PART_ROWS, target: ObjectStore | None = None
) -> int:
    """Write the checkpoint of a snapshot's version in parts of about `part_rows` actions, and return their number.

    `run` calls the tasks, one a part. A small table has one file, which this process writes. The rest is as for
    `write_checkpoint`.

    Raises CheckpointRace, and what the runner and the tasks raise.
    """
    if part_rows < 1:
        raise ValueError(f"part_rows must be at least 1, not {part_rows}")
    total = -(-snapshot.count_actions() // part_rows)
    # A table that may have checkpoints of version 2 must have no others of several files.
    if total <= 1 or V2_CHECKPOINT in supported_features(snapshot.protocol):
        write_checkpoint(snapshot, now, target)
        return 1
    store = target or snapshot.store
    total = _unused(store, snapshot.version, total)
    error: CorruptCheckpoint | CorruptCommit | None = None
    for segment in find_segments(snapshot.store, snapshot.version):
        if segment.is_compacted:
            continue  # the commits are read instead: some writers' compactions are not reconciled
        keys = [entry_key(*entry) for entry in segment.entries]
        log = snapshot.store.detached([*keys, *(segment.checkpoint.keys if segment.checkpoint else ())])
        writer = PartWriter(
            log, store, segment, snapshot.protocol, snapshot.metadata, snapshot.domains, now, total, as_text=False
        )
        try:
            parts = list(run(writer, total))
            if any(part is None for part in parts):
                # Some were written. They are not mixed with parts that have other columns.
                written = [part_key(snapshot.version, number + 1, total) for number, part in enumerate(parts) if part]
                total = _unused(store, snapshot.version, total + 1)
                parts = list(run(replace(writer, total=total, as_text=True), total))
                store.delete(written)
        except (CorruptCheckpoint, CorruptCommit) as damage:
            error = error or damage
            total = _unused(store, snapshot.version, total + 1)
            continue
        whole = [part for part in parts if part is not None]
        write_hint(
            store,
            snapshot.version,
            sum(part.rows for part in whole),
            sum(part.bytes for part in whole),
            sum(part.adds for part in whole),
            total,
        )
        return total
    raise error or CorruptCheckpoint(f"no log files of version {snapshot.version} can be read")


def _unused(store: ObjectStore, version: int, total: int) -> int:
    """Return the first number of parts from `total` on that no checkpoint of a version has, even an incomplete one."""
    names = {meta.key.rsplit(".", 2)[-2] for meta in store.list(f"{LOG_FOLDER}/{version:020d}.checkpoint.")}
    while f"{total:010d}" in names:
        total += 1
    return total
