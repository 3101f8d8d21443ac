"""Errors of a lake, as Airflow has to take them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowFailException

from lake_core.lake.errors import BatchesGone, SessionClosed, StaleAttempt, StaleEpoch
from lake_orch.errors import InvalidDefinition, NotALake, TableOwned

_FINAL = (BatchesGone, SessionClosed, StaleAttempt, StaleEpoch, InvalidDefinition, NotALake, TableOwned)
"""Errors that another try at the task would meet again."""


@contextmanager
def without_retry() -> Iterator[None]:
    """Fail a task for good where another try would meet the same error. Conflicts are tried again."""
    try:
        yield
    except _FINAL as error:
        raise AirflowFailException(str(error)) from error
