"""Export of a whole lakeFS repository from commits.

`lakectl refs-restore` loads it into a bare repository over the same storage.

`_lakefs/<id>`: ranges and metaranges by lakeFS's own parameters, those of the trees and those that dump commits,
branches and tags · `_lakefs/refs_manifest.json`: the names of these three · `data/…`: the objects, each once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.errors import AlreadyExists
from lake_core.graveler import wire
from lake_core.graveler.build import put_table
from lake_core.graveler.commit import Commit
from lake_core.graveler.entry import AddressType, Entry
from lake_core.graveler.graveler import Graveler
from lake_core.graveler.identity import METARANGES
from lake_core.graveler.profile import LAKEFS
from lake_core.graveler.record import Record
from lake_core.graveler.table_writer import write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Executor

    from lake_core.store import ObjectStore

_MANIFEST = "_lakefs/refs_manifest.json"
_PACKAGE = "io.treeverse.lakefs.graveler"
_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    commits: Mapping[str, str]
    """The id of each commit in the export, by its original id. It differs because the name of the tree does."""
    manifest: Mapping[str, str]
    """The content of `refs_manifest.json`."""
    copied: int
    """Objects that were copied. Those that an earlier export had copied are not counted."""
    copied_bytes: int


def export_commits(
    commits: Iterable[Commit],
    target: ObjectStore,
    *,
    records: Callable[[Commit], Iterable[Record]],
    read: Callable[[Entry], bytes],
    branches: Mapping[str, str],
    tags: Mapping[str, str] | None = None,
    workers: int = 8,
) -> Exported:
    """Write commits with their trees and objects as a lakeFS repository's storage namespace into `target`.

    `records` gives a commit's whole tree, sorted by key, with entries as values: of a `Graveler`, `lambda commit:
    graveler.scan(commit.metarange_id)`. `read` returns the bytes of an entry's object; it is called from up to
    `workers` threads, once for each address. `branches` and `tags` name commits by their ids. Parents that are not
    among the commits are left out: history begins after them.

    The manifest is written last, so an interrupted export is not valid yet; a repeated one copies only what is missing.
    Raises ValueError for branches and tags that name none of the commits, for commits in a cycle, and for a tree that
    is not sorted.
    """
    ordered = _ancestors_first(commits)
    for kind, refs in (("branch", branches), ("tag", tags or {})):
        for name, named in refs.items():
            if named not in ordered:
                raise ValueError(f"the {kind} {name!r} names the commit {named!r}, which is not exported")
    trees = Graveler(target, profile=LAKEFS)
    with runtime.thread_pool(workers) as pool:
        copier = _Copier(target, read, pool)
        written: dict[str, Commit] = {}
        for commit in ordered.values():
            built = trees.build("", copier.moved(records(commit)))
            parents = [written[parent] for parent in commit.parents if parent in written]
            created = Commit.create(
                commit.committer,
                commit.message,
                commit.creation_date,
                built.tree,
                metadata=commit.metadata,
                parents=parents,
            )
            written[commit.id] = replace(created, version=commit.version)
    new = {old: commit.id for old, commit in written.items()}
    manifest = {
        "commits_meta_range_id": _dump(
            trees, "commit", "CommitData", ((commit.id, commit.id, commit.encode()) for commit in written.values())
        ),
        "tags_meta_range_id": _dump(trees, "tag", "TagData", _refs(tags or {}, new)),
        "branches_meta_range_id": _dump(trees, "branch", "BranchData", _refs(branches, new)),
    }
    target.put(_MANIFEST, json.dumps(manifest, indent=2).encode())
    return Exported(new, manifest, copier.count, copier.bytes)


def _ancestors_first(commits: Iterable[Commit]) -> dict[str, Commit]:
    """Return the commits by id, each after its parents. It does not recurse, because histories can be long."""
    by_id = {commit.id: commit for commit in commits}
    out: dict[str, Commit] = {}
    for start in by_id.values():
        path, on_path = [(start, iter(start.parents))], {start.id}
        while path:
            commit, parents = path[-1]
            parent = next((parent for parent in parents if parent in by_id and parent not in out), None)
            if parent is None:
                out[commit.id] = commit
                on_path.discard(commit.id)
                path.pop()
            elif parent in on_path:
                raise ValueError(f"the commit {parent!r} is its own ancestor")
            else:
                path.append((by_id[parent], iter(by_id[parent].parents)))
                on_path.add(parent)
    return out


class _Copier:
    """Copies objects, and sets the address of each record to that of the copy."""

    def __init__(self, target: ObjectStore, read: Callable[[Entry], bytes], pool: Executor) -> None:
        self._target = target
        self._read = read
        self._pool = pool
        self._copied: set[str] = set()
        self.count = 0
        self.bytes = 0

    def moved(self, records: Iterable[Record]) -> Iterator[tuple[bytes, Record]]:
        """Yield the records with relative addresses below `data/`, after their objects were copied there."""
        source = iter(records)
        while batch := list(islice(source, _BATCH)):
            entries = [Entry.decode(record.value) for record in batch]
            names = [_data_key(entry) for entry in entries]
            missing = {name: entry for name, entry in zip(names, entries, strict=True) if name not in self._copied}
            for size in self._pool.map(self._copy, missing, missing.values()):
                self.count += size is not None
                self.bytes += size or 0
            self._copied.update(missing)
            for record, entry, name in zip(batch, entries, names, strict=True):
                # lakeFS distinguishes contents only by size and etag, so any other difference has to go into one of
                # these.
                etag = entry.etag if entry.identity == record.identity else record.identity.hex()
                moved = replace(entry, address=name, address_type=AddressType.RELATIVE, etag=etag)
                yield record.key, moved.record(record.key)

    def _copy(self, name: str, entry: Entry) -> int | None:
        """Copy an object. Returns the bytes copied, or None if it already exists."""
        if self._target.exists(name):
            return None
        data = self._read(entry)
        try:
            self._target.put(name, data, if_absent=True)
        except AlreadyExists:
            return None
        return len(data)


def _data_key(entry: Entry) -> str:
    """Return the key of an object in the export. It is derived from the content: a second export finds the object."""
    named = hashlib.sha256(f"{entry.address_type:d} {entry.size} {entry.etag} {entry.address}".encode()).hexdigest()
    return f"data/{named[:4]}/{named}"


def _refs(refs: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, bytes]]:
    """Yield the rows of branches or tags. A dump has the same fields for both: a name and a commit."""
    for name, commit in refs.items():
        yield name, new[commit], wire.put_text(1, name) + wire.put_text(2, new[commit])


def _dump(trees: Graveler, entity: str, message: str, rows: Iterable[tuple[str, str, bytes]]) -> str:
    """Write a tree of references: (name, commit id, message). Returns its name."""
    schema = json.dumps(_SCHEMAS[message], separators=(",", ":"))
    properties = {"entity": entity, "schema_name": f"{_PACKAGE}.{message}", "schema_definition": schema}
    ordered = sorted(
        (Record(name.encode(), commit.encode(), data) for name, commit, data in rows), key=lambda record: record.key
    )
    tree = trees.build("", ((record.key, record) for record in ordered), properties=properties).tree
    if not tree:
        # In a dump, the empty tree has a name and a file, too.
        empty = write_table((), (), {**properties, **METARANGES})
        put_table(trees.reader, empty)
        tree = empty.id
    return tree


def _field(name: str, number: int, kind: str, *, repeated: bool = False, of: str = "") -> dict[str, object]:
    """Describe a field of a message in the JSON form of protocol buffers' descriptors."""
    words = name.split("_")
    out: dict[str, object] = {
        "name": name,
        "number": number,
        "label": "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL",
    }
    out["type"] = f"TYPE_{kind}"
    if of:
        out["typeName"] = of
    return out | {"jsonName": words[0] + "".join(word.capitalize() for word in words[1:])}


_SCHEMAS: Mapping[str, Mapping[str, object]] = {
    "CommitData": {
        "name": "CommitData",
        "field": [
            _field("id", 1, "STRING"),
            _field("committer", 2, "STRING"),
            _field("message", 3, "STRING"),
            _field("creation_date", 4, "MESSAGE", of=".google.protobuf.Timestamp"),
            _field("meta_range_id", 5, "STRING"),
            _field("metadata", 6, "MESSAGE", repeated=True, of=f".{_PACKAGE}.CommitData.MetadataEntry"),
            _field("parents", 7, "STRING", repeated=True),
            _field("version", 8, "INT32"),
            _field("generation", 9, "INT32"),
        ],
        "nestedType": [
            {
                "name": "MetadataEntry",
                "field": [_field("key", 1, "STRING"), _field("value", 2, "STRING")],
                "options": {"mapEntry": True},
            }
        ],
    },
    "BranchData": {
        "name": "BranchData",
        "field": [
            _field("id", 1, "STRING"),
            _field("commit_id", 2, "STRING"),
            _field("staging_token", 3, "STRING"),
            _field("sealed_tokens", 4, "STRING", repeated=True),
            _field("hidden", 5, "BOOL"),
        ],
    },
    "TagData": {"name": "TagData", "field": [_field("id", 1, "STRING"), _field("commit_id", 2, "STRING")]},
}
"""The descriptions of a dump's messages, which its properties refer to."""
