"""How many examples a test has: `make test-all` draws all of them, `make test` a part."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import settings

from tests.outcomes import USUAL

_DEFAULT = 100
"""How many examples Hypothesis draws where a test does not say."""
_SHARE = 0.15

_is_usual = False


def pytest_configure(config: pytest.Config) -> None:
    """Choose the settings of Hypothesis by the selection of the run."""
    global _is_usual
    _is_usual = config.option.markexpr == USUAL
    in_ci = os.environ.get("CI") == "true"
    settings.register_profile("run", deadline=None, derandomize=in_ci, max_examples=examples(_DEFAULT))
    settings.load_profile("run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but each n-th case of a test with the mark `sampled(n)` to `make test-all`."""
    cases: Counter[str] = Counter()
    for item in items:
        if (mark := item.get_closest_marker("sampled")) is not None:
            test = item.nodeid.partition("[")[0]
            if cases[test] % mark.args[0]:
                item.add_marker(pytest.mark.exhaustive)
            cases[test] += 1


def exhaustive(values: Iterable[Any]) -> list[ParameterSet]:
    """Return parameters of a test that `make test-all` runs."""
    return [pytest.param(value, marks=pytest.mark.exhaustive) for value in values]


def some_of(values: Iterable[tuple[Any, ...]], usual: Callable[[tuple[Any, ...]], bool]) -> list[ParameterSet]:
    """Return parameters of a test, several at a time: `make test` runs the usual ones, `make test-all` all of them."""
    return [pytest.param(*each, marks=[] if usual(each) else pytest.mark.exhaustive) for each in values]


def examples(count: int) -> int:
    """Return how many of this many examples a test draws in this run."""
    return max(3, round(count * _SHARE)) if _is_usual else count


def stride(count: int) -> int:
    """Return the step in which a loop goes through what it tries: `count` in `make test`, 1 in `make test-all`."""
    return count if _is_usual else 1
