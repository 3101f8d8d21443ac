"""Random histories of a plain Delta table: four processes, deaths, stalls, lost and late answers, clocks that jump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest

from lake_core.testing.simulation import World, check_history, run
from tests.examples import exhaustive
from tests.simulation.delta_histories import delta_history
from tests.simulation.delta_scenario import TABLE, DeltaScenario

_BLOCK = 15
_SETTINGS: dict[str, Callable[[World], DeltaScenario]] = {
    "plain": DeltaScenario,
    "change feed, in-commit timestamps": lambda world: DeltaScenario(
        world, {"delta.enableChangeDataFeed": "true", "delta.enableInCommitTimestamps": "true"}
    ),
}


@pytest.mark.parametrize("steps", [5, *exhaustive([8])])
@pytest.mark.parametrize("first", [0, *exhaustive(range(15, 150, _BLOCK))])
def test_nothing_is_lost_or_doubled(first: int, steps: int) -> None:
    for seed in range(first, first + _BLOCK):
        check_history(delta_history(seed, steps=steps), DeltaScenario)


@pytest.mark.parametrize("steps", [5, *exhaustive([8])])
@pytest.mark.parametrize("first", [150, *exhaustive([165, 180])])
def test_nothing_is_lost_or_doubled_in_a_table_with_features(first: int, steps: int) -> None:
    for seed in range(first, first + _BLOCK):
        check_history(delta_history(seed, steps=steps), _SETTINGS["change feed, in-commit timestamps"])


@pytest.mark.extended
def test_nothing_is_lost_in_new_histories(new_seed: int) -> None:
    for seed in range(new_seed, new_seed + 20):
        check_history(delta_history(seed), _SETTINGS["plain" if seed % 4 else "change feed, in-commit timestamps"])


@pytest.mark.histories
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_many_histories(chosen_seeds: range) -> None:
    for seed in chosen_seeds:
        check_history(delta_history(seed), _SETTINGS["plain" if seed % 4 else "change feed, in-commit timestamps"])


@pytest.mark.extended
def test_deltalake_reads_what_is_left_of_a_history(tmp_path: Path) -> None:
    for seed in range(5):
        worlds: list[World] = []

        def remembered(world: World, worlds: list[World] = worlds) -> DeltaScenario:
            worlds.append(world)
            return DeltaScenario(world)

        run(delta_history(seed), remembered)
        store = worlds[0].store
        for meta in store.list(f"{TABLE}/"):
            path = tmp_path / str(seed) / meta.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.get(meta.key))
        theirs = deltalake.DeltaTable(tmp_path / str(seed) / TABLE).to_pyarrow_table()
        scenario = DeltaScenario(worlds[0])
        ours = scenario.table_when_quiet().to_arrow()
        assert sorted(theirs["id"].to_pylist()) == sorted(ours["id"].to_pylist())
