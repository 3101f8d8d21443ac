"""Errors of a lake, as Airflow has to take them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowFailException

from lake_core.errors import LakeError
from lake_core.lake.errors import AttemptTakenOut, BatchesGone, ProtectedBranch, StaleAttempt
from lake_orch.airflow.task_states import readable
from lake_orch.errors import InvalidDefinition, NotALake, TableOwned, TryUnknown

_FINAL = (
    AttemptTakenOut,
    BatchesGone,
    ProtectedBranch,
    StaleAttempt,
    InvalidDefinition,
    NotALake,
    TableOwned,
    TryUnknown,
)
"""Errors that another try at the task would meet again."""


@contextmanager
def without_retry(*more: type[LakeError]) -> Iterator[None]:
    """Fail a task for good where another try would meet the same error, `more` errors among them."""
    try:
        yield
    except LakeError as error:
        if not isinstance(error, (*_FINAL, *more)):
            raise
        raise AirflowFailException(readable(str(error))) from error
