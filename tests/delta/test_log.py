"""The log as others leave it: hints that lie, damaged checkpoints, gaps, hostile paths, unknown actions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    CorruptCheckpoint,
    CorruptCommit,
    DataFileMissing,
    DeltaError,
    LogGap,
    MalformedMetadata,
    MalformedProtocol,
    PathOutsideTable,
    UnsupportedReaderFeature,
    UnsupportedWriterFeature,
    VersionNotFound,
)
from lake_core.delta.log_segment import checkpoint_key, commit_key, list_log, log_exists
from lake_core.delta.path import data_key, encode_path, partition_folder
from lake_core.delta.snapshot import DamagedCheckpointWarning
from lake_core.store import LocalStore, MemoryStore
from tests.delta.tables import SCHEMA, ids, instant, rows

HINT = "_delta_log/_last_checkpoint"


@pytest.fixture
def store() -> MemoryStore:
    """Create versions 0 to 12 with checkpoints at 5 and 10."""
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties={"delta.checkpointInterval": "5"})
    for number in range(12):
        table.append(rows(number, number + 1))
    return store


def _edit(store: MemoryStore, version: int, **changes: Any) -> None:
    lines = [json.loads(line) for line in store.get(commit_key(version)).splitlines()]
    for line in lines:
        for action, fields in changes.items():
            if action in line:
                line[action] |= fields
    store.put(commit_key(version), "\n".join(map(json.dumps, lines)).encode())


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b'{"version":"5"}',
        b'{"version":5}',
        b'{"version":7}',
        b'{"version":99}',
        b'{"version":-1}',
        b"\xff" * 10,
        b"[" * 100000,
    ],
)
def test_a_hint_is_only_a_hint(store: MemoryStore, hint: bytes) -> None:
    store.put(HINT, hint)
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(12))
    assert ids(DeltaTable.open(store, version=6).to_arrow()) == list(range(6))


def test_a_hint_never_points_back(store: MemoryStore) -> None:
    DeltaTable.open(store, version=7).checkpoint()
    assert json.loads(store.get(HINT))["version"] == 10
    assert store.exists(checkpoint_key(7))


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"garbage" * 50])
def test_a_damaged_checkpoint_is_told_and_replaced_by_older_files(store: MemoryStore, damage: bytes) -> None:
    store.put(checkpoint_key(10), damage)
    with pytest.warns(DamagedCheckpointWarning, match="00000000000000000010.checkpoint.parquet"):
        table = DeltaTable.open(store)
    assert ids(table.to_arrow()) == list(range(12))
    store.delete([commit_key(3)])
    with pytest.warns(DamagedCheckpointWarning):
        assert ids(DeltaTable.open(store).to_arrow()) == list(range(12))
    store.put(checkpoint_key(5), damage)
    with pytest.raises(CorruptCheckpoint, match=r"10\.checkpoint\.parquet"):
        DeltaTable.open(store)


def test_a_checkpoint_damaged_inside_is_found_when_it_is_read(store: MemoryStore) -> None:
    good = bytes(store.get(checkpoint_key(10)))
    outcomes = {"right": 0, "error": 0}
    import warnings

    for at in range(4, len(good) - 8, 97):
        bad = bytearray(good)
        bad[at] ^= 0xFF
        store.put(checkpoint_key(10), bytes(bad))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read_ids = ids(DeltaTable.open(store).to_arrow())
            except DeltaError:
                outcomes["error"] += 1
                continue
        assert read_ids == list(range(12)), f"byte {at}"
        outcomes["right"] += 1
    assert outcomes["right"] > 10


def test_gaps_are_named(store: MemoryStore) -> None:
    store.delete([commit_key(11)])
    with pytest.raises(LogGap, match="commit 11 is missing"):
        DeltaTable.open(store)
    assert ids(DeltaTable.open(store, version=10).to_arrow()) == list(range(10))
    store.delete([commit_key(number) for number in range(5)])
    assert ids(DeltaTable.open(store, version=8).to_arrow()) == list(range(8))
    with pytest.raises(VersionNotFound, match="cleaned up: the oldest version that can be opened is 5"):
        DeltaTable.open(store, version=4)


@pytest.mark.parametrize(
    "tail",
    [
        b'{"add":{"path":"x"',
        b"nonsense\n",
        b"[1]\n",
        b'{"add":{"path":1}}\n',
        b'{"add":{"size":1}}\n',
        b'{"txn":{"version":1}}\n',
    ],
)
def test_a_commit_that_is_none_is_an_error(store: MemoryStore, tail: bytes) -> None:
    store.put(commit_key(12), bytes(store.get(commit_key(12))) + tail)
    with pytest.raises(DeltaError, match="12"):
        DeltaTable.open(store)


def test_a_cut_commit_names_its_file(store: MemoryStore) -> None:
    store.put(commit_key(11), bytes(store.get(commit_key(11)))[:-20])
    with pytest.raises(CorruptCommit, match=r"00000000000000000011\.json"):
        DeltaTable.open(store)


def test_unknown_actions_fields_and_files_are_ignored(store: MemoryStore) -> None:
    extra = b'{"somethingNew":{"path":["deep",{"er":1}]}}\n\n  \n{"add":null,"remove":null}\r\n'
    _edit(store, 12, add={"newField": {"a": [1]}, "tags": None})
    store.put(commit_key(12), bytes(store.get(commit_key(12))) + b"\n" + extra)
    for name in (
        "00000000000000000013.crc",
        ".00000000000000000013.json.crc",
        "00000000000000000013.json.tmp",
        "x",
        "_changes/1.json",
        "13.json",
    ):
        store.put(f"_delta_log/{name}", b"?")
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(12))


def test_what_is_a_log() -> None:
    version, other = "00000000000000000001", "80a083e8-7026-4e79-81be-64bd76c43a11"
    strange = [
        "notes.json",
        "13.json",
        f"{version}.json.tmp",
        f"{version}.crc",
        "_last_checkpoint",
        f"{version}.checkpoint.x.json",
        f"_changes/{version}.json",
    ]
    part = f"{version}.checkpoint.0000000002.0000000002.parquet"
    for logs in (
        [f"{version}.json"],
        [f"{version}.checkpoint.parquet"],
        [f"{version}.checkpoint.{other}.json"],
        [part, part.replace("2.000", "1.000")],
    ):
        store = MemoryStore()
        for name in [*strange, part]:
            store.put(f"_delta_log/{name}", b"{}")
        assert not log_exists(store)
        for name in logs:
            store.put(f"_delta_log/{name}", b"")
        assert log_exists(store)
        listing = list_log(store)
        assert listing.commits or listing.checkpoints


def test_a_log_is_found_at_its_first_file(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(store.list("_delta_log/"))

    def first_only(prefix: str, start_after: str = "") -> Any:
        yield next(meta for meta in whole if meta.key.endswith(".json"))
        pytest.fail("listed on")

    monkeypatch.setattr(store, "list", first_only)
    assert log_exists(store)


def test_properties_that_another_writer_set_do_not_fail_checkpoints(store: MemoryStore) -> None:
    properties = {"delta.deletedFileRetentionDuration": "interval 1 month", "delta.checkpointInterval": "0"}
    _edit(store, 0, metaData={"configuration": properties})
    for version in (5, 10):
        store.delete([checkpoint_key(version)])
    table = DeltaTable.open(store, clock=lambda: instant("2300-01-01T00:00:00"))
    table.overwrite(rows(0, 1))
    table.checkpoint()
    store.delete([commit_key(version) for version in range(14)])
    reopened = DeltaTable.open(store)
    assert len(reopened.snapshot.tombstones()) == 12, "how long they are wanted is unknown, so none is forgotten"
    for _ in range(7):
        reopened.append(rows(1, 2))
    assert store.exists(checkpoint_key(20))


def test_tags_are_carried_into_checkpoints(store: MemoryStore) -> None:
    _edit(store, 12, add={"tags": {"INSERTION_TIME": "1", "none": None}})
    table = DeltaTable.open(store)
    table.checkpoint()
    for version in range(13):
        store.delete([commit_key(version)])
    reopened = DeltaTable.open(store)
    tags = [row for row in reopened.snapshot.files(["tags"])["tags"].to_pylist() if row is not None]
    assert tags == [[("INSERTION_TIME", "1"), ("none", None)]]
    reopened.checkpoint()
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(12))


@pytest.mark.parametrize(
    ("protocol", "error"),
    [
        ({"minReaderVersion": 3, "minWriterVersion": 7}, MalformedProtocol),
        ({"minReaderVersion": 1, "minWriterVersion": 7}, MalformedProtocol),
        ({"minReaderVersion": 3, "minWriterVersion": 2, "readerFeatures": []}, MalformedProtocol),
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": []},
            MalformedProtocol,
        ),
        (
            {"minReaderVersion": 4, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []},
            UnsupportedReaderFeature,
        ),
        ({"minReaderVersion": 4, "minWriterVersion": 7}, UnsupportedReaderFeature),
        (
            {"minReaderVersion": 5, "minWriterVersion": 8, "readerFeatures": ["x"], "writerFeatures": []},
            UnsupportedReaderFeature,
        ),
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]},
            UnsupportedReaderFeature,
        ),
    ],
)
def test_protocols_that_cannot_be_read(protocol: dict[str, Any], error: type[DeltaError]) -> None:
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA)
    _edit(store, 0, protocol=protocol)
    with pytest.raises(error):
        DeltaTable.open(store)


def test_the_protocol_is_looked_at_before_the_definition() -> None:
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA)
    _edit(store, 0, protocol={"minReaderVersion": 4, "minWriterVersion": 7}, metaData={"schemaString": None})
    with pytest.raises(UnsupportedReaderFeature, match="reader version 4"):
        DeltaTable.open(store)


SPELLINGS = ["./{}", "p/../{}", "././{}", "p/.//../{}", "./p/q/../../{}", "{root}/./{}", "file://{root}/p/..//{}"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_paths_with_dots_are_those_without(tmp_path: Path, spelling: str) -> None:
    """Another writer spells a file in two ways: the log, a checkpoint, removes and a vacuum know that it is one."""
    store = LocalStore(tmp_path)
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 1))
    text = store.get(commit_key(1)).decode()
    plain = json.loads(text.splitlines()[-1])["add"]["path"]
    dotted = spelling.format(plain, root=tmp_path)
    same = f"{tmp_path}/{plain}" if "root" in spelling else plain
    store.put(commit_key(1), text.replace(plain, dotted).encode())
    table = DeltaTable.open(store)
    assert ids(table.to_arrow()) == [0]
    assert table.files()["path"].to_pylist() == [plain]
    assert not table.vacuum("0 hours", allow_unsafe=True, orphans="delta").files
    table.append(rows(1, 2))
    checkpoint = table.version
    table.checkpoint()
    remove = {"path": same, "deletionTimestamp": 1, "dataChange": True}
    store.put(commit_key(checkpoint + 1), json.dumps({"remove": remove}).encode())
    assert ids(table.refresh().to_arrow()) == [1]
    add = {"path": same, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    store.put(commit_key(checkpoint + 2), json.dumps({"add": add}).encode())
    remove = {**remove, "path": dotted}
    store.put(commit_key(checkpoint + 3), json.dumps({"remove": remove}).encode())
    assert ids(table.refresh().to_arrow()) == [1]
    assert table.vacuum("0 hours", allow_unsafe=True).files.to_pylist() == [plain]


def test_a_file_with_a_dotted_path_is_removed_by_the_path_that_the_log_has(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    DeltaTable.create(store, SCHEMA).append(rows(0, 2))
    text = store.get(commit_key(1)).decode()
    plain = json.loads(text.splitlines()[-1])["add"]["path"]
    store.put(commit_key(1), text.replace(plain, f"./{plain}").encode())
    table = DeltaTable.open(store)
    table.delete("id = 0")
    actions = [json.loads(line) for line in store.get(commit_key(2)).splitlines()]
    assert [action["remove"]["path"] for action in actions if "remove" in action] == [f"./{plain}"]
    assert ids(table.to_arrow()) == [1]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x", "leads out of the table's root"),
        ("p/../../x", "leads out of the table's root"),
        ("/etc/passwd", "is not under the table's root"),
        ("%2E/x", "cannot be a file's path"),
        ("a%00b", "cannot be a file's path"),
    ],
)
def test_the_reason_why_a_path_is_refused(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(PathOutsideTable, match=reason):
        data_key(path, LocalStore(tmp_path))


@pytest.mark.parametrize("spelling", ["file:", "file://", ""])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_absolute_path_is_one_file_however_it_is_spelled(spelling: str, checkpoint: bool) -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    add = {"path": "/else/where%20it/is", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    store.put(commit_key(1), json.dumps({"add": add}).encode())
    if checkpoint:
        table.refresh().checkpoint()
    remove = {"path": f"{spelling}/else/where%20it/is", "deletionTimestamp": 2, "dataChange": True}
    store.put(commit_key(2), json.dumps({"remove": remove}).encode())
    assert DeltaTable.open(store, version=1).snapshot.files(["path"]).num_rows == 1
    assert DeltaTable.open(store).files().num_rows == 0


def test_a_table_may_get_its_columns_after_its_creation(store: MemoryStore) -> None:
    definition = next(line for line in store.get(commit_key(0)).splitlines() if b'"metaData"' in line)
    _edit(store, 0, metaData={"schemaString": None, "partitionColumns": []})
    store.put(commit_key(1), definition + b"\n" + store.get(commit_key(1)))
    store.delete([HINT, checkpoint_key(5), checkpoint_key(10)])
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(12))
    assert ids(DeltaTable.open(store, version=1).to_arrow()) == [0]
    with pytest.raises(MalformedMetadata, match="schemaString"):
        DeltaTable.open(store, version=0)


@pytest.mark.parametrize(
    ("protocol", "configuration", "feature"),
    [
        ({"minWriterVersion": 7, "writerFeatures": ["someday"]}, {}, "someday"),
        ({"minWriterVersion": 7, "writerFeatures": ["appendOnly", "collations"]}, {}, "collations"),
        ({"minWriterVersion": 8, "writerFeatures": []}, {}, "writerVersion=8"),
    ],
)
def test_tables_that_are_read_but_not_written(
    protocol: dict[str, Any], configuration: dict[str, str], feature: str
) -> None:
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA).append(rows(0, 2))
    _edit(store, 0, protocol=protocol, metaData={"configuration": configuration})
    table = DeltaTable.open(store)
    assert ids(table.to_arrow()) == [0, 1]
    before = list(store.list())
    for write in (lambda: table.append(rows(2, 3)), lambda: table.overwrite(rows(2, 3)), table.checkpoint):
        with pytest.raises(UnsupportedWriterFeature) as caught:
            write()
        assert caught.value.feature == feature
    assert list(store.list()) == before


@pytest.mark.parametrize(
    "metadata",
    [
        {"schemaString": None},
        {"schemaString": "nonsense"},
        {"schemaString": '"long"'},
        {"schemaString": '{"type":"struct","fields":[{"name":"a"}]}'},
        {"schemaString": '{"type":"struct","fields":[{"name":1,"type":"long"}]}'},
        {"schemaString": '{"type":"array","elementType":' * 500 + '"long"' + ',"containsNull":true}' * 500},
        {"schemaString": "[" * 100000},
        {"partitionColumns": ["nope"]},
        {"format": {"provider": "csv"}},
    ],
)
def test_metadata_that_makes_no_sense(metadata: dict[str, Any]) -> None:
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA)
    _edit(store, 0, metaData=metadata)
    with pytest.raises(MalformedMetadata):
        DeltaTable.open(store)


@pytest.mark.parametrize(
    "path",
    [
        "../x.parquet",
        "a/../../x",
        "%2E%2E/x",
        "/etc/passwd",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "s3://other/x",
        "hdfs://n/x",
        "p/../../x",
        "./../x",
        "p/..",
        "%2E/x",
        "p/",
        "",
        "a%00b",
        "a\nb",
    ],
)
def test_paths_outside_the_table_are_refused(tmp_path: Path, path: str) -> None:
    store = LocalStore(tmp_path / "t")
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 1))
    text = store.get(commit_key(1)).decode()
    data_path = json.loads(text.splitlines()[-1])["add"]["path"]
    store.put(commit_key(1), text.replace(json.dumps(data_path), json.dumps(path)).encode())
    with pytest.raises(PathOutsideTable):
        DeltaTable.open(store).to_arrow()


@pytest.mark.parametrize("spell", ["file://{}", "file:{}", "{}"])
def test_absolute_paths_inside_the_table_are_fine(tmp_path: Path, spell: str) -> None:
    store = LocalStore(tmp_path / "t %41")
    DeltaTable.create(store, SCHEMA).append(rows(0, 1))
    text = store.get(commit_key(1)).decode()
    relative = json.loads(text.splitlines()[-1])["add"]["path"]
    absolute = spell.format(encode_path(store.url(relative).removeprefix("file://")))
    store.put(commit_key(1), text.replace(relative, absolute).encode())
    assert ids(DeltaTable.open(store).to_arrow()) == [0]


def test_paths_are_decoded_exactly_once() -> None:
    store = MemoryStore()
    key = partition_folder(("p", "q"), ("50% a/b", None)) + "x+y.parquet"
    assert key == "p=50%25 a%2Fb/q=__HIVE_DEFAULT_PARTITION__/x+y.parquet"
    assert encode_path(key) == "p=50%2525%20a%252Fb/q=__HIVE_DEFAULT_PARTITION__/x+y.parquet"
    assert data_key(encode_path(key), store) == key


def test_a_vacuumed_file_says_so(store: MemoryStore) -> None:
    table = DeltaTable.open(store)
    store.delete([table.files()["path"][0].as_py()])
    with pytest.raises(DataFileMissing, match="vacuumed"):
        table.to_arrow()
