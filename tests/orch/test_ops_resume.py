"""A job of ops that is re-executed from failure leaves out the op that opened the session.

The ops that follow still write into the session.
"""

from __future__ import annotations

import dagster as dg

from tests.orch.session_bench import Bench


def rows(bench: Bench, ref: str = "main") -> dict[str, int]:
    state = bench.lake.at(ref)
    return {path: len(state.delta(path).to_arrow()) for path in sorted(state.datasets())}


def test_what_follows_goes_on_in_the_same_session(bench: Bench) -> None:
    job = dg.build_reconstructable_job(
        "tests.orch.ops_pipeline", "job", reconstructable_kwargs={"folder": str(bench.folder)}
    )
    (bench.folder / "fail").touch()
    with dg.execute_job(job, instance=bench.instance) as result:
        failed = bench.run_of(result.run_id)
    assert not failed.is_success
    assert rows(bench) == {}
    assert rows(bench, bench.session(failed)) == {"tables/by_hand": 2, "tables/orders": 2}
    (bench.folder / "fail").unlink()
    options = dg.ReexecutionOptions.from_failure(failed.run_id, bench.instance)
    with dg.execute_job(job, instance=bench.instance, reexecution_options=options) as result:
        resumed = bench.run_of(result.run_id)
    assert resumed.is_success
    assert bench.session(resumed) == bench.session(failed)
    assert rows(bench) == {"tables/by_hand": 2, "tables/orders": 2}
    assert bench.state(resumed) == "published"
    assert len(bench.lake.log()) == 2
