"""The Zed lakes and files that the `zed` command wrote, and the collection's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.skip_rule import CASES, NO_CASES

ZED_LAKES = CASES / "zed-lakes"
DAMAGED = {
    "bad-garbage-magic-v1.18/lake.zng",
    "bad-journal-garbage-v1.18/3MSafKQ0Oc59OqoH7v9ysibGMkJ/branches/4.zng",
    "bad-truncated-object-v1.18/3MSaddquTtQeDQvNaNUxHeSrZVV/data/3MSadXm02oYG2zK4s4D2HaggKGd.zng",
}
"""The files that are not ZNG, by their paths in the collection of lakes."""


def zng_files() -> dict[str, bytes]:
    """Return the ZNG files that are whole, by their paths; skips where the collection is absent."""
    if not ZED_LAKES.is_dir():
        pytest.skip(NO_CASES)
    lakes = {str(path.relative_to(ZED_LAKES)): path.read_bytes() for path in sorted(ZED_LAKES.rglob("*.zng"))}
    files = {path.name: path.read_bytes() for path in sorted((CASES / "zed").glob("*.zng"))}
    return {name: data for name, data in (lakes | files).items() if name not in DAMAGED}


def damaged_files() -> dict[str, bytes]:
    """Return the files that are not ZNG; skips where the collection is absent."""
    if not ZED_LAKES.is_dir():
        pytest.skip(NO_CASES)
    return {name: (ZED_LAKES / name).read_bytes() for name in DAMAGED}


@dataclass(frozen=True, slots=True)
class StoredBranch:
    """A branch of a pool in the collection: what its objects hold, and what `zed` printed.

    Attributes:
        name: The names of the lake, the pool and the branch.
        keys: The pool's keys, as paths of field names.
        descending: The pool is in descending order.
        objects: The bytes of its data objects.
        zson: Its records in pool order.
        ndjson: The same as JSON; None where `zed` cannot print them so.
    """

    name: str
    keys: list[list[str]]
    descending: bool
    objects: list[bytes]
    zson: list[str]
    ndjson: list[str] | None


def stored_branches() -> list[StoredBranch]:
    """Return the branches whose objects are all there; skips where the collection is absent."""
    if not ZED_LAKES.is_dir():
        pytest.skip(NO_CASES)
    branches = []
    for path in sorted(ZED_LAKES.glob("*.expected.json")):
        expected = json.loads(path.read_text())
        for pool in expected.get("pools", ()):
            for branch in pool["branches"]:
                objects = [
                    ZED_LAKES / expected["name"] / pool["id"] / "data" / f"{each['id']}.zng"
                    for each in branch["objects"]
                ]
                records = branch.get("records") or {}
                if not records.get("zson") or not all(each.is_file() for each in objects):
                    continue
                branches.append(
                    StoredBranch(
                        name=f"{expected['name']} {pool['name']} {branch['name']}",
                        keys=pool["layout"]["keys"],
                        descending=pool["layout"]["order"] == "desc",
                        objects=[each.read_bytes() for each in objects],
                        zson=records["zson"],
                        ndjson=records.get("ndjson"),
                    )
                )
    return branches


def _expected() -> Iterator[dict[str, Any]]:
    if not ZED_LAKES.is_dir():
        pytest.skip(NO_CASES)
    for path in sorted(ZED_LAKES.glob("*.expected.json")):
        yield json.loads(path.read_text())


def lake_path(name: str) -> Path:
    """Return where a lake of the collection stands; skips where it is absent."""
    if not ZED_LAKES.is_dir():
        pytest.skip(NO_CASES)
    return ZED_LAKES / name


def expected_lakes() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name of each sound lake, and what `zed` said of its pools."""
    for expected in _expected():
        if "damage" not in expected:
            yield expected["name"], expected["pools"]


def expected_branches() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield the branches of sound lakes that have commits: the lake's name, and what `zed` said of pool and branch."""
    for name, pools in expected_lakes():
        for pool in pools:
            for branch in pool["branches"]:
                if branch.get("log"):
                    yield name, pool, branch


def damaged_lakes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each damaged lake, and what `zed` said of it."""
    for expected in _expected():
        if "damage" in expected:
            yield expected["name"], expected
