"""What the suite adds to a bare Dagster asset: per step, per publish, per sensor tick. All in one process, in turn."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from lake_core.lake import Lake
from lake_orch import DeltaIOManager, LakeResource, testing
from lake_orch.landing_zone import LandingZone, landing_zone_definitions
from lake_orch.landing_zone.definitions import ledger_of

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, FILES = 10, 1000
ROWS = pa.table({"id": list(range(1000))})
_QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def measure(rounds: int) -> None:
    """Milliseconds, medians of runs in turn; of ours, what comes on top of the bare ones."""
    with tempfile.TemporaryDirectory() as folder, dg.DagsterInstance.ephemeral() as instance:
        _steps(Path(folder), instance, rounds)
        _ticks(Path(folder), instance, rounds)


def _assets() -> list[Any]:
    def make(number: int) -> Any:
        @dg.asset(name=f"step{number}")
        def step() -> pa.Table:
            return ROWS

        return step

    return [make(number) for number in range(STEPS)]


def _steps(folder: Path, instance: dg.DagsterInstance, rounds: int) -> None:
    Lake.create(folder / "lake")
    assets, plain, lake = _assets(), LakeResource(root=str(folder / "plain")), LakeResource(root=str(folder / "lake"))

    def bare() -> None:
        dg.materialize(assets, instance=instance, resources={"io_manager": dg.mem_io_manager}, run_config=_QUIET)

    def with_manager(resource: LakeResource, materialize: Callable[..., Any]) -> Callable[[], None]:
        resources = {"io_manager": DeltaIOManager(lake=resource), "lake": resource}
        return lambda: materialize(assets, instance=instance, resources=resources, run_config=_QUIET)

    kinds = {
        "plain Delta tables": with_manager(plain, dg.materialize),
        "a lake, each asset published by itself": with_manager(lake, dg.materialize),
        "a lake, the run one session": with_manager(lake, testing.materialize),
    }
    taken = _in_turn({"bare": bare, **kinds}, rounds)
    base = taken.pop("bare") / STEPS
    print(f"{'a bare step':<48} {base:8.1f} ms", flush=True)
    for name, milliseconds in taken.items():
        print(
            f"{f'a step, {name}':<48} {milliseconds / STEPS:8.1f} ms  {milliseconds / STEPS - base:+8.1f} ms",
            flush=True,
        )


def _ticks(folder: Path, instance: dg.DagsterInstance, rounds: int) -> None:
    landing = folder / "landing"
    landing.mkdir()
    for number in range(FILES):
        pq.write_table(ROWS.slice(0, 1), landing / f"{number:04}.parquet")
    zone = LandingZone("events", str(landing), pattern="*.parquet")
    lake = LakeResource(root=str(folder / "lake"))
    defs = landing_zone_definitions(zone)
    (asset,), (sensor,) = defs.assets or (), defs.sensors or ()

    @dg.sensor(name="bare", target=[asset])  # type: ignore[list-item]
    def bare() -> dg.SkipReason:
        return dg.SkipReason(f"{len(list(landing.iterdir()))} files")

    def tick(evaluated: Any, **resources: Any) -> Any:
        with dg.build_sensor_context(instance=instance, resources=resources) as context:
            return evaluated(context)

    asked = tick(sensor, lake=lake).run_requests[0]
    dg.materialize([asset], instance=instance, resources={"lake": lake}, tags=dict(asked.tags), run_config=_QUIET)  # type: ignore[list-item]
    assert len(ledger_of(zone, lake).batches()) == 1
    taken = _in_turn({"bare": lambda: tick(bare), "ours": lambda: tick(sensor, lake=lake)}, rounds)
    print(f"{f'a tick over {FILES} files, bare':<48} {taken['bare']:8.1f} ms")
    print(f"{f'a tick over {FILES} landed files':<48} {taken['ours']:8.1f} ms", flush=True)


def _in_turn(kinds: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, after a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds + 1):
        for name, run in kinds.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return {name: 1000 * statistics.median(samples[1:]) for name, samples in seconds.items()}
