"""A lake does what the model of merges says: every short history, and random long ones.

The outcomes are equal: the same rows, or a conflict where the model has one. A conflict where the model has rows is
counted as false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from tests.examples import exhaustive, stride
from tests.lake.merging.histories import PLAIN, Array, Beside, Dataset, Pool, Table, explore, random_steps, read, walk

DATASETS: dict[str, Callable[[], Dataset]] = {
    "table": Table,
    "table-with-feed": lambda: Table({"delta.enableChangeDataFeed": "true"}),
    "pool": Pool,
    "array": Array,
    "array of version 2": partial(Array, 2),
}
UNDOS = ("revert", "revert2")
THEMES = {
    "undo": ("append", "mark", *UNDOS),
    "marks": ("mark", "delete", "compact", "revert"),
    "marks beside others": ("mark", "both", "delete", "revert"),
    "files": (*PLAIN, *UNDOS),
    "creation": ("create", "append", "overwrite", "drop", *UNDOS),
    "properties": ("alter", "append", *UNDOS),
}
MOST_FALSE = 0.05
"""The most of the refused merges that may have no conflict in the model. Most are of copies of one marked write."""


def _everything(dataset: Dataset) -> tuple[str, ...]:
    return (*dataset.operations, *PLAIN, *UNDOS)


@pytest.fixture(params=DATASETS)
def dataset(request: pytest.FixtureRequest) -> Dataset:
    return DATASETS[request.param]()


def _theme(dataset: Dataset, theme: str) -> tuple[str, ...]:
    known = _everything(dataset)
    return tuple(text for text in THEMES[theme] if text in known)


@pytest.mark.exhaustive
@pytest.mark.parametrize("theme", THEMES)
def test_every_history_of_two_operations_of_a_theme(dataset: Dataset, theme: str) -> None:
    explore(Beside(dataset, with_table=theme != "creation"), _theme(dataset, theme), 2)


@pytest.mark.parametrize("with_table", [True, False], ids=["with a table", "without one"])
@pytest.mark.sampled(4)
def test_every_history_of_two_operations(dataset: Dataset, with_table: bool) -> None:
    explore(Beside(dataset, with_table=with_table), _everything(dataset), 2)


@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("theme", THEMES)
def test_every_history_of_three_operations_of_a_theme(dataset: Dataset, theme: str) -> None:
    explore(Beside(dataset, with_table=theme != "creation"), _theme(dataset, theme), 3)


@pytest.mark.stress
@pytest.mark.histories
@pytest.mark.timeout(40_000)
def test_every_history_of_three_operations(dataset: Dataset) -> None:
    explore(Beside(dataset), _everything(dataset), 3)


@pytest.mark.stress
@pytest.mark.histories
@pytest.mark.timeout(80_000)
@pytest.mark.parametrize("theme", THEMES)
def test_every_history_of_five_operations_of_a_theme(dataset: Dataset, theme: str) -> None:
    explore(Beside(dataset, with_table=theme != "creation"), _theme(dataset, theme), 5)


@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("first", [0, *exhaustive(range(10, 40, 10))])
@pytest.mark.sampled(2)
def test_random_histories(dataset: Dataset, names: str, first: int) -> None:
    for seed in range(first, first + 10, stride(4)):
        walk(
            partial(Beside, dataset, names, with_table=bool(seed % 3)),
            random_steps(seed, _everything(dataset), names, 30),
        )


@pytest.mark.extended
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_new_random_histories(dataset: Dataset, names: str, new_seed: int) -> None:
    for seed in range(new_seed, new_seed + 3):
        walk(
            partial(Beside, dataset, names, with_table=bool(seed % 3)),
            random_steps(seed, _everything(dataset), names, 24),
        )


@pytest.mark.stress
@pytest.mark.histories
@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_many_random_histories(dataset: Dataset, names: str, chosen_seeds: range) -> None:
    for seed in chosen_seeds:
        walk(
            partial(Beside, dataset, names, with_table=bool(seed % 3)),
            random_steps(seed, _everything(dataset), names, 40),
        )


@pytest.mark.extended
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("histories", [100, *exhaustive([1000])])
def test_few_conflicts_of_merges_are_false(histories: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(histories):
        dataset = DATASETS["table" if seed % 2 else "pool"]()
        beside = walk(partial(Beside, dataset), random_steps(seed, _everything(dataset), "ab", 16))
        counts += beside.counts
    false, true = (counts[f"merge: {each}"] + counts[f"squash: {each}"] for each in ("false conflict", "conflict"))
    assert false <= MOST_FALSE * (false + true)


KNOWN = (
    "b: overwrite; c: overwrite; c: revert; c: merge b; c: revert2",
    "a: mark; b: squash a; a: revert; b: revert; b: merge a; a: revert; b: merge a",
    "a: drop; b: merge a; a: revert; b: revert; b: overwrite; a: merge b",
    "a: mark; b: merge a; a: revert; b: merge a; a: mark; b: revert; a: merge b",
    "a: append; a: compact; a: overwrite; a: revert2",
    "a: mark; a: delete; b: mark; b: merge a",
    "a: overwrite; a: revert; a: merge b; a: revert2",
    "a: put0; b: put0; a: merge b; a: revert2",
    "b: mark; b: alter; a: overwrite; a: mark; a: merge b",
    "a: drop; b: merge a; b: revert; a: create; b: merge a",
    "a: mark; a: revert; b: mark; a: mark; b: pick a",
    "b: mark; a: mark; a: revert; c: squash a; c: merge b",
    "b: drop; c: drop; b: pick c; a: pick b",
    "b: mark; a: mark; b: pick a; c: pick b; c: squash a",
    "b: put1; a: put1; a: squash b; b: revert; b: merge a",
    "b: drop; b: put0; a: drop; b: revert; a: merge b",
    "a: append; a: compact; c: mark; b: upsert; a: revert; c: squash a; b: squash c; a: pick b; c: append; a: revert",
    "c: both; a: mark; c: squash a; a: merge c; b: pick a",
)
"""Histories in which simpler rules lost rows, doubled them or brought undone ones back."""


@pytest.mark.parametrize("text", KNOWN)
def test_histories_that_simpler_rules_got_wrong(dataset: Dataset, text: str) -> None:
    steps = [step for step in read(text) if step[1] in _everything(dataset) or isinstance(step[1], tuple)]
    walk(lambda: Beside(dataset, "abc"), steps)


def test_a_picked_commit_comes_whole_and_later_merges_do_not_double_its_marked_rows(dataset: Dataset) -> None:
    beside = Beside(dataset, "abc")
    for name, operation in read("c: both; a: mark; c: squash a; a: merge c"):
        assert beside.step(name, operation)
    beside.lake.cherry_pick("main", onto="b")
    picked = dataset.rows(beside.lake, "b")
    beside.lake.merge("main", into="b")
    assert (picked, dataset.rows(beside.lake, "b")) == (dataset.rows(beside.lake, "main"),) * 2
