"""A decorator that yields checks before outputs, so that a blocking check can hold back the output of its own step."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    DagsterInvariantViolationError,
    MaterializeResult,
    ObserveResult,
    Output,
)

_F = TypeVar("_F", bound=Callable[..., Any])


def checks_first(function: _F) -> _F:
    """Make an asset's function yield check results before outputs.

    Put the decorator below `@dg.asset` or `@dg.multi_asset`.

    Under `scope="asset"`, an output is published when Dagster passes it to the IO manager. Dagster may do that before
    it handles the check results of the output (`MaterializeResult(check_results=…)`). With this decorator, a blocking
    check that fails with severity ERROR keeps its asset from being published.

    All results of the function are held in memory until it ends. It may return or yield, and be async. A direct call,
    as in a unit test, behaves as without the decorator.

    Example:
        .. code-block:: python

            @dg.asset(check_specs=[dg.AssetCheckSpec("no_gaps", asset="orders", blocking=True)])
            @checks_first
            def orders():
                rows = read()
                gaps = dg.AssetCheckResult(passed=has_no_gaps(rows))
                return dg.MaterializeResult(value=rows, check_results=[gaps])
    """
    wrapper: Callable[..., Any]
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            for event in _in_order([event async for event in function(*args, **kwargs)]):
                yield event

        wrapper = async_generator
    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return _returned(await function(*args, **kwargs))

        wrapper = coroutine
    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
            yield from _in_order(function(*args, **kwargs))

        wrapper = generator
    else:

        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            return _returned(function(*args, **kwargs))

        wrapper = plain
    return cast("_F", wrapper)


def _returned(result: Any) -> Any:
    """Return a result as a generator if the order of its parts matters.

    Dagster treats it like a function that yields.
    """
    if not _in_a_step():
        return result
    if inspect.isgenerator(result):
        return (event for event in _in_order(result))
    events = result if type(result) is tuple else (result,)
    if not any(_has_checks(event) for event in events) or not all(isinstance(event, _EVENTS) for event in events):
        return result
    return (event for event in _in_order(events))


_EVENTS = (AssetCheckResult, MaterializeResult, ObserveResult, Output)


def _has_checks(event: object) -> bool:
    return isinstance(event, AssetCheckResult) or bool(getattr(event, "check_results", None))


def _in_order(events: Iterable[Any]) -> list[Any]:
    """Return the same events, with the check results in front."""
    checks: list[Any] = []
    others: list[Any] = []
    for event in events:
        if isinstance(event, AssetCheckResult):
            checks.append(event)
        elif isinstance(event, MaterializeResult | ObserveResult) and event.check_results:
            checks += [_about(check, event.asset_key) for check in event.check_results]
            others.append(_without_checks(event))
        else:
            others.append(event)
    return [*checks, *others]


def _without_checks(event: MaterializeResult[Any] | ObserveResult) -> Any:
    fields: dict[str, Any] = {
        "asset_key": event.asset_key,
        "metadata": event.metadata,
        "data_version": event.data_version,
        "tags": event.tags,
    }
    return (
        ObserveResult(**fields) if isinstance(event, ObserveResult) else MaterializeResult(**fields, value=event.value)
    )


def _about(check: AssetCheckResult, asset_key: Any) -> AssetCheckResult:
    """Return a check result with the key of its asset."""
    if check.asset_key is not None or asset_key is None:
        return check
    return AssetCheckResult(
        passed=check.passed,
        asset_key=asset_key,
        check_name=check.check_name,
        metadata=check.metadata,
        severity=check.severity,
        description=check.description,
    )


def _in_a_step() -> bool:
    try:
        AssetExecutionContext.get()
    except DagsterInvariantViolationError:
        return False
    return True
