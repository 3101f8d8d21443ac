"""The buttons of Dagster's UI in random orders, against a model that says what must be published.

A run that is green has published the last executions of its session's assets. A run that is red has published nothing.
No execution reads less than what Dagster says there is.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_core import Lake
from lake_core.lake.errors import SessionNotFound
from lake_orch.jobs.backfill import merge_backfills
from tests.examples import exhaustive
from tests.orch.user_interface import UserInterface, user_interface

ASSETS = ["first", "second", "third"]
UPSTREAM = {"second": "first", "third": "second"}
DAYS = ["x", "y"]


class Buttons:
    """A lake, a UI, and what must be on the branches of the lake."""

    def __init__(self, folder: Path, ui: UserInterface, chance: random.Random) -> None:
        self.folder, self.ui, self.chance = folder, ui, chance
        self.lake = Lake.open(folder / "lake")
        self.runs: list[str] = []
        """The finished runs, in the order of their ends."""
        self.backfills: list[str] = []
        self.published: dict[str, dict[tuple[str, str], int]] = {"main": {}}
        """The number of the execution that is on a branch, by asset and day."""
        self.bases: dict[str, dict[tuple[str, str], int]] = {}
        """What a branch began with."""
        self.was_published: set[int] = set()
        self.did: list[str] = []

    def executions(self) -> list[dict[str, Any]]:
        file = self.folder / "executions"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    # Buttons

    def materialize(self) -> None:
        count = self.chance.randint(1, 3)
        start = self.chance.randint(0, 3 - count)
        day = self.chance.choice(DAYS)
        self.did.append(f"materialize {ASSETS[start : start + count]} {day}")
        self.ui.launch(ASSETS[start : start + count], day)

    def again(self) -> None:
        if not self.runs:
            return
        run = self.ui.instance.get_run_by_id(self.chance.choice(self.runs[-4:]))
        assert run is not None
        strategy = self.chance.choice(["FROM_FAILURE", "FROM_FAILURE", "FROM_ASSET_FAILURE", "ALL_STEPS"])
        if run.is_success and strategy != "ALL_STEPS":
            return
        self.did.append(f"again {strategy} {run.run_id[:5]}")
        self._press(lambda: self.ui.again(run, strategy))

    def backfill(self) -> None:
        self.did.append("backfill")
        self.backfills.append(self.ui.backfill(ASSETS, DAYS))

    def backfill_again(self) -> None:
        if self.backfills:
            strategy = self.chance.choice(["FROM_FAILURE", "FROM_FAILURE", "ALL_STEPS"])
            self.did.append(f"backfill again {strategy}")
            self._press(lambda: self.backfills.append(self.ui.backfill_again(self.backfills[-1], strategy)))

    def _press(self, button: Callable[[], object]) -> None:
        """Press a button, which Dagster may refuse."""
        try:
            button()
        except AssertionError as refusal:
            self.did[-1] += " refused"
            assert "Error" in str(refusal)

    def fail(self) -> None:
        name = f"{self.chance.choice(ASSETS)}-{self.chance.choice(DAYS)}"
        self.did.append(f"fail {name}")
        (self.folder / f"fail-{name}").touch()

    def mend(self) -> None:
        self.did.append("mend")
        for file in self.folder.glob("fail-*"):
            file.unlink()

    def abandon(self) -> None:
        kept = self.lake.list_sessions()
        if kept:
            record = self.chance.choice(kept)
            self.did.append(f"abandon {record.id[:9]}")
            self.lake.get_session(record.id).abandon()

    def merge(self) -> None:
        for outcome in merge_backfills(self.ui.instance, self.lake):
            self.did.append(f"merge {outcome.branch}: {outcome.outcome}")
            if outcome.outcome == "merged":
                base = self.bases[outcome.branch]
                theirs = self.published.pop(outcome.branch)
                self.published["main"] |= {key: number for key, number in theirs.items() if base.get(key) != number}

    # What must hold

    def check(self) -> None:
        """Check the runs that have ended since, in their order, and what is on the branches."""
        for branch in self.lake.list_branches():
            if branch not in self.published:
                self.bases[branch] = dict(self.published["main"])
                self.published[branch] = dict(self.published["main"])
        new = [run for run in self.ui.instance.get_runs() if run.run_id not in self.runs]
        for run in sorted((run for run in new if run.is_finished), key=self._end):
            self.runs.append(run.run_id)
            self.did.append(f"{run.run_id[:5]} {run.tags['lake/session'][4:9]} {run.status.value}")
            if run.is_success:
                self._check_green(run)
        story = "\n".join(self.did)
        for branch in self.lake.list_branches():
            assert self.rows(branch) == self.published[branch], f"{branch}\n{story}"

    def _end(self, run: dg.DagsterRun) -> float:
        record = self.ui.instance.get_run_record_by_id(run.run_id)
        assert record is not None
        return record.end_time or 0.0

    def _check_green(self, run: dg.DagsterRun) -> None:
        story = "\n".join(self.did)
        record = self.lake.get_session(run.tags["lake/session"]).record
        assert record.is_published, story
        runs = self.ui.instance.get_runs(dg.RunsFilter(tags={"lake/session": record.id}))
        ids = {each.run_id for each in runs}
        executions = self.executions()
        mine = [each for each in executions if each["run"] in ids and each["succeeded"]]
        last = {(each["asset"], each["day"]): each for each in mine}
        for (asset, day), each in last.items():
            self.published[record.branch][asset, day] = each["number"]
            if asset in UPSTREAM and each["run"] == run.run_id:
                self._check_read(each, executions, ids, record.branch, story)
        self.was_published.update(each["number"] for each in last.values())

    def _check_read(
        self, execution: dict[str, Any], executions: list[dict[str, Any]], ids: set[str], branch: str, story: str
    ) -> None:
        """Check that an execution read the newest rows that there were, or older ones if these were given up."""
        before = [
            each
            for each in executions[: execution["number"] - 1]
            if (each["asset"], each["day"]) == (UPSTREAM[execution["asset"]], execution["day"]) and each["succeeded"]
        ]
        if not before:
            return
        read, newest = execution["read"], before[-1]
        if newest["run"] in ids or newest["number"] in self.was_published:
            expected = {newest["number"]}
        else:
            assert not self._is_kept(newest) or self._is_elsewhere(newest, branch), f"{execution}\n{story}"
            expected = {each["number"] for each in before if each["number"] in self.was_published}
        elsewhere = self._is_elsewhere(newest, branch)
        assert read in expected or elsewhere, f"{execution} read {read}, not {expected}\n{story}"

    def _is_kept(self, execution: dict[str, Any]) -> bool:
        """Return whether an execution is in a session that somebody may yet publish."""
        run = self.ui.instance.get_run_by_id(execution["run"])
        assert run is not None
        return run.tags["lake/session"] in {record.id for record in self.lake.list_sessions()}

    def _is_elsewhere(self, execution: dict[str, Any], branch: str) -> bool:
        """Return whether an execution was for another branch, so that its rows are not to be read on this one."""
        run = self.ui.instance.get_run_by_id(execution["run"])
        assert run is not None
        try:
            return self.lake.get_session(run.tags["lake/session"]).branch != branch
        except SessionNotFound:
            return False

    def rows(self, branch: str) -> dict[tuple[str, str], int]:
        state = self.lake.at(branch)
        return {
            (asset, row["day"]): row["number"]
            for asset in ASSETS
            if f"tables/{asset}" in state.datasets()
            for row in state.delta(f"tables/{asset}").to_arrow().to_pylist()
        }


def press(folder: Path, seed: int, presses: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    chance = random.Random(seed)
    backfills = chance.choice(["publish", "publish", "gather"])
    Lake.create(folder / "lake")
    monkeypatch.setenv("RERUN_FOLDER", str(folder))
    monkeypatch.setenv("RERUN_BACKFILLS", backfills)
    # Dagster loads a module of one name once.
    script = folder / f"pipeline_{seed}_{folder.parent.name}.py"
    shutil.copy(Path(__file__).parent / "button_pipeline.py", script)
    with user_interface(folder / "home", script) as ui:
        buttons = Buttons(folder, ui, chance)
        for _ in range(presses):
            kinds = [buttons.materialize] * 3 + [buttons.again] * 3 + [buttons.fail] * 3 + [buttons.mend] * 2
            if backfills == "gather":
                kinds += [buttons.merge] * 2
            chance.choice([*kinds, buttons.backfill, buttons.backfill_again, buttons.abandon])()
            buttons.check()


@pytest.mark.parametrize("seed", [*range(2), *exhaustive(range(2, 4))])
def test_what_is_published_is_what_green_runs_made(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    press(tmp_path / "run", seed, 14, monkeypatch)


@pytest.mark.exhaustive
def test_new_orders(tmp_path: Path, new_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(new_seed, new_seed + 5):
        press(tmp_path / str(seed), seed, 20, monkeypatch)


@pytest.mark.histories
def test_hundreds_of_orders(tmp_path: Path, chosen_seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in chosen_seeds[::10]:
        press(tmp_path / str(seed), seed, 25, monkeypatch)
