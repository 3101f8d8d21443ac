"""Time travel by timestamp: files' times made monotone, in-commit timestamps, and the edges of what is known."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.commit_time import CommitTimes
from lake_core.delta.errors import VersionNotFound
from lake_core.delta.log_segment import checkpoint_key, commit_key
from lake_core.store import MemoryStore
from lake_core.testing import ManualClock
from tests.delta.tables import SCHEMA, ids, instant, rows

START = instant("2024-01-01T00:00:00")


def _at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def _store(seconds: list[float], **properties: str) -> MemoryStore:
    """Create a table with one commit for each number of seconds after START. Version n holds the ids below n."""
    now = [START]
    store = MemoryStore(clock=lambda: now[0])
    for number, second in enumerate(seconds):
        now[0] = _at(second)
        if number == 0:
            DeltaTable.create(store, SCHEMA)
        else:
            DeltaTable.open(store).append(rows(number - 1, number))
    if properties:
        _edit(store, 0, metaData={"configuration": properties})
    return store


def _edit(store: MemoryStore, version: int, **changes: Any) -> None:
    lines = [json.loads(line) for line in store.get(commit_key(version)).splitlines()]
    for line in lines:
        for action, fields in changes.items():
            if action in line:
                line[action] |= fields
    _replace(store, version, "\n".join(map(json.dumps, lines)).encode())


def _replace(store: MemoryStore, version: int, data: bytes) -> None:
    """Replace the bytes of a commit, and keep the time at which it was put."""
    put = store.head(commit_key(version)).last_modified
    store._clock = lambda: put
    store.put(commit_key(version), data)


def _version(store: MemoryStore, when: dt.datetime | str) -> int:
    return DeltaTable.open(store, timestamp=when).version


def test_the_last_version_at_or_before() -> None:
    store = _store([0, 10, 20, 30])
    assert [_version(store, _at(second)) for second in (0, 9.999, 10, 10.001, 19.9, 20, 29, 30)] == [
        0,
        0,
        1,
        1,
        1,
        2,
        2,
        3,
    ]
    assert ids(DeltaTable.open(store, timestamp="2024-01-01T00:00:21Z").to_arrow()) == [0, 1]
    assert _version(store, "2024-01-01T02:00:10+02:00") == 1


def test_times_are_made_monotone() -> None:
    store = _store([50, 10, 10, 60, 60])
    assert [row["timestamp"] - int(START.timestamp()) * 1000 for row in DeltaTable.open(store).history()] == [
        60001,
        60000,
        50002,
        50001,
        50000,
    ]
    assert [_version(store, _at(second)) for second in (50, 50.001, 50.002, 59, 60, 60.001)] == [0, 1, 2, 2, 3, 4]
    assert DeltaTable.open(store).history(1)[0]["timestamp"] == DeltaTable.open(store).history()[0]["timestamp"]


def test_outside_of_what_is_known() -> None:
    store = _store([0, 10, 20])
    with pytest.raises(VersionNotFound, match=r"version 0, was committed at 2024-01-01T00:00:00.000\+00:00"):
        _version(store, _at(-0.001))
    with pytest.raises(VersionNotFound, match=r"after the last commit, version 2 at 2024-01-01T00:00:20.000\+00:00"):
        _version(store, _at(20.001))


def test_versions_that_cannot_be_rebuilt_do_not_count() -> None:
    store = _store([0, 10, 20, 30])
    DeltaTable.open(store, version=2).checkpoint()
    store.delete([commit_key(0)])
    assert _version(store, _at(20)) == 2
    with pytest.raises(VersionNotFound, match=r"version 2, was committed at 2024-01-01T00:00:20"):
        _version(store, _at(15))
    store.delete([commit_key(1), commit_key(2), commit_key(3)])
    store.put(checkpoint_key(2), bytes(store.get(checkpoint_key(2))))
    with pytest.raises(VersionNotFound, match="by its version"):
        _version(store, _at(20))


@pytest.mark.parametrize(
    "when", ["2024-01-01", "2024-01-01T00:00:00", dt.datetime(2024, 1, 1), "yesterday", 5, True, dt.date(2024, 1, 1)]
)
def test_what_names_no_instant_is_refused(when: Any) -> None:
    with pytest.raises(ValueError, match=r"no time zone|ISO 8601"):
        DeltaTable.open(_store([0]), timestamp=when)


def test_version_and_timestamp_exclude_one_another() -> None:
    with pytest.raises(ValueError, match="both"):
        DeltaTable.open(_store([0]), version=0, timestamp=START)


def _with_own_times(first: int, **properties: str) -> MemoryStore:
    """Put commits within one second whose in-commit timestamps are an hour apart from version `first` on."""
    store = _store([0, 0.1, 0.2, 0.3, 0.4])
    for version in range(first, 5):
        _edit(store, version, commitInfo={"inCommitTimestamp": int(_at(3600 * version).timestamp() * 1000)})
    _edit(store, 0, metaData={"configuration": {"delta.enableInCommitTimestamps": "true", **properties}})
    return store


def test_in_commit_timestamps_win() -> None:
    store = _with_own_times(0)
    assert [_version(store, _at(3600 * hour)) for hour in (0, 0.5, 1, 3.99, 4)] == [0, 0, 1, 3, 4]
    with pytest.raises(VersionNotFound, match="after the last commit"):
        _version(store, _at(3600 * 4 + 1))
    assert DeltaTable.open(store).history(1)[0]["timestamp"] == int(_at(3600 * 4).timestamp() * 1000)


def test_in_commit_timestamps_count_from_the_version_that_enabled_them() -> None:
    properties = {"delta.inCommitTimestampEnablementVersion": "3", "delta.inCommitTimestampEnablementTimestamp": "0"}
    store = _with_own_times(1, **properties)
    assert [_version(store, at) for at in (_at(0.1), _at(0.2), _at(3599), _at(3600 * 3), _at(3600 * 4))] == [
        1,
        2,
        2,
        3,
        4,
    ]


def test_in_commit_timestamps_of_a_table_that_no_longer_has_them() -> None:
    store = _with_own_times(0, **{"delta.enableInCommitTimestamps": "false"})
    assert _version(store, _at(0.2)) == 2


def test_few_commits_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _with_own_times(0)
    snapshot = DeltaTable.open(store).snapshot
    asked: list[str] = []
    get = MemoryStore._get
    monkeypatch.setattr(MemoryStore, "_get", lambda self, key, *range_: asked.append(key) or get(self, key, *range_))
    assert CommitTimes(snapshot).version_at(_at(3600)) == 1
    assert len(asked) <= 4


def test_a_commit_info_that_does_not_stand_first() -> None:
    store = _with_own_times(0)
    lines = store.get(commit_key(2)).splitlines()
    _replace(store, 2, b"\n".join([b'{"unknown":"%s"}' % (b"x" * 70_000), *lines[1:], lines[0]]))
    assert _version(store, _at(3600 * 2)) == 2
    _edit(store, 2, commitInfo={"inCommitTimestamp": "soon"})
    assert CommitTimes(DeltaTable.open(store).snapshot).at(2) == int(_at(0.2).timestamp() * 1000)


def test_commit_times_can_be_enabled_later() -> None:
    store, clock = MemoryStore(), ManualClock()
    table = DeltaTable.create(store, SCHEMA, clock=clock)
    table.append(rows(0, 2))
    late = DeltaTable.open(store, clock=clock)
    table.append(rows(2, 4))
    late.set_properties({"delta.enableInCommitTimestamps": "true"})
    late.append(rows(4, 6))
    infos = [json.loads(bytes(store.get(commit_key(version))).splitlines()[0])["commitInfo"] for version in range(5)]
    assert ["inCommitTimestamp" in info for info in infos] == [False, False, False, True, True]
    assert late.properties["delta.inCommitTimestampEnablementVersion"] == "3"
    assert late.properties["delta.inCommitTimestampEnablementTimestamp"] == str(infos[3]["inCommitTimestamp"])
    times = [row["timestamp"] for row in late.history()]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 5
    for version, moment in zip(range(4, -1, -1), times, strict=True):
        at = dt.datetime.fromtimestamp(moment / 1000, dt.UTC)
        assert DeltaTable.open(store, timestamp=at).version == version
