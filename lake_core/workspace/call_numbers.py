"""Numbers for what one attempt does several times."""

from __future__ import annotations

from itertools import count


class CallNumbers:
    """Numbers calls from one, so that the n-th call stands for the same task in every attempt."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        """Return the lowest number that is free."""
        number = next(number for number in count(1) if number not in self._taken)
        self._taken.add(number)
        return number

    def give_back(self, number: int) -> None:
        """Free the number of a failed call: a retry within the attempt does the same task, not the next."""
        self._taken.discard(number)
