"""The object `repo` of version 2, read and written. Snapshots and log entries are decoded on demand.

Specification section: Repo Info File.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import overload

import numpy as np

from lake_core.icechunk.errors import UnsupportedSpecVersion
from lake_core.icechunk.file_header import DEFAULT_COMPRESSION_LEVEL, FileType, decode_file, encode_file
from lake_core.icechunk.flatbuffer import FlatbufferError, Table, Tables, check_total, damage_of
from lake_core.icechunk.flatbuffer_writer import FlatbufferWriter, TableLayout, table_layout
from lake_core.icechunk.identifier import OBJECT_ID_LENGTH, decode_id, encode_id
from lake_core.icechunk.metadata_items import NO_METADATA, read_metadata, write_metadata
from lake_core.icechunk.refs import MAIN
from lake_core.icechunk.repo_info import REPO_KEY, ListedSnapshot, RepoInfo
from lake_core.icechunk.repo_status import RepoAvailability, RepoStatus
from lake_core.icechunk.snapshot import timestamp
from lake_core.icechunk.update import (
    UPDATE_TYPES,
    FeatureFlagChanged,
    RecordedUpdate,
    RepoMigrated,
    RepoStatusChanged,
    UpdateType,
)

_SPEC = 2
# Slots of Repo.
_SPEC_VERSION, _TAGS, _BRANCHES, _DELETED_TAGS, _SNAPSHOTS, _STATUS, _METADATA, _LATEST_UPDATES = range(8)
_BEFORE_UPDATES, _CONFIG, _ENABLED_FLAGS, _DISABLED_FLAGS, _EXTRA = range(8, 13)
_NAME, _SNAPSHOT_INDEX = range(2)  # slots of Ref
_ID, _PARENT, _FLUSHED_AT, _MESSAGE, _SNAPSHOT_METADATA, _PRUNED_LOGS = range(6)  # slots of SnapshotInfo
_KIND, _DETAILS, _UPDATED_AT, _BACKUP = range(4)  # slots of Update: the first two are of its union
_TEXTS = ("name", "branch")
"""The attributes of updates that are texts. Most others are ids of snapshots."""
_NO_PARENT = -1
_LEAST_SNAPSHOT = 24
"""The bytes that each snapshot of a list takes at least: its place in the list, its id and its time."""

# Offsets of fields in tables that are written.
_REF_LAYOUT = table_layout(12, (4, 8))
_SNAPSHOT_LAYOUT = table_layout(44, (4, 16, 24, 32, 36, 40))
_UNPRUNED_LAYOUT = table_layout(44, (4, 16, 24, 32, 36))
_STATUS_LAYOUTS = table_layout(20, (4, 8)), table_layout(20, (4, 8, 16))
_UPDATE_LAYOUTS = table_layout(24, (4, 16, 8)), table_layout(24, (4, 16, 8, 20))
_STATUS_CHANGED_LAYOUT = table_layout(8, (4,))
_FLAG_LAYOUT = table_layout(8, (4, 6, 7))
_MIGRATED_LAYOUT = table_layout(8, (4, 5))


def decode_repo_info(data: bytes, path: str = REPO_KEY) -> RepoInfo:
    """Return the state in the bytes of `repo`, or of a backup of it.

    Raises DamagedObject and UnsupportedSpecVersion, as does looking up snapshots and log entries.
    """
    body = decode_file(data, FileType.REPO_INFO, path)
    with damage_of(path):
        root = Table.root(body)
        if root.uint8(_SPEC_VERSION) != _SPEC:
            raise UnsupportedSpecVersion(
                f"{path} says that the repository follows version {root.uint8(_SPEC_VERSION)} of the Icechunk "
                "specification, not 2: open it with a newer icechunk"
            )
        snapshots = _Snapshots(root.tables(_SNAPSHOTS), path)
        branches = _refs(root.tables(_BRANCHES), snapshots)
        if MAIN not in branches:
            raise FlatbufferError("it has no branch main")
        return RepoInfo(
            branches=branches,
            tags=_refs(root.tables(_TAGS), snapshots),
            deleted_tags=frozenset(root.texts(_DELETED_TAGS)),
            snapshots=snapshots,
            status=_status(root.table(_STATUS)),
            updates=_Updates(root.tables(_LATEST_UPDATES), path),
            metadata=read_metadata(root, _METADATA, path),
            before_updates=root.optional_string(_BEFORE_UPDATES),
            config=root.optional_blob(_CONFIG),
            enabled_flags=_flags(root, _ENABLED_FLAGS),
            disabled_flags=_flags(root, _DISABLED_FLAGS),
            extra=root.optional_blob(_EXTRA),
        )


def _flags(root: Table, slot: int) -> tuple[int, ...] | None:
    return tuple(root.array(slot, "<u2").tolist()) if root.field(slot) else None


def _refs(tables: Tables, snapshots: _Snapshots) -> dict[str, bytes]:
    indexes = tables.numbers(_SNAPSHOT_INDEX, "<u4").tolist()
    check_total(int(tables.vectors(_NAME, 1)[1].sum()), tables.buffer)
    refs = {}
    for number, index in enumerate(indexes):
        name = tables[number].string(_NAME)
        if index >= len(snapshots.ids):
            raise FlatbufferError(f"{name!r} names snapshot {index} of a list of {len(snapshots.ids)}")
        refs[name] = snapshots.ids[index]
    if len(refs) != len(indexes):
        raise FlatbufferError("two branches or two tags have the same name")
    return refs


def _status(table: Table) -> RepoStatus:
    # Other values are of later versions, and are read as online.
    read_only = table.uint8(0) == RepoAvailability.read_only.value
    availability = RepoAvailability.read_only if read_only else RepoAvailability.online
    return RepoStatus(availability, timestamp(table.uint64(1)), table.optional_string(2))


class _Snapshots(Mapping[bytes, ListedSnapshot]):
    """The list of snapshots, by id."""

    def __init__(self, tables: Tables, path: str) -> None:
        self._tables = tables
        self._path = path
        if _LEAST_SNAPSHOT * len(tables) > len(tables.buffer):
            raise FlatbufferError(f"it lists {len(tables)} snapshots, more than a file of its size can hold")
        ids = tables.required_structures(_ID, OBJECT_ID_LENGTH).tobytes()
        self.ids = [ids[start : start + OBJECT_ID_LENGTH] for start in range(0, len(ids), OBJECT_ID_LENGTH)]
        self._numbers = {snapshot_id: number for number, snapshot_id in enumerate(self.ids)}
        if len(self._numbers) != len(self.ids):
            raise FlatbufferError("it lists a snapshot twice")
        parents = tables.numbers(_PARENT, "<i4")
        if len(parents) and (parents.min() < _NO_PARENT or parents.max() >= len(parents)):
            raise FlatbufferError(f"a snapshot has a parent that is not one of the {len(parents)} in the list")
        starts, sizes = tables.vectors(_MESSAGE, 1, required=True)
        _, pruned = tables.vectors(_PRUNED_LOGS, OBJECT_ID_LENGTH)
        _, metadata = tables.vectors(_SNAPSHOT_METADATA, 4)
        for total in (sizes.sum(), OBJECT_ID_LENGTH * pruned.sum()):
            check_total(int(total), tables.buffer)
        self._parents = parents.tolist()
        self._flushed_at = tables.numbers(_FLUSHED_AT, "<u8").tolist()
        self._messages = list(zip(starts.tolist(), (starts + sizes).tolist(), strict=True))
        self._has_more = ((pruned > 0) | (metadata > 0)).tolist()
        """Whether a snapshot has metadata, or logs that were pruned."""
        self._metadata_bytes = 0
        self._decoded: dict[bytes, ListedSnapshot] = {}

    def __getitem__(self, snapshot_id: bytes) -> ListedSnapshot:
        entry = self._decoded.get(snapshot_id)
        if entry is None:
            number = self._numbers[snapshot_id]
            try:
                entry = self._decoded[snapshot_id] = self._entry(number)
            except (FlatbufferError, UnicodeDecodeError):
                with damage_of(self._path):  # not around each entry of a long list
                    raise
        return entry

    def _entry(self, number: int) -> ListedSnapshot:
        parent, (start, end) = self._parents[number], self._messages[number]
        plain = ListedSnapshot(
            self.ids[number],
            None if parent == _NO_PARENT else self.ids[parent],
            self._flushed_at[number],
            self._tables.buffer[start:end].decode(),
            NO_METADATA,
        )
        if not self._has_more[number]:
            return plain
        table = self._tables[number]
        metadata = read_metadata(table, _SNAPSHOT_METADATA, self._path)
        self._metadata_bytes += metadata.size
        check_total(self._metadata_bytes, table.buffer)
        pruned = table.array(_PRUNED_LOGS, f"V{OBJECT_ID_LENGTH}", required=False)
        return replace(plain, metadata=metadata, pruned_logs=tuple(row.tobytes() for row in pruned))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


class _Updates(Sequence[RecordedUpdate]):
    """The entries of the operations log."""

    def __init__(self, tables: Tables, path: str) -> None:
        self._tables = tables
        self._path = path
        self._decoded: dict[int, RecordedUpdate] = {}
        self._text_bytes = 0

    def __len__(self) -> int:
        return len(self._tables)

    @overload
    def __getitem__(self, number: int) -> RecordedUpdate: ...
    @overload
    def __getitem__(self, number: slice) -> list[RecordedUpdate]: ...
    def __getitem__(self, number: int | slice) -> RecordedUpdate | list[RecordedUpdate]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        if number not in self._decoded:
            self._decoded[number] = self._entry(number)
        return self._decoded[number]

    def _entry(self, number: int) -> RecordedUpdate:
        with damage_of(self._path):
            table = self._tables[number]
            kind = table.uint8(_KIND)
            if not 1 <= kind <= len(UPDATE_TYPES):
                raise FlatbufferError(f"its operations log has an entry of the unknown type {kind}")
            details = _details(UPDATE_TYPES[kind - 1], table.table(_DETAILS))
            update = RecordedUpdate(details, table.uint64(_UPDATED_AT), table.optional_string(_BACKUP))
            texts = [update.backup, *(getattr(details, each.name) for each in fields(details))]
            self._text_bytes += sum(len(text) for text in texts if isinstance(text, str))
            check_total(self._text_bytes, table.buffer)
            return update


def _details(kind: type[UpdateType], table: Table) -> UpdateType:
    if issubclass(kind, RepoMigrated):
        return kind(table.uint8(0), table.uint8(1))
    if issubclass(kind, FeatureFlagChanged):
        return kind(table.uint16(0), bool(table.uint8(1)) if table.uint8(2) else None)
    if issubclass(kind, RepoStatusChanged):
        return kind(_status(table.table(0)))
    values = (
        table.string(slot) if each.name in _TEXTS else encode_id(table.structure(slot, OBJECT_ID_LENGTH))
        for slot, each in enumerate(fields(kind))
    )
    return kind(*values)


def encode_repo_info(info: RepoInfo, level: int = DEFAULT_COMPRESSION_LEVEL) -> bytes:
    """Return the bytes of `repo`. `level` is that of zstd."""
    writer = FlatbufferWriter()
    optional = (info.before_updates, info.config, info.enabled_flags, info.disabled_flags, info.extra)
    present = [offset if value is not None else 0 for offset, value in zip(range(36, 56, 4), optional, strict=True)]
    root = writer.root(table_layout(56, (4, *range(8, 36, 4), *present)))
    writer.put(root + 4, bytes((_SPEC,)))
    ids = sorted(info.snapshots)
    numbers = {snapshot_id: number for number, snapshot_id in enumerate(ids)}
    _write_refs(writer, root + 8, info.tags, numbers)
    _write_refs(writer, root + 12, info.branches, numbers)
    deleted = writer.offsets(root + 16, len(info.deleted_tags))
    for number, name in enumerate(sorted(info.deleted_tags, key=str.encode)):
        writer.blob(deleted + 4 * number, name.encode())
    entries = writer.offsets(root + 20, len(ids))
    for number, snapshot_id in enumerate(ids):
        writer.link(entries + 4 * number, _write_snapshot(writer, info.snapshots[snapshot_id], numbers))
    _write_status(writer, root + 24, info.status)
    write_metadata(writer, root + 28, info.metadata)
    updates = writer.offsets(root + 32, len(info.updates))
    for number, update in enumerate(info.updates):
        writer.link(updates + 4 * number, _write_update(writer, update))
    if info.before_updates is not None:
        writer.blob(root + 36, info.before_updates.encode())
    for offset, blob in ((40, info.config), (52, info.extra)):
        if blob is not None:
            writer.blob(root + offset, blob)
    for offset, flags in ((44, info.enabled_flags), (48, info.disabled_flags)):
        if flags is not None:
            writer.vector(root + offset, np.array(sorted(flags), "<u2"))
    return encode_file(FileType.REPO_INFO, writer.finish(), level, _SPEC)


def _write_refs(writer: FlatbufferWriter, field: int, refs: Mapping[str, bytes], numbers: Mapping[bytes, int]) -> None:
    entries = writer.offsets(field, len(refs))
    for number, name in enumerate(sorted(refs, key=str.encode)):
        table = writer.table(_REF_LAYOUT)
        writer.link(entries + 4 * number, table)
        writer.blob(table + 4, name.encode())
        writer.put(table + 8, struct.pack("<I", numbers[refs[name]]))


def _write_snapshot(writer: FlatbufferWriter, entry: ListedSnapshot, numbers: Mapping[bytes, int]) -> int:
    table = writer.table(_SNAPSHOT_LAYOUT if entry.pruned_logs else _UNPRUNED_LAYOUT)
    parent = _NO_PARENT if entry.parent_id is None else numbers[entry.parent_id]
    writer.put(table + 4, entry.snapshot_id + struct.pack("<i4xQ", parent, entry.flushed_at))
    writer.blob(table + 32, entry.message.encode())
    write_metadata(writer, table + 36, entry.metadata)
    if entry.pruned_logs:
        writer.vector(table + 40, np.frombuffer(b"".join(entry.pruned_logs), f"V{OBJECT_ID_LENGTH}"))
    return table


def _write_status(writer: FlatbufferWriter, field: int, status: RepoStatus) -> None:
    reason = status.limited_availability_reason
    table = writer.table(_STATUS_LAYOUTS[reason is not None])
    writer.link(field, table)
    writer.put(table + 4, struct.pack("<B3xQ", status.availability.value, status.set_at_microseconds))
    if reason is not None:
        writer.blob(table + 16, reason.encode())


def _write_update(writer: FlatbufferWriter, update: RecordedUpdate) -> int:
    table = writer.table(_UPDATE_LAYOUTS[update.backup is not None])
    writer.put(table + 4, struct.pack("<B3xQ", update.kind.number, update.time))
    writer.link(table + 16, _write_details(writer, update.kind))
    if update.backup is not None:
        writer.blob(table + 20, update.backup.encode())
    return table


def _write_details(writer: FlatbufferWriter, kind: UpdateType) -> int:
    if isinstance(kind, RepoMigrated):
        return _write_fixed(writer, _MIGRATED_LAYOUT, bytes((kind.from_version, kind.to_version)))
    if isinstance(kind, FeatureFlagChanged):
        is_set = kind.new_value is not None
        return _write_fixed(writer, _FLAG_LAYOUT, struct.pack("<HBB", kind.id, bool(kind.new_value), is_set))
    if isinstance(kind, RepoStatusChanged):
        table = writer.table(_STATUS_CHANGED_LAYOUT)
        _write_status(writer, table + 4, kind.status)
        return table
    # Of the others, each has at most one text, which comes first, and then ids.
    names = [each.name for each in fields(kind)]
    texts = [getattr(kind, name) for name in names if name in _TEXTS]
    ids = [decode_id(getattr(kind, name)) for name in names if name not in _TEXTS]
    first = 4 + 4 * len(texts)
    slots = [*range(4, first, 4), *range(first, first + OBJECT_ID_LENGTH * len(ids), OBJECT_ID_LENGTH)]
    table = writer.table(table_layout(first + OBJECT_ID_LENGTH * len(ids), slots))
    writer.put(table + first, b"".join(ids))
    for text in texts:
        writer.blob(table + 4, text.encode())
    return table


def _write_fixed(writer: FlatbufferWriter, layout: TableLayout, data: bytes) -> int:
    table = writer.table(layout)
    writer.put(table + 4, data)
    return table
