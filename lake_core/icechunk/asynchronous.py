"""Asynchronous versions of methods."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def asynchronous(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return an asynchronous method that calls a method in a thread, without blocking the event loop.

    It calls the method by its name, so that a subclass that overrides the method changes both.
    """

    @wraps(method)
    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await asyncio.to_thread(getattr(self, method.__name__), *args, **kwargs)
        return result

    return twin
