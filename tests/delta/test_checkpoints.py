"""Checkpoints of every form, damaged in one place: another one or the commits replace them.

A part is never taken for the whole.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.checkpoint import Checkpoint
from lake_core.delta.errors import CorruptCheckpoint, DeltaError, VersionNotFound
from lake_core.delta.log_segment import LAST_CHECKPOINT, SIDECARS_FOLDER, checkpoint_key, commit_key
from lake_core.delta.snapshot import DamagedCheckpointWarning
from lake_core.store import MemoryStore, ObjectStore
from tests.delta.tables import SCHEMA, ids, rows
from tests.journal.stores import ScriptedStore

UUID = "80a083e8-7026-4e79-81be-64bd76c43a1"
VERSION = 8


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def _classic(store: MemoryStore) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(store.get(checkpoint_key(VERSION)))).read()


def classic(store: MemoryStore) -> list[str]:
    return [checkpoint_key(VERSION)]


def multi_part(store: MemoryStore) -> list[str]:
    """Replace the checkpoint file by three parts."""
    table = _classic(store)
    store.delete([checkpoint_key(VERSION)])
    keys = [f"_delta_log/{VERSION:020d}.checkpoint.{part:010d}.0000000003.parquet" for part in (1, 2, 3)]
    for number, key in enumerate(keys):
        store.put(key, _bytes(table.slice(number * 4, 4 if number < 2 else None)))
    return keys


def version_2(store: MemoryStore) -> list[str]:
    """Replace the classic checkpoint by a top-level file and two sidecars with the file actions."""
    table = _classic(store)
    store.delete([checkpoint_key(VERSION)])
    is_file = pc.or_(table["add"].is_valid(), table["remove"].is_valid())
    files, other_actions = (
        table.filter(is_file).select(["add", "remove"]),
        table.filter(pc.invert(is_file)).drop(["add", "remove"]),
    )
    names = [f"{UUID}{number}.parquet" for number in (2, 3)]
    for name, part in zip(names, (files.slice(0, 5), files.slice(5)), strict=True):
        store.put(f"{SIDECARS_FOLDER}/{name}", _bytes(part))
    sidecars = pa.array(
        [{"path": name, "sizeInBytes": 1} for name in names],
        pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())]),
    )
    marks = pa.array([{"version": VERSION}], pa.struct([("version", pa.int64())]))
    top = f"_delta_log/{VERSION:020d}.checkpoint.{UUID}1.parquet"
    parts = [other_actions, pa.table({"sidecar": sidecars}), pa.table({"checkpointMetadata": marks})]
    store.put(top, _bytes(pa.concat_tables(parts, promote_options="default")))
    return [top, *(f"{SIDECARS_FOLDER}/{name}" for name in names)]


FORMS: dict[str, Callable[[MemoryStore], list[str]]] = {
    "classic": classic,
    "multi-part": multi_part,
    "version 2": version_2,
}


def _store() -> MemoryStore:
    """Create versions 0 to 9 with a checkpoint at 8. Every second version empties one partition."""
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"], properties={"delta.checkpointInterval": "100"})
    for number in range(1, 10):
        if number % 2:
            table.append(rows(number * 10, number * 10 + 6), txn=("app", number))
        else:
            table.overwrite(rows(0, 0), where="p = 'p1'")
        if number == VERSION:
            table.checkpoint()
    return store


def _state(store: ObjectStore) -> Any:
    table = DeltaTable.open(store)
    return (
        ids(table.to_arrow()),
        table.files(["path"]).num_rows,
        table.txn_version("app"),
        len(table.snapshot.tombstones()),
        table.snapshot.has_deletion_vectors(),
    )


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "footer": lambda data: data[:-8] + b"\xff\xff\xff\x7f" + data[-4:],
    "pages": lambda data: data[:4] + bytes(200) + data[204:],
    "other": lambda data: _bytes(pa.table({"x": [1]})),
}


def _damage(store: MemoryStore, key: str, damage: str) -> None:
    body = DAMAGES[damage](bytes(store.get(key)))
    store.delete([key]) if body is None else store.put(key, body)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_alone(form: str) -> None:
    store = _store()
    good = _state(store)
    FORMS[form](store)
    store.delete([commit_key(version) for version in range(VERSION + 1)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _state(store) == good


@pytest.mark.parametrize(
    ("form", "damage"),
    [
        pytest.param(form, damage, marks=[] if form == "version 2" or damage == "cut" else pytest.mark.exhaustive)
        for form in FORMS
        for damage in DAMAGES
    ],
)
def test_damage_is_told_and_repaired_or_refused(form: str, damage: str) -> None:
    """Each file of each form is damaged in turn.

    With the commits, the table is read right and a warning names the file. Without them, reading is an error.
    """
    for number in range(3):
        store = _store()
        good = _state(store)
        keys = FORMS[form](store)
        if number >= len(keys):
            continue
        _damage(store, keys[number], damage)
        incomplete = damage == "gone" and (form != "version 2" or number == 0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert _state(store) == good
        named = [warning for warning in caught if issubclass(warning.category, DamagedCheckpointWarning)]
        assert bool(named) != incomplete, "what is not complete is no checkpoint, and no damage"
        assert all(keys[number].rpartition("/")[2] in str(warning.message) or damage == "pages" for warning in named)
        store.delete([commit_key(version) for version in range(VERSION)])
        with warnings.catch_warnings(), pytest.raises(DeltaError):
            warnings.simplefilter("ignore")
            _state(store)


@pytest.mark.parametrize(
    "damage",
    [
        damage if damage in ("gone", "footer") else pytest.param(damage, marks=pytest.mark.exhaustive)
        for damage in DAMAGES
    ],
)
@pytest.mark.parametrize("forms", list(itertools.permutations(FORMS, 2)))
def test_another_checkpoint_of_the_version_stands_in(forms: tuple[str, str], damage: str) -> None:
    for number in range(3):
        store = _store()
        good = _state(store)
        body = bytes(store.get(checkpoint_key(VERSION)))
        keys = FORMS[forms[0]](store)
        if number >= len(keys):
            continue
        store.put(checkpoint_key(VERSION), body)
        if forms[0] == "classic":
            FORMS[forms[1]](store)
            store.put(checkpoint_key(VERSION), body)
        elif forms[1] != "classic":
            FORMS[forms[1]](store)
        _damage(store, keys[number], damage)
        store.delete([commit_key(version) for version in range(VERSION)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert _state(store) == good


def test_a_checkpoint_that_goes_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log cleanup deletes it after the table was opened. The commits still exist, or the error says what happened."""
    store = _store()
    good = ids(DeltaTable.open(store).to_arrow())
    monkeypatch.setattr("lake_core.store.object_file._WHOLE", 0)
    table = DeltaTable.open(store)
    store.delete([checkpoint_key(VERSION)])
    with pytest.warns(DamagedCheckpointWarning, match="gone"):
        assert ids(table.to_arrow()) == good
    store = _store()
    table = DeltaTable.open(store)
    store.delete([checkpoint_key(VERSION), commit_key(3)])
    with pytest.raises(CorruptCheckpoint, match="is gone"):
        table.to_arrow()


def _clean_up(store: MemoryStore) -> None:
    """Write a checkpoint of the newest version, and delete the log before it, as another process would."""
    newest = DeltaTable.open(store)
    newest.checkpoint()
    store.delete([checkpoint_key(VERSION), *(commit_key(version) for version in range(newest.version))])


def test_a_checkpoint_that_is_cleaned_up_while_a_table_is_open_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store()
    monkeypatch.setattr("lake_core.store.object_file._WHOLE", 0)
    table = DeltaTable.open(store)
    good = ids(table.to_arrow())
    table = DeltaTable.open(store)
    _clean_up(store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids(table.to_arrow()) == good


@pytest.mark.parametrize("has_hint", [True, False])
def test_a_checkpoint_that_is_cleaned_up_between_listing_and_reading_is_no_damage(has_hint: bool) -> None:
    store = _store()
    good = _state(store)
    store.delete([commit_key(version) for version in range(VERSION)])
    if not has_hint:
        store.delete([LAST_CHECKPOINT])
    scripted = ScriptedStore(store)

    def on_get(key: str) -> None:
        if key == checkpoint_key(VERSION):
            scripted.on_get = lambda key: None
            _clean_up(store)

    scripted.on_get = on_get
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _state(scripted) == good
    assert not store.exists(checkpoint_key(VERSION))


def test_a_table_that_was_replaced_is_not_read_for_a_checkpoint_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store()
    monkeypatch.setattr("lake_core.store.object_file._WHOLE", 0)
    table = DeltaTable.open(store)
    store.delete([meta.key for meta in list(store.list())])
    replacement = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    for number in range(table.version):
        replacement.append(rows(number, number + 1))
    replacement.checkpoint()
    with pytest.raises(VersionNotFound, match="was replaced"):
        table.to_arrow()


@pytest.mark.parametrize(
    "hint", [{"version": VERSION, "parts": 3}, {"version": 3}, {"version": 9}, {"version": 80, "size": -1}]
)
def test_hints_that_lie(hint: dict[str, int]) -> None:
    store = _store()
    good = _state(store)
    store.put("_delta_log/_last_checkpoint", json.dumps(hint).encode())
    for form in FORMS.values():
        assert _state(store) == good
        body = bytes(store.get(checkpoint_key(VERSION)))
        form(store)
        assert _state(store) == good
        store.put(checkpoint_key(VERSION), body)


def test_what_a_checkpoint_is_read_from() -> None:
    store = _store()
    checkpoint = DeltaTable.open(store).snapshot._checkpoint
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.files.keys == (checkpoint_key(VERSION),)


def test_threads_that_share_a_snapshot_read_its_checkpoint_in_turns() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    for number in range(10):
        table.append(rows(number, number + 1))
    snapshot = DeltaTable.open(store).snapshot
    reading: list[int] = []
    most: list[int] = []

    def only(partitions: pa.Table) -> npt.NDArray[np.bool_]:
        reading.append(1)
        time.sleep(0.02)
        most.append(len(reading))
        reading.pop()
        return np.full(len(partitions), True)

    with ThreadPoolExecutor(4) as pool:
        counts = pool.map(lambda _: len(snapshot.files(["path"], only)), range(4))
        assert list(counts) == [10] * 4
    assert max(most) == 1
