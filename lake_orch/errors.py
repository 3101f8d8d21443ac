"""The errors of the Dagster layer. Each has one meaning and is a LakeError, and each message says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from lake_core.errors import LakeError


class LakeOrchError(LakeError):
    """Base class of the errors of this package."""


class InvalidDefinition(LakeOrchError):
    """Definition metadata of an asset, op or input is invalid.

    An unknown mode, a malformed path, a path that another output of the job has too, a missing `partition_expr`.
    """


class DefinitionMismatch(LakeOrchError):
    """Rows, or the existing table, are not what the asset declares, and no automatic change can fix that."""


class PartitionSliceError(LakeOrchError):
    """The partitions of a run cannot be turned into a predicate on the table's columns. Nothing was written."""


class OutsideRegion(LakeOrchError):
    """Arrays have coordinates outside of the run's partitions. Nothing was written."""


class UnsupportedData(LakeOrchError):
    """An output or an input has a Python type, or holds one, that no handler knows how to store or load."""


class RegionMismatch(LakeOrchError):
    """Arrays do not fit the stored arrays, or other partitions share the coordinates that would change.

    Nothing was written.
    """


class LandingForgotten(LakeOrchError):
    """A dataset may have forgotten which files have landed in it. Nothing was written."""


class TableNotEmpty(LakeOrchError):
    """The mode is `error`, which only writes if there is no data, but data exists. Nothing was written."""


class TableOwned(LakeOrchError):
    """An asset would replace data that another asset wrote. Nothing was written.

    Give one of them another path, or set `lake/owner`.
    """


class TryUnknown(LakeOrchError):
    """The orchestrator no longer knows which try of a task has succeeded, so nobody knows which of its rows count.

    Run all tasks of the run again.
    """


class BatchFailed(LakeOrchError):
    """An earlier batch of this step failed, so later ones no longer have the numbers that a retry would give them.

    Let the step fail, and retry it.
    """


class NotALake(LakeOrchError):
    """An operation that needs a lake was called for a folder that is not a lake. `lake init` makes it one."""


class OtherLake(LakeOrchError):
    """A step writes into a second lake of whole runs, but a run has one session, in one lake. Nothing was written."""


class SessionLost(LakeOrchError):
    """A run continues another run whose session is gone: start a new run of all steps."""


class StepsLeftOut(LakeOrchError):
    """A run continues another one, but leaves out steps of it that have not succeeded. No session is published."""


class AlreadyRead(LakeOrchError):
    """Two runs of an asset have read the same new records, and the other one was published first. Nothing was written.

    A new run reads what is left.
    """


class UpstreamUnpublished(LakeOrchError):
    """A run reads an asset whose newest rows are not published. Nothing was read."""


class GateFailed(LakeOrchError):
    """Asset checks prevent publishing.

    `checks` names them as `asset:check`. Nothing was published, and the session can still be read.
    """

    def __init__(self, message: str, *, checks: Sequence[str]) -> None:
        super().__init__(message)
        self.checks = tuple(checks)


class CheckPending(LakeOrchError):
    """An output would be published before the check of the same step that gates it. Nothing was written."""


class NothingToRecover(LakeOrchError):
    """A session cannot be recovered: its steps did not all succeed, or its publish did not fail.

    The message says what to do.
    """


class FilesGone(LakeOrchError):
    """Files of a landing zone were removed before they landed. Nothing was written."""


class BatchOutOfTurn(LakeOrchError):
    """A batch of a landing zone would land before an earlier one, which would then count as landed.

    Nothing was written.
    """
