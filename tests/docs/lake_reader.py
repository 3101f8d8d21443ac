"""A reader of lakes, written from `docs/format.md` alone: nothing here comes from the package."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq

Fields = dict[int, list[Any]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


# SSTables


def stored_block(file: bytes, handle: bytes) -> bytes:
    offset, at = varint(handle, 0)
    length, _ = varint(handle, at)
    content = file[offset : offset + length]
    return bytes(cramjam.snappy.decompress_raw(content)) if file[offset + length] == 1 else content


def block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        length, at = varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        yield key, block[at + unshared : at + unshared + length]
        at += unshared + length


def sstable(file: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield key, identity and value of each entry."""
    footer = file[-53:]
    assert footer[-8:].hex() == "f7cff485b741e288"
    assert footer[-12:-8] == b"\2\0\0\0"
    assert footer[0] == 1
    at = varint(footer, varint(footer, 1)[1])[1]
    properties = dict(
        block_entries(stored_block(file, dict(block_entries(stored_block(file, footer[1:])))[b"rocksdb.properties"]))
    )
    handles = [handle for _, handle in block_entries(stored_block(file, footer[at:]))]
    if properties.get(b"rocksdb.block.based.table.index.type") == b"\2\0\0\0":
        handles = [handle for index in handles for _, handle in block_entries(stored_block(file, index))]
    for handle in handles:
        for key, value in block_entries(stored_block(file, handle)):
            length, at = varint(value, 0)
            identity, tail = value[at : at + length // 2], value[at + length // 2 :]
            length, at = varint(tail, 0)
            yield key[:-8], identity, tail[at : at + length // 2]


def message(data: bytes) -> Fields:
    """Return the fields of a protocol buffer message that has only varints and parts with a length."""
    fields: Fields = {}
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value: Any
        value, at = varint(data, at)
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        fields.setdefault(tag >> 3, []).append(value)
    return fields


@dataclass(frozen=True)
class Entry:
    """An entry of a tree."""

    address: str
    size: int
    etag: str
    metadata: dict[str, str]

    @classmethod
    def of(cls, value: bytes) -> Entry:
        fields = message(value)
        pairs = [message(pair) for pair in fields.get(5, [])]
        metadata = {pair.get(1, [b""])[0].decode(): pair.get(2, [b""])[0].decode() for pair in pairs}
        return cls(fields.get(1, [b""])[0].decode(), fields.get(3, [0])[0], fields.get(4, [b""])[0].decode(), metadata)


class LakeReader:
    """Reads a lake in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        format = json.loads((root / "_lake" / "format.json").read_text())
        if format["version"] not in (1, 2, 3):
            raise ValueError(f"the lake has version {format['version']}, and this reader knows versions 1 to 3")
        self.refs = self.journal("refs")

    def journal(self, name: str) -> dict[str, Any]:
        folder = self.root / "_lake" / name
        state: dict[str, Any] = {}
        number = 1
        if (folder / "TAIL").exists():
            number, base = map(int, (folder / "TAIL").read_text().split())
            header, body = (folder / "bases" / f"{base:020}.json").read_bytes().split(b"\n", 1)
            assert json.loads(header)["sha256"] == hashlib.sha256(body).hexdigest()
            snapshot = json.loads(body)
            state = self.archived(folder, snapshot.get("archive", {}))
            state |= {key: value for key, value, *_ in snapshot["records"]}
        while (path := folder / f"{number:020}.json").exists():
            entry = json.loads(path.read_text())
            assert entry["format"] == 1
            assert entry["number"] == number
            for action in entry["actions"]:
                if "delete" in action:
                    del state[action["delete"]]
                else:
                    key = action["add"] if "add" in action else action["update"]
                    assert ("add" in action) == (key not in state) or state[key] == action["value"]
                    state[key] = action["value"]
            number += 1
        return state

    def archived(self, folder: Path, archive: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for name, count, checksum in archive.get("segments", []):
            data = (folder / name).read_bytes()
            assert hashlib.sha256(data).hexdigest() == checksum
            table = pq.read_table(io.BytesIO(data))
            assert len(table) == count
            state |= {row["key"]: json.loads(row["value"]) for row in table.to_pylist()}
        return {key: value for key, value in state.items() if key not in archive["removed"]} if archive else {}

    def named(self, kind: str) -> dict[str, str]:
        """Return the commits of branches or tags."""
        refs = {
            key.partition("/")[2]: value["commit"] for key, value in self.refs.items() if key.startswith(f"{kind}/")
        }
        return {name: commit for name, commit in refs.items() if commit is not None}

    def resolve(self, ref: str) -> str:
        """Return the id of the commit that a branch, a tag or an id names."""
        return {**self.named("tag"), **self.named("branch")}.get(ref, ref)

    def history(self, ref: str) -> Iterator[str]:
        """Yield the ids of a commit and its first parents, as far as they are retained."""
        id = self.resolve(ref)
        while (commit := self.refs.get(f"commit/{id}")) is not None:
            yield id
            if not commit["parents"]:
                return
            id = commit["parents"][0]

    def tree(self, ref: str) -> dict[str, Entry]:
        """Return the entries of a commit by their keys."""
        tree = self.refs[f"commit/{self.resolve(ref)}"]["tree"]
        ranges = (
            [identity.decode() for _, identity, _ in sstable((self.root / "_lakefs" / tree).read_bytes())]
            if tree
            else []
        )
        tables = ((self.root / "_lakefs" / name).read_bytes() for name in ranges)
        return {key.decode(): Entry.of(value) for table in tables for key, _, value in sstable(table)}

    def read(self, entry: Entry) -> bytes:
        """Return the bytes of an entry."""
        data = (self.root / entry.address).read_bytes()
        if "lake.offset" in entry.metadata:
            data = data[int(entry.metadata["lake.offset"]) :][: int(entry.metadata["lake.length"])]
        if entry.address.startswith("_lake/objects/"):
            assert hashlib.sha256(data).hexdigest() == entry.etag
        return data

    def datasets(self, ref: str) -> dict[str, str]:
        """Return the formats of a commit's datasets by their paths."""
        registry = {
            key.removeprefix("_lake/datasets/"): entry
            for key, entry in self.tree(ref).items()
            if key.startswith("_lake/datasets/")
        }
        return {
            path: entry.metadata["format"]
            for path, entry in registry.items()
            if entry.metadata.get("dropped") != "true"
        }

    def delta(self, ref: str, path: str) -> pa.Table:
        """Return the rows of a Delta table that has neither partitions nor deletion vectors."""
        files: dict[str, None] = {}
        for key, entry in sorted(self.tree(ref).items()):
            if key.startswith(f"{path}/_delta_log/"):
                for line in io.BytesIO(self.read(entry)):
                    action = json.loads(line)
                    if "add" in action:
                        files[action["add"]["path"]] = None
                    elif "remove" in action:
                        files.pop(action["remove"]["path"], None)
        return pa.concat_tables([pq.read_table(self.root / path / file) for file in files])
