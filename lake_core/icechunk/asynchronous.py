"""Methods that are awaited, each the twin of one that is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def asynchronous(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return a method that does the same in a thread, so that the event loop goes on meanwhile.

    The twin calls the method by its name: a subclass that has another one changes both.
    """

    @wraps(method)
    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await asyncio.to_thread(getattr(self, method.__name__), *args, **kwargs)
        return result

    return twin
