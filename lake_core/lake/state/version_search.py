"""Search for a version of a dataset, near a guess, in few steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def last_version(holds: Callable[[int], bool], guess: int) -> int | None:
    """Return the last version for which something holds, if it holds for all versions before that.

    Return None if it is not found: what holds for no version, or not for the first ones, may be missed.
    """
    step, low, high = 1, guess, guess
    if holds(guess):
        while holds(high := low + step):
            low, step = high, step * 2
    else:
        while not holds(low := max(0, high - step)):
            if low == 0:
                return None
            high, step = low, step * 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
