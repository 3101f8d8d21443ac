"""Reads the metadata of the lakes that `zed` wrote: pools, branches, logs and data objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lake_core.pool.commit import Commit
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import DamagedLake, NoSuchBranch, NoSuchCommit, NoSuchPool, NotALake, UnsupportedLakeVersion
from lake_core.pool.ksuid import NIL, format_ksuid, parse_ksuid
from lake_core.pool.lake import PoolLake
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.primitive_text import format_time
from lake_core.store import MemoryStore
from tests.pool.cases import damaged_lakes, expected_branches, expected_lakes, lake_path


def test_pools_are_those_that_zed_lists() -> None:
    for name, expected in expected_lakes():
        pools = [
            {
                "ts": format_time(pool.ts),
                "name": pool.name,
                "id": pool.id,
                "layout": {"order": pool.order, "keys": [list(path) for path in pool.keys]},
                "seek_stride": pool.seek_stride,
                "threshold": pool.threshold,
            }
            for pool in PoolLake.open(lake_path(name)).pools()
        ]
        listed = [
            {field: pool[field] for field in ("ts", "name", "id", "layout", "seek_stride", "threshold")}
            for pool in expected
        ]
        assert pools == sorted(listed, key=lambda pool: pool["name"]), name


def test_branches_are_those_that_zed_lists() -> None:
    for name, expected in expected_lakes():
        lake = PoolLake.open(lake_path(name))
        for pool in expected:
            branches = {
                (branch.name, format_time(branch.ts), branch.commit)
                for branch in lake.pool(pool["name"]).list_branches()
            }
            assert branches == {(branch["name"], branch["ts"], branch["commit"]) for branch in pool["branches"]}, name


def as_printed(commit: Commit) -> dict[str, Any]:
    return {
        "id": commit.id,
        "parent": commit.parent,
        "retries": commit.retries,
        "author": commit.author,
        "message": commit.message,
    }


def test_logs_are_those_that_zed_prints() -> None:
    for name, pool, branch in expected_branches():
        log = [as_printed(commit) for commit in PoolLake.open(lake_path(name)).pool(pool["name"]).log(branch["name"])]
        assert log == [{field: commit[field] for field in log[0]} for commit in branch["log"]], name


def described(data_object: DataObject) -> tuple[str, str, str, int, int]:
    return (
        data_object.id,
        format_value(data_object.min),
        format_value(data_object.max),
        data_object.count,
        data_object.size,
    )


def test_data_objects_are_those_that_zed_lists() -> None:
    for name, pool, branch in expected_branches():
        objects = PoolLake.open(lake_path(name)).pool(pool["name"]).objects(branch["name"])
        listed = {tuple(each[field] for field in ("id", "min", "max", "count", "size")) for each in branch["objects"]}
        assert {described(each) for each in objects} == listed, name


def probes(lake: PoolLake) -> Iterator[tuple[str, Any]]:
    yield "pools", lambda: lake.pools()
    yield "branches", lambda: lake.pool("P").list_branches()
    yield "log", lambda: list(lake.pool("P").log())
    yield "objects", lambda: lake.pool("P").objects()


HEAD_IS_A_HINT = {"bad-head-garbage-v1.18", "head-behind-v1.18"}


def test_damaged_lakes_show_what_is_left_and_say_what_is_missing() -> None:
    for name, expected in damaged_lakes():
        try:
            lake = PoolLake.open(lake_path(name))
        except (NotALake, UnsupportedLakeVersion):
            assert "pools" in expected["fails"], name
            continue
        for probe, ask in probes(lake):
            if probe in expected["fails"] and name not in HEAD_IS_A_HINT:
                with pytest.raises(DamagedLake):
                    ask()
            else:
                ask()


def test_an_entry_behind_head_counts() -> None:
    for name, expected in damaged_lakes():
        if name in HEAD_IS_A_HINT:
            newest = expected["undamaged"]["pools"][0]["branches"][0]
            assert PoolLake.open(lake_path(name)).pool("P").tip() == newest["commit"], name


def test_what_does_not_exist_is_told_from_what_is_damaged() -> None:
    lake = PoolLake.open(lake_path("many-loads-v1.18"))
    with pytest.raises(NoSuchPool):
        lake.pool("none")
    pool = lake.pool(lake.pools()[0].name)
    with pytest.raises(NoSuchBranch):
        pool.objects("none")
    with pytest.raises(NoSuchCommit):
        pool.objects(commit="3MSaYKQ3uvctdkFRujUwcKQt3Dx")


def test_an_empty_store_is_no_lake() -> None:
    with pytest.raises(NotALake):
        PoolLake.open(MemoryStore())


def test_ids_have_the_text_that_zed_prints() -> None:
    id = bytes.fromhex("17908225256b3fe86406e140373f34cb94d8d2c6")
    assert format_ksuid(id) == "3MSaYP1DkKie5LzPi1SiCIRV6wg"
    assert parse_ksuid("3MSaYP1DkKie5LzPi1SiCIRV6wg") == id
    assert parse_ksuid(NIL) == bytes(20)
