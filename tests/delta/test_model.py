"""Random histories against a model that is nothing but a dict: replay, checkpoints, refresh and time travel agree with it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows

Step = tuple[str, int, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "append", "overwrite", "partition", "clear", "marked", "checkpoint", "lose_hint", "break_checkpoint"]
        ),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(STEPS, st.integers(1, 4))
def test_random_histories(steps: list[Step], interval: int) -> None:
    import warnings

    store = MemoryStore()
    writer = DeltaTable.create(store, SCHEMA, partition_by=["p"], properties={"delta.checkpointInterval": str(interval)})
    follower = DeltaTable.open(store)
    model: dict[int, str] = {}
    history = [dict(model)]
    marked: set[int] = set()
    next_id = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for verb, number, part in steps:
            match verb:
                case "append":
                    writer.append(rows(next_id, next_id + number))
                    model |= {i: f"p{i % 3}" for i in range(next_id, next_id + number)}
                    next_id += number
                case "overwrite":
                    writer.overwrite(rows(next_id, next_id + number))
                    model = {i: f"p{i % 3}" for i in range(next_id, next_id + number)}
                    next_id += number
                case "partition":
                    new = [i for i in range(next_id, next_id + 9) if i % 3 == part][:number]
                    chosen = rows(next_id, next_id + 9)
                    writer.overwrite(chosen.filter([i in new for i in chosen["id"].to_pylist()]), where=f"p = 'p{part}'")
                    model = {i: p for i, p in model.items() if p != f"p{part}"} | dict.fromkeys(new, f"p{part}")
                    next_id += 9
                case "clear":
                    writer.overwrite(SCHEMA.empty_table(), where=f"p >= 'p{part}'")
                    model = {i: p for i, p in model.items() if p < f"p{part}"}
                case "marked":
                    result = writer.append(rows(next_id, next_id + 1), txn=("app", number))
                    assert result.skipped == any(done >= number for done in marked)
                    if not result.skipped:
                        model[next_id] = f"p{next_id % 3}"
                        next_id += 1
                        marked.add(number)
                case "checkpoint":
                    writer.checkpoint()
                case "lose_hint":
                    store.delete(["_delta_log/_last_checkpoint"])
                case "break_checkpoint":
                    for meta in list(store.list("_delta_log/")):
                        if meta.key.endswith(".checkpoint.parquet"):
                            store.put(meta.key, b"PAR1 no parquet")
            if writer.version == len(history):
                history.append(dict(model))
            assert writer.version == len(history) - 1
        for seen in (writer, follower.refresh(), DeltaTable.open(store)):
            assert dict(zip(*seen.to_arrow(columns=["id", "p"]).to_pydict().values(), strict=True)) == model
            assert seen.txn_version("app") == max(marked, default=None)
        for version, then in enumerate(history):
            assert ids(DeltaTable.open(store, version=version).to_arrow()) == sorted(then)


def test_tombstones_expire_by_the_clock() -> None:
    import datetime as dt

    now = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, clock=lambda: now[0])
    table.append(rows(0, 1))
    table.overwrite(rows(1, 2))
    table.checkpoint()
    assert len(DeltaTable.open(store).snapshot.tombstones()) == 1
    now[0] += dt.timedelta(days=6)
    table.overwrite(rows(2, 3))
    now[0] += dt.timedelta(days=2)
    table.checkpoint()
    assert len(DeltaTable.open(store).snapshot.tombstones()) == 1
    assert json.loads(store.get("_delta_log/_last_checkpoint"))["numOfAddFiles"] == 1
