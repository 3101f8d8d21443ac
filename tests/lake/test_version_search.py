"""The search for a dataset's version near a guess."""

import pytest

from lake_core.lake.state.version_search import last_version


@pytest.mark.parametrize("guess", [0, 1, 2, 6, 7, 8, 100])
@pytest.mark.parametrize("last", [0, 1, 6, 7, 31])
def test_the_last_version_is_found_from_any_guess(last: int, guess: int) -> None:
    assert last_version(lambda version: version <= last, guess) == last


def test_a_search_takes_few_steps() -> None:
    asked: list[int] = []

    def holds(version: int) -> bool:
        asked.append(version)
        return version <= 9_000

    assert last_version(holds, 10_000) == 9_000
    assert len(asked) < 30


@pytest.mark.parametrize("guess", [0, 1, 5])
def test_what_holds_for_no_version_is_not_found(guess: int) -> None:
    assert last_version(lambda version: False, guess) is None
