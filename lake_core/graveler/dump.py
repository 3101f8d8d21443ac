"""Dumps: trees of a lakeFS repository's commits, branches and tags, whose properties describe their messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lake_core.graveler import wire
from lake_core.graveler.build import put_table
from lake_core.graveler.identity import METARANGES
from lake_core.graveler.record import Record
from lake_core.graveler.table_writer import write_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lake_core.graveler.commit import Commit
    from lake_core.graveler.graveler import Graveler

_PACKAGE = "io.treeverse.lakefs.graveler"


def write_dumps(
    trees: Graveler, commits: Iterable[Commit], branches: Mapping[str, str], tags: Mapping[str, str]
) -> dict[str, str]:
    """Write the dumps of commits, branches and tags. Return the content of `refs_manifest.json`.

    `branches` and `tags` hold commit ids by name.
    """
    rows = ((commit.id, commit.id, commit.encode()) for commit in commits)
    return {
        "commits_meta_range_id": _dump(trees, "commit", "CommitData", rows),
        "tags_meta_range_id": _dump(trees, "tag", "TagData", _refs(tags)),
        "branches_meta_range_id": _dump(trees, "branch", "BranchData", _refs(branches)),
    }


def _refs(refs: Mapping[str, str]) -> Iterator[tuple[str, str, bytes]]:
    """Yield the rows of branches or tags. A dump has the same fields for both: a name and a commit."""
    for name, commit in refs.items():
        yield name, commit, wire.put_text(1, name) + wire.put_text(2, commit)


def _dump(trees: Graveler, entity: str, message: str, rows: Iterable[tuple[str, str, bytes]]) -> str:
    """Write a tree of references: (name, commit id, message). Return the name of the tree."""
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
