"""Records that somebody has damaged: errors of ours, whatever was changed."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest

from lake_core import Lake
from lake_core.errors import LakeError
from lake_core.journal import Add, Update
from lake_core.lake.errors import DamagedLake
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import create_tables

JUNK: list[Any] = [None, True, 7, -1, 1.5, "", "junk", [], ["x"], {}, {"a": 1}, "2026-01-01T00:00:00", 10**400]


def _mutated(chance: random.Random, value: Any) -> Any:
    """Return a JSON value with one change somewhere inside."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(sorted(value))
        others = {name: each for name, each in value.items() if name != key}
        return others if chance.random() < 0.3 else others | {key: _mutated(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.5:
        return [_mutated(chance, value[0]), *value[1:]]
    return chance.choice(JUNK)


def _look(lake: Lake) -> None:
    """Run everything that reads records."""
    for look in (
        lake.status,
        lake.log,
        lambda: lake.list_sessions(include_ended=True),
        lake.list_datasets,
        lambda: lake.at("shared"),
        lambda: lake.get_session("shared").join(),
        lambda: lake.get_session("shared").publish(),
        lambda: lake.merge("dev"),
        lambda: list(lake.diff("main~1", "main")),
        lambda: lake.maintenance.gc(dry_run=True),
        lake.maintenance.checkout,
    ):
        with suppress(LakeError):
            look()


def test_mutated_records_of_the_refs(time: ManualClock) -> None:
    chance = random.Random(5)
    for number in range(300):
        store = MemoryStore(clock=time)
        lake = Lake.create(store, clock=time)
        if number % 30 == 0:
            create_tables(lake, "t/a")
        lake.create_branch("dev")
        with lake.session("dev") as s:
            s.put("x", b"1")
        opened = lake.open_session(id="shared")
        with opened.join() as part:
            part.put("y", b"1")
        state = lake.repository.journal.state()
        key = chance.choice(list(state))
        value = _mutated(chance, json.loads(json.dumps(state[key])))
        lake.repository.journal.append(lambda state, key=key, value=value: [Update(key, value)])
        _look(lake)


def test_a_record_that_makes_no_sense_is_named(lake: Lake) -> None:
    head = lake.list_branches()["main"]
    lake.repository.journal.append(lambda state: [Update(f"commit/{head}", {"tree": 1})])
    with pytest.raises(DamagedLake, match=head):
        lake.at("main")


def test_junk_beside_the_lakes_own_files(lake: Lake, store: MemoryStore) -> None:
    store.put("_lake/objects/junk", b"1")
    store.put("_lakefs/junk", b"1")
    store.put("_lake/refs/junk", b"1")
    store.put("_lake/leases/junk", b"1")
    with lake.session() as s:
        s.put("x", b"1")
    assert lake.maintenance.verify() == []
    lake.repository.journal.append(lambda state: [Add("unknown/key", {"a": 1})])
    assert lake.status().branches.keys() == {"main"}
