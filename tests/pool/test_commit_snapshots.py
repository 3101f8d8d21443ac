"""Snapshots of commits, which are decoded as columns, hold what decoding their records one by one gives."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import pytest

from lake_core.pool import PoolLake
from lake_core.pool.action import AddObject, action_of
from lake_core.pool.commit_snapshot import CommitSnapshot, decode_snapshot, encode_snapshot
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import InvalidZng
from lake_core.pool.ksuid import NIL, format_ksuid, format_ksuids, new_ksuid
from lake_core.pool.metadata import decode_metadata, id_value, named_record
from lake_core.pool.types import FLOAT64, INT64, STRING, TIME
from lake_core.pool.value import NULL_VALUE, Value
from lake_core.pool.zng.writer import encode_values
from lake_core.store import MemoryStore
from tests.pool.cases import zng_files

_KEYS = [
    (Value.of(TIME, 1_700_000_000_000_000_000), Value.of(TIME, 1_700_000_000_000_000_001)),
    (Value.of(STRING, ""), Value.of(STRING, "é" * 100)),
    (Value.of(INT64, -1), Value.of(FLOAT64, 1.5)),
    (NULL_VALUE, NULL_VALUE),
    (Value.of(INT64, 1), Value(INT64, None)),
]


def objects_with_keys_of_all_kinds(count: int) -> list[DataObject]:
    now = datetime.now(UTC)
    return [
        DataObject(new_ksuid(now), *_KEYS[number % len(_KEYS)], count=number, size=number << 20)
        for number in range(count)
    ]


def decoded_one_by_one(data: bytes) -> CommitSnapshot:
    actions = [action_of(value) for value in decode_metadata(data)]
    added = {action.object.id: action.object for action in actions if isinstance(action, AddObject)}
    if not added or len(added) + actions.count(None) < len(actions):
        raise InvalidZng("not a snapshot")
    return CommitSnapshot(added, None in actions)


def outcome(decode: object, data: bytes) -> CommitSnapshot | None:
    try:
        snapshot: CommitSnapshot = decode(data)  # type: ignore[operator]
    except InvalidZng:
        return None
    return snapshot


def test_a_snapshot_holds_the_data_objects_that_were_encoded() -> None:
    objects = objects_with_keys_of_all_kinds(3000)
    assert decode_snapshot(encode_snapshot(objects)) == CommitSnapshot({each.id: each for each in objects}, False)


def test_snapshots_by_zed_hold_the_objects_of_their_records() -> None:
    snapshots = {name: data for name, data in zng_files().items() if name.endswith(".snap.zng") and "/commits/" in name}
    assert len(snapshots) > 20
    assert {name: outcome(decode_snapshot, data) for name, data in snapshots.items()} == {
        name: outcome(decoded_one_by_one, data) for name, data in snapshots.items()
    }


@pytest.mark.parametrize("seed", range(4))
def test_an_altered_snapshot_is_refused_wherever_its_records_are(seed: int) -> None:
    rng = random.Random(seed)
    data = encode_values([AddObject(each).to_value(NIL) for each in objects_with_keys_of_all_kinds(5)])
    for _ in range(100):
        altered = bytearray(data)
        for _ in range(rng.choice((1, 1, 4))):
            altered[rng.randrange(len(altered))] = rng.randrange(256)
        assert outcome(decode_snapshot, bytes(altered)) == outcome(decoded_one_by_one, bytes(altered))


def test_a_snapshot_that_is_cut_short_anywhere_is_refused() -> None:
    data = encode_snapshot(objects_with_keys_of_all_kinds(3))
    assert [size for size in range(len(data)) if outcome(decode_snapshot, data[:size]) is not None] == []


@pytest.mark.parametrize("kind", ["commits.Commit", "commits.Delete", ""])
def test_a_snapshot_with_other_records_is_refused(kind: str) -> None:
    (added,) = objects_with_keys_of_all_kinds(1)
    other = named_record(kind, {"commit": id_value(NIL), "id": id_value(added.id)})
    with pytest.raises(InvalidZng, match="not part of a snapshot"):
        decode_snapshot(encode_values([AddObject(added).to_value(NIL), other]))


def test_a_snapshot_with_an_object_twice_is_refused() -> None:
    with pytest.raises(InvalidZng, match="twice"):
        decode_snapshot(encode_snapshot(objects_with_keys_of_all_kinds(1) * 2))


def test_a_snapshot_with_a_vector_says_so() -> None:
    (added,) = objects_with_keys_of_all_kinds(1)
    vector = named_record("commits.AddVector", {"commit": id_value(NIL), "id": id_value(added.id)})
    assert decode_snapshot(encode_values([AddObject(added).to_value(NIL), vector])).has_others


def test_a_damaged_snapshot_is_replaced_by_the_commits() -> None:
    store = MemoryStore()
    pool = PoolLake.create(store).create_pool("p", key="k")
    for number in range(3):
        pool.load([{"k": number}])
    expected = pool.objects()
    commits = CommitStore(store, pool.config.id)
    commits.write_snapshot(pool.tip())
    store.put(commits.snapshot_key(pool.tip()), store.get(commits.snapshot_key(pool.tip()))[:-1])
    assert pool.objects() == expected


def test_many_ids_have_the_texts_of_each() -> None:
    ids = np.random.default_rng(1).integers(0, 256, (500, 20), np.uint8)
    ids[:3] = [[0] * 20, [255] * 20, [0] * 19 + [61]]
    assert format_ksuids(ids) == [format_ksuid(bytes(each)) for each in ids]


def test_no_ids_have_no_texts() -> None:
    assert format_ksuids(np.zeros((0, 20), np.uint8)) == []
