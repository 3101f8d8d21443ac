"""Commit files: parse JSON lines to columns, and encode them.

Arrow's JSON reader parses several commits at once. A row that is inserted before each commit holds its version. Unknown
fields and actions are ignored, as the protocol requires. Protocol sections: Delta Log Entries, Actions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from lake_core.delta.action import DomainMetadata, Metadata, Protocol
from lake_core.delta.action_fields import (
    ADD_FIELDS,
    CHANGE_FIELDS,
    PARTITION_VALUES,
    REMOVE_FIELDS,
    TEXTS,
    TRANSACTION_FIELDS,
    tag_texts,
)
from lake_core.delta.errors import CorruptCommit, MalformedAction
from lake_core.delta.file_key import file_key
from lake_core.delta.log_segment import commit_key
from lake_core.delta.numpy_arrays import empty_table, integers, texts
from lake_core.json_numbers import loads, with_whole_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_MARKER = "lake-orch:version"
_PARALLEL_BLOCK = 8 << 20
_WITHOUT_TAGS = tuple(field for field in ADD_FIELDS if field[0] != "tags")
_LINE_START = re.compile(rb"[ \t]*(?:[{\r\n]|\Z)")


@dataclass(frozen=True, slots=True)
class CommitRun:
    """The actions of consecutive commits under one metadata, in columns.

    Each table has the fields of its action, `commit` (the version) and `position` (the order in the whole run).
    """

    versions: tuple[int, ...]
    adds: pa.Table
    removes: pa.Table
    transactions: pa.Table
    protocol: Protocol | None
    """The last one of the run, if any."""
    metadata: Metadata | None
    """The one that the run starts with, if any: a metadata change always starts a new run."""
    domains: tuple[DomainMetadata, ...]
    sources: tuple[bytes, ...]
    """The bytes of the commits, for fields that are rarely read (tags)."""
    add_keys: pa.ChunkedArray = field(init=False)
    """The identity of the file of each add action."""
    remove_keys: pa.ChunkedArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "add_keys", file_key(self.adds))
        object.__setattr__(self, "remove_keys", file_key(self.removes))


def split_runs(commits: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Metadata | None, list[tuple[int, bytes]]]]:
    """Group commits so that a commit that changes the metadata starts a new group."""
    metadata: Metadata | None = None
    group: list[tuple[int, bytes]] = []
    changes = [list(single_actions(version, data, "metaData")) for version, data in commits]
    last = max((index for index, bodies in enumerate(changes) if bodies), default=0)
    for index, ((version, data), bodies) in enumerate(zip(commits, changes, strict=True)):
        if len(bodies) > 1:
            raise CorruptCommit(f"{commit_key(version)} holds {len(bodies)} metaData actions; the protocol allows one")
        if bodies:
            if group:
                yield metadata, group
            metadata, group = Metadata.from_json(bodies[0], overruled=index < last), []
        group.append((version, data))
    if group:
        yield metadata, group


def parse_run(
    commits: Sequence[tuple[int, bytes]], partition_keys: Sequence[str], metadata: Metadata | None
) -> CommitRun:
    """Parse commits that have the same partition columns. `partition_keys` are their names in the log.

    Raises CorruptCommit, which names the file, if it is not lines of JSON actions or its last line is cut.
    """
    body = b"".join(b'{"%s":%d}\n%s\n' % (_MARKER.encode(), version, data) for version, data in commits)
    schema = _json_schema(tuple(partition_keys))
    try:
        table = _read_json(body, schema)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _culprit(commits, schema, error) from None
    version = table[_MARKER].combine_chunks()
    if version.drop_null().to_pylist() != [number for number, _ in commits]:
        raise CorruptCommit(
            f"a commit between versions {commits[0][0]} and {commits[-1][0]} has the field {_MARKER!r}, "
            "which is reserved"
        )
    version = pc.fill_null_forward(version)
    position = integers(np.arange(len(table)))
    protocol: Protocol | None = None
    domains: list[DomainMetadata] = []
    for number, data in commits:
        for action in single_actions(number, data, "protocol"):
            protocol = Protocol.from_json(action)
        domains += [DomainMetadata.from_json(action) for action in single_actions(number, data, "domainMetadata")]

    def rows(action: str, required: Sequence[str], fields: Sequence[tuple[str, pa.DataType]]) -> pa.Table:
        column = table[action].combine_chunks()
        if column.null_count == len(column):
            return _no_rows(tuple(fields))
        present = column.is_valid()
        struct = column.filter(present)
        columns = {
            name: partition_map(values, partition_keys) if kind == PARTITION_VALUES else values
            for (name, kind), values in zip(fields, struct.flatten(), strict=True)
        }
        for key in required:
            if columns[key].null_count:
                raise MalformedAction(
                    f"a commit between versions {commits[0][0]} and {commits[-1][0]} has an action {action} without "
                    f"{key}"
                )
        return (
            pa.table(columns)
            .append_column("commit", version.filter(present))
            .append_column("position", position.filter(present))
        )

    return CommitRun(
        versions=tuple(number for number, _ in commits),
        adds=_with_tags(rows("add", ["path"], _WITHOUT_TAGS), commits),
        removes=rows("remove", ["path"], REMOVE_FIELDS),
        transactions=rows("txn", ["appId", "version"], TRANSACTION_FIELDS),
        protocol=protocol,
        metadata=metadata,
        domains=tuple(domains),
        sources=tuple(data for _, data in commits),
    )


def change_files(version: int, data: bytes, partition_keys: Sequence[str]) -> pa.Table:
    """Return a commit's cdc actions: path, partitionValues, size.

    Raises CorruptCommit, and MalformedAction for one without a path.
    """
    kind = _struct(CHANGE_FIELDS, partition_keys)
    if b'"cdc"' not in data:
        return empty_table(pa.schema(list(CHANGE_FIELDS)))
    try:
        table = _read_json(b"{}\n" + data, pa.schema([("cdc", kind)]))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise CorruptCommit(
            f"{commit_key(version)} is not a commit: {error}. Restore it from a backup, or open an earlier version"
        ) from None
    column = table["cdc"].combine_chunks()
    actions = column.filter(column.is_valid())
    paths, values, sizes = (pc.struct_field(actions, [name]) for name, _ in CHANGE_FIELDS)
    if paths.null_count:
        raise MalformedAction(f"{commit_key(version)} has an action cdc without path")
    return pa.table([paths, partition_map(values, partition_keys), sizes], schema=pa.schema(list(CHANGE_FIELDS)))


def read_commit_info(version: int, data: bytes) -> dict[str, Any]:
    """Return a commit's provenance (its commitInfo), empty if it has none."""
    return next(single_actions(version, data, "commitInfo"), {})


def _with_tags(adds: pa.Table, commits: Sequence[tuple[int, bytes]]) -> pa.Table:
    """Return add actions with the tags of their files, of each path the last ones. Only lines with tags are parsed."""
    tags: dict[str, list[tuple[str, str | None]] | None] = {}
    for version, data in commits:
        for line in _lines_with(data, b'"tags"'):
            body = _loads(version, line).get("add")
            if isinstance(body, dict):
                tags[body["path"]] = tag_texts(body.get("tags"))
    column = pa.array([tags.get(path) for path in adds["path"].to_pylist()], TEXTS) if tags else None
    return adds.add_column(len(_WITHOUT_TAGS), "tags", pa.nulls(len(adds), TEXTS) if column is None else column)


def encode_actions(actions: Iterable[tuple[str, dict[str, Any]]]) -> bytes:
    """Encode a commit: one JSON object per line. Fields whose value is None are left out."""
    lines = (
        json.dumps(
            {name: {key: value for key, value in body.items() if value is not None}},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        for name, body in actions
    )
    return "".join(f"{line}\n" for line in lines).encode()


def partition_map(struct: pa.StructArray, keys: Sequence[str]) -> pa.MapArray:
    """Convert a struct of partition values, as strings, to the protocol's map<string,string>.

    The map of each row has one entry per partition column.
    """
    rows, width = len(struct), len(keys)
    offsets = integers(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
    names = texts(keys)
    if not width:
        return pa.MapArray.from_arrays(offsets, names, names)
    values = pa.concat_arrays([pc.struct_field(struct, [key]) for key in keys])
    row_major = integers(np.arange(rows * width).reshape(width, rows).T.ravel())
    return pa.MapArray.from_arrays(
        offsets, names.take(integers(np.tile(np.arange(width), rows))), values.take(row_major)
    )


@cache
def _no_rows(fields: Sequence[tuple[str, pa.DataType]]) -> pa.Table:
    schema = pa.schema([*fields, ("commit", pa.int64()), ("position", pa.int64())])
    return pa.table([pa.nulls(0, kind) for kind in schema.types], schema=schema)


@lru_cache(maxsize=256)
def _json_schema(partition_keys: tuple[str, ...]) -> pa.Schema:
    actions = (("add", _WITHOUT_TAGS), ("remove", REMOVE_FIELDS), ("txn", TRANSACTION_FIELDS))
    return pa.schema([(_MARKER, pa.int64()), *((name, _struct(fields, partition_keys)) for name, fields in actions)])


def _struct(fields: Sequence[tuple[str, pa.DataType]], partition_keys: Sequence[str]) -> pa.StructType:
    partition_struct = pa.struct([(key, pa.string()) for key in partition_keys])
    return pa.struct([(name, partition_struct if kind == PARTITION_VALUES else kind) for name, kind in fields])


def _read_json(body: bytes, schema: pa.Schema) -> pa.Table:
    """Parse lines of JSON objects.

    Raises an ArrowException or ValueError for anything that is not lines of JSON objects in UTF-8.
    """
    _check_lines(body)
    try:
        return _parsed(body, schema)
    except pa.ArrowException:
        plain = with_whole_numbers(body)
        if plain == body:
            raise
        return _parsed(plain, schema)


def _parsed(body: bytes, schema: pa.Schema) -> pa.Table:
    if len(body) > _PARALLEL_BLOCK:
        try:
            return _read_blocks(body, schema, _PARALLEL_BLOCK)
        except pa.ArrowException:
            pass  # a line may be longer than a block
    return _read_blocks(body, schema, max(len(body) + 1, 1 << 16))


def _check_lines(body: bytes) -> None:
    """Check that every line is blank or begins an object.

    Arrow's reader ignores encodings, and a block of `null`s crashes it.
    """
    body.decode()
    text = np.frombuffer(body, np.uint8)
    starts = np.append(0, np.flatnonzero((text == ord("\n")) | (text == ord("\r"))) + 1)
    starts = starts[starts < len(text)]
    first = text[starts]
    for start in starts[(first != ord("{")) & (first != ord("\n")) & (first != ord("\r"))].tolist():
        match = _LINE_START.match(body, start)
        if match is None:
            raise ValueError(f"the line {body[start : start + 40]!r} is not a JSON object")


def _read_blocks(body: bytes, schema: pa.Schema, block_size: int) -> pa.Table:
    return pa_json.read_json(
        pa.BufferReader(body),
        # Starting threads costs more than parsing one block.
        read_options=pa_json.ReadOptions(use_threads=len(body) > block_size, block_size=block_size),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _culprit(commits: Sequence[tuple[int, bytes]], schema: pa.Schema, error: Exception) -> CorruptCommit:
    for version, data in commits:
        try:
            _read_json(b"{}\n" + data, schema)
        except (pa.ArrowException, ValueError, OverflowError) as own:
            return CorruptCommit(
                f"{commit_key(version)} is not a commit: {own}. Restore it from a backup, or open an earlier version"
            )
    return CorruptCommit(f"commits {commits[0][0]} to {commits[-1][0]} cannot be parsed: {error}")


def single_actions(version: int, data: bytes, name: str) -> Iterator[dict[str, Any]]:
    """Yield the bodies of a commit's actions of one kind, in order. Use it for kinds that are rare in a commit."""
    for line in _lines_with(data, f'"{name}"'.encode()):
        body = _loads(version, line).get(name)
        if isinstance(body, dict):
            yield body


def _lines_with(data: bytes, needle: bytes) -> Iterator[bytes]:
    position = 0
    while (match := data.find(needle, position)) >= 0:
        start = data.rfind(b"\n", 0, match) + 1
        end = data.find(b"\n", match)
        end = len(data) if end < 0 else end
        yield data[start:end]
        position = end


def _loads(version: int, line: bytes) -> dict[str, Any]:
    try:
        body = loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptCommit(f"{commit_key(version)} holds a line that is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise CorruptCommit(f"{commit_key(version)} holds a line that is not an action")
    return body
