"""Random histories in which `zed` and this implementation change one pool in turns.

After each change, both read the records that a model holds.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest

from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import DeleteConflict
from lake_core.pool.zson.reader import parse_values
from tests.interop.zed import VERSIONS, needs_zed, query, run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_zed

Lines: TypeAlias = frozenset[str]
"""The records of a branch. Each is the line of ZSON that `zed` prints, and has an id of its own."""

SEEDS = int(os.environ.get("ZED_TURNS", "6"))
STEPS = 30
KEYS = 60
VALUES = ['"text"', "1.5", "null", "[1,2]", '{a:{b:"deep"}}', "10.0.0.1", "|[1,2]|", "2020-01-01T00:00:00Z", "1(uint8)"]


@dataclass
class Turns:
    """A pool that both change, and what it must hold.

    Attributes:
        zed: The command.
        folder: The folder of the lake.
        pool: The pool.
        rng: Draws the changes.
        records: How many records were loaded.
        branches: The records of each branch: main, and sometimes `dev`.
        before: The records of branches before their last commit, where that can be reverted.
        base: The records, and the ids of the data objects, of main when `dev` was created.
        changes: The changes so far, for messages.
    """

    zed: str
    folder: Path
    pool: Pool
    rng: random.Random
    records: int = 0
    branches: dict[str, Lines] = field(default_factory=lambda: {"main": frozenset()})
    before: dict[str, Lines] = field(default_factory=dict)
    base: tuple[Lines, set[str]] = (frozenset(), set())
    changes: list[str] = field(default_factory=list)

    def step(self) -> None:
        """Let one of them make a change, and check what both read."""
        change: Callable[[str, bool], None] = self.rng.choice(
            [
                *(self.load, self.load, self.load),
                *(self.delete_range, self.delete_record, self.compact, self.revert),
                *(self.fork, self.merge, self.vacuum),
            ]
        )
        branch, is_zed = self.rng.choice(sorted(self.branches)), self.rng.random() < 0.5
        self.changes.append(f"{change.__name__} {branch}{' by zed' if is_zed else ''}")
        change(branch, is_zed)
        self.check()

    def check(self) -> None:
        """Compare what both read, all of it and a range of keys, with the model."""
        for branch, lines in self.branches.items():
            scanned = self.pool.scan(branch).to_zson().splitlines()
            assert sorted(scanned) == sorted(lines), self.changes
            if lines:  # `zed` has no empty branch to query.
                assert query(self.zed, self.folder, f"from events@{branch}") == scanned, self.changes
                first = self.rng.randrange(KEYS)
                ranged = self.pool.scan(branch, start=first, stop=first + 7).to_zson().splitlines()
                text = f"from events@{branch} | k >= {first} and k < {first + 7}"
                assert query(self.zed, self.folder, text) == ranged, self.changes

    def load(self, branch: str, is_zed: bool) -> None:
        count = self.rng.choice([1, 5, 40])
        lines = [
            f"{{id:{self.records + number}{self._key()},v:{self.rng.choice(VALUES)}}}" for number in range(1, count + 1)
        ]
        self.records += count
        if is_zed:
            self._run("load", branch, "-i", "zson", "-", text="\n".join(lines))
        else:
            self.pool.load(list(parse_values("\n".join(lines))), branch)
        self._commit(branch, self.branches[branch].union(lines))

    def delete_range(self, branch: str, is_zed: bool) -> None:
        lines = self.branches[branch]
        first = self.rng.randrange(KEYS)
        stop = first + self.rng.choice([1, 5, 20])
        if any(",k:" in line for line in lines):  # A column that no record has is an error here.
            deleted = {line for line in lines if (key := _number(line, "k")) is not None and first <= key < stop}
            self._delete(branch, is_zed, f"k >= {first} and k < {stop}", deleted)

    def delete_record(self, branch: str, is_zed: bool) -> None:
        if self.branches[branch]:
            line = self.rng.choice(sorted(self.branches[branch]))
            self._delete(branch, is_zed, f"id {'==' if is_zed else '='} {_number(line, 'id')}", {line})

    def compact(self, branch: str, is_zed: bool) -> None:
        ids = sorted(self._objects(branch))
        if len(ids) > 2:
            chosen = self.rng.sample(ids, self.rng.randint(2, len(ids)))
            if is_zed:
                self._run("compact", branch, *chosen)
            else:
                self.pool.compact(self.rng.choice([None, chosen]), branch)
            self.before.pop(branch, None)

    def revert(self, branch: str, is_zed: bool) -> None:
        if branch in self.before:
            tip = self.pool.tip(branch)
            if is_zed:
                self._run("revert", branch, tip)
            else:
                assert self.pool.revert(tip, branch) is not None
            self.branches[branch] = self.before.pop(branch)

    def fork(self, branch: str, is_zed: bool) -> None:
        if "dev" not in self.branches and self.branches["main"]:
            if is_zed:
                run(self.zed, self.folder, "branch", "-q", "-use", "events@main", "dev")
            else:
                self.pool.create_branch("dev")
            self.base = self.branches["main"], self._objects("main")
            self.branches["dev"] = self.branches["main"]
            self.before.pop("dev", None)

    def merge(self, branch: str, is_zed: bool) -> None:
        """Merge `dev` into main, and delete it."""
        if "dev" not in self.branches:
            return
        base, objects = self.base
        # Where both branches deleted an object, `zed` writes a commit that it cannot read.
        if (objects - self._objects("main")) & (objects - self._objects("dev")):
            with pytest.raises(DeleteConflict):
                self.pool.merge("dev")
        else:
            # `zed` refuses to merge a branch without changes, or with a deletion that was reverted.
            if not (is_zed and self._is_merged_by_zed()):
                self.pool.merge("dev")
            child = self.branches["dev"]
            self.branches["main"] = (self.branches["main"] - (base - child)) | (child - base)
            self.before.pop("main", None)
            self.check()
            assert self.pool.merge("dev") is None, "it is merged already"
        self.pool.delete_branch("dev")
        del self.branches["dev"]

    def vacuum(self, branch: str, is_zed: bool) -> None:
        if not is_zed:
            self.pool.vacuum(dt.timedelta(0))
        elif (
            "dev" not in self.branches and self.zed == VERSIONS["1.18"]
        ):  # 1.6 has none; 1.18 looks at no other branch.
            self._run("vacuum", "main", "-f")
        self.before.clear()

    def _delete(self, branch: str, is_zed: bool, where: str, deleted: set[str]) -> None:
        if not is_zed:
            assert (self.pool.delete(where, branch) is not None) == bool(deleted)
        elif deleted:
            self._run("delete", branch, "-where", where)
        else:
            with pytest.raises(subprocess.CalledProcessError):  # To `zed`, nothing to delete is an error.
                self._run("delete", branch, "-where", where)
        if deleted:
            self._commit(branch, self.branches[branch] - deleted)

    def _is_merged_by_zed(self) -> bool:
        try:
            self._run("merge", "dev", "main")
        except subprocess.CalledProcessError:
            return False
        return True

    def _commit(self, branch: str, lines: Lines) -> None:
        self.before[branch], self.branches[branch] = self.branches[branch], lines

    def _key(self) -> str:
        """Draw a key. Version 1.6 deletes too much where keys are null."""
        if self.zed == VERSIONS["1.18"] and self.rng.random() < 0.15:
            return self.rng.choice(["", ",k:null"])
        return f",k:{self.rng.randrange(KEYS)}"

    def _objects(self, branch: str) -> set[str]:
        return {each.id for each in self.pool.objects(branch)}

    def _run(self, command: str, branch: str, *arguments: str, text: str = "") -> None:
        run(self.zed, self.folder, command, "-q", "-use", f"events@{branch}", *arguments, text=text)


def _number(line: str, name: str) -> int | None:
    match = re.search(rf"[{{,]{name}:(\d+)[,}}]", line)
    return int(match[1]) if match else None


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_read_the_same_after_each_change(
    zed: str, order: Literal["asc", "desc"], seed: int, tmp_path: Path
) -> None:
    pool = PoolLake.create(tmp_path).create_pool("events", key="k", order=order, seek_stride=300, threshold=1500)
    turns = Turns(zed, tmp_path, pool, random.Random(seed))
    for _ in range(STEPS):
        turns.step()
