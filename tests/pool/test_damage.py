"""Damages lakes at random, and stops writers at every put."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from lake_core.errors import LakeError, StoreUnavailable
from lake_core.pool import PoolLake
from lake_core.pool.errors import DamagedLake, NotALake
from lake_core.store import MemoryStore, ObjectMeta, ObjectStore, open_store
from tests.pool.cases import lake_path


def copy_of(name: str) -> MemoryStore:
    source, target = open_store(lake_path(name)), MemoryStore()
    for each in source.list():
        target.put(each.key, source.get(each.key))
    return target


def read_everything(store: ObjectStore) -> None:
    lake = PoolLake.open(store)
    for config in lake.pools():
        pool = lake.pool(config.name)
        for branch in pool.list_branches():
            list(pool.log(branch.name))
            list(pool.scan(branch.name).records())
            pool.scan(branch.name, start=1, stop=5).to_table()


@pytest.mark.parametrize("name", ["delete-id-v1.18", "many-loads-v1.18", "vectors-v1.6"])
@pytest.mark.parametrize("seed", range(8))
def test_altered_bytes_raise_our_errors_or_go_unnoticed(name: str, seed: int) -> None:
    rng = random.Random(seed)
    store = copy_of(name)
    keys = [each.key for each in store.list()]
    for _ in range(6):
        key = rng.choice(keys)
        data = bytearray(store.get(key))
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
        store.put(key, bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data))
        with suppress(LakeError):
            read_everything(store)


@pytest.mark.parametrize("name", ["delete-id-v1.18", "vectors-v1.6"])
def test_each_missing_object_that_matters_is_damage(name: str) -> None:
    keys = [each.key for each in copy_of(name).list()]
    for key in keys:
        store = copy_of(name)
        store.delete([key])
        try:
            read_everything(store)
        except (DamagedLake, NotALake) as error:
            assert key.rpartition("/")[2].split(".")[0] in str(error), f"{key}: {error}"


class StoppingStore(MemoryStore):
    """A store that stops answering after some puts."""

    puts_left = 1 << 30

    def _put(self, key: str, data: object, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        self.puts_left -= 1
        if self.puts_left < 0:
            raise PermissionError(key)
        return super()._put(key, data, if_absent, if_match, unique)  # type: ignore[arg-type]


def stopped(action: Callable[[], object], store: StoppingStore, puts: int) -> bool:
    """Run an action that may put so many objects. Return whether it was stopped."""
    store.puts_left = puts
    try:
        action()
        return False
    except (PermissionError, StoreUnavailable):
        return True
    finally:
        store.puts_left = 1 << 30


def test_a_load_that_was_stopped_anywhere_can_be_repeated() -> None:
    store = StoppingStore()
    pool = PoolLake.create(store).create_pool("events", key="k", order="asc")
    pool.load([{"k": 0}], txn=("app", 0))
    for puts in range(4):
        expected = list(range(puts + 1))
        was_stopped = stopped(partial(pool.load, [{"k": puts + 1}], txn=("app", puts + 1)), store, puts)
        read = [record["k"] for record in PoolLake.open(store).pool("events").scan().records()]
        assert was_stopped
        assert read == expected
        PoolLake.open(store).pool("events").load([{"k": puts + 1}], txn=("app", puts + 1))
        read = [record["k"] for record in PoolLake.open(store).pool("events").scan().records()]
        assert read == [*expected, puts + 1]


def test_a_pool_whose_creation_was_stopped_anywhere_can_be_created() -> None:
    store = StoppingStore()
    lake = PoolLake.create(store)
    for puts in range(5):
        assert stopped(partial(lake.create_pool, f"p{puts}"), store, puts)
        assert len(PoolLake.open(store).pools()) == puts
        PoolLake.open(store).create_pool(f"p{puts}").load([{"ts": 1}])
