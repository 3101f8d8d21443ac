"""Warnings of a write in the log of its step, where they are seen."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagster import OutputContext


@contextmanager
def logged_warnings(context: OutputContext, category: type[Warning]) -> Iterator[None]:
    """Log the warnings of a category, each once. Other warnings go where they went before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", category)
        yield
    messages: dict[str, None] = {}
    for warning in caught:
        if issubclass(warning.category, category):
            messages[str(warning.message)] = None
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    for message in messages:
        context.log.warning(message)
