"""A repository that a lakeFS server has written, in `lakefs-1.84.zip`, with what the server's API said of it.

`tests/interop/test_lakefs.py` asks a server itself.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lake_core import Lake
from lake_core.graveler import Entry
from lake_core.graveler.entry_columns import entry_columns
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock

_ARCHIVE = Path(__file__).with_name("lakefs-1.84.zip")


@pytest.fixture
def namespace(store: MemoryStore) -> MemoryStore:
    """The repository's storage namespace."""
    with zipfile.ZipFile(_ARCHIVE) as archive:
        for name in archive.namelist():
            if name.startswith("namespace/"):
                store.put(name.removeprefix("namespace/"), archive.read(name))
    return store


@pytest.fixture
def expected() -> Any:
    """What the server's API said."""
    with zipfile.ZipFile(_ARCHIVE) as archive:
        return json.loads(archive.read("expected.json"))


def test_the_lake_has_what_the_server_had(namespace: MemoryStore, expected: Any, time: ManualClock) -> None:
    lake = Lake.import_lakefs(namespace, clock=time)
    assert lake.list_branches() == expected["branches"]
    assert lake.list_tags() == expected["tags"]
    logged = {
        commit.id: {
            "message": commit.message,
            "committer": commit.committer,
            "parents": list(commit.parents),
            "metadata": commit.metadata,
            "generation": commit.generation,
        }
        for commit in lake.log()
    }
    assert logged == expected["commits"]
    for ref, objects in expected["objects"].items():
        state = lake.at(ref)
        assert {meta.key: state.get(meta.key).decode() for meta in state.list()} == objects
    assert lake.maintenance.verify() == []


def test_trees_built_anew_have_the_servers_names(namespace: MemoryStore, expected: Any, time: ManualClock) -> None:
    lake = Lake.import_lakefs(namespace, clock=time)
    trees = lake.repository.graveler
    for commit in lake.log():
        records = ((record.key, record) for record in trees.scan(commit.metarange_id))
        assert trees.build("", records).tree == commit.metarange_id


def test_the_servers_entries_are_of_the_usual_shape(namespace: MemoryStore, expected: Any, time: ManualClock) -> None:
    lake = Lake.import_lakefs(namespace, clock=time)
    trees, tree = lake.repository.graveler, lake.log(limit=1)[0].metarange_id
    entries = [Entry.decode(record.value) for record in trees.scan(tree)]
    values = [value for _, values in trees.scan_columns(tree) for value in values]
    columns = entry_columns(values)
    assert columns.etags == [entry.etag for entry in entries]
    assert columns.modified == [entry.last_modified // 1000 for entry in entries]


def test_a_lake_that_came_from_lakefs_goes_back(namespace: MemoryStore, expected: Any, time: ManualClock) -> None:
    lake = Lake.import_lakefs(namespace, clock=time)
    with lake.session() as s:
        s.put("new", b"new")
    target = MemoryStore(clock=time)
    lake.maintenance.export(target)
    back = Lake.import_lakefs(target, clock=time)
    assert [meta.key for meta in back.at().list()] == [meta.key for meta in lake.at().list()]
    assert back.at("v1.0").get("files/05.txt") == b"5"
