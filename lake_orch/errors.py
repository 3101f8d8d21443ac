"""The errors of the Dagster layer. One meaning each; every one is a LakeError, and every message says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from lake_core.errors import LakeError


class LakeOrchError(LakeError):
    """Every error of this package is one of these."""


class InvalidDefinition(LakeOrchError):
    """An asset's or input's definition metadata cannot be followed: unknown mode, malformed path, missing `partition_expr`."""


class DefinitionMismatch(LakeOrchError):
    """Rows, or the existing table, are not what the asset's definition declares, and that cannot be put right by itself."""


class PartitionSliceError(LakeOrchError):
    """The partitions of a run cannot be turned into a predicate on the table's columns. Nothing was written."""


class OutsideRegion(LakeOrchError):
    """Arrays have coordinates that are not of the run's partitions. Nothing was written."""


class UnsupportedData(LakeOrchError):
    """An output or an input has a Python type, or holds one, that no handler knows how to store or load."""


class RegionMismatch(LakeOrchError):
    """Arrays do not fit those that stand there, or other partitions share the coordinates that would change. Nothing was written."""


class TableNotEmpty(LakeOrchError):
    """Mode `error` found rows where it was to write the first ones. Nothing was written."""


class TableOwned(LakeOrchError):
    """An asset was to replace rows of a table that another asset made. Nothing was written."""


class BatchFailed(LakeOrchError):
    """An earlier batch of this step failed, so later ones no longer have the numbers that a retry would give them."""


class NotALake(LakeOrchError):
    """What needs a lake was asked of a folder that is none."""


class SessionLost(LakeOrchError):
    """A run carries on another's work, and the session that held it is gone: start a new run of all steps."""


class GateFailed(LakeOrchError):
    """Asset checks prevent publishing. `checks` names them as `asset:check`. Nothing was published; the session stays readable."""

    def __init__(self, message: str, *, checks: Sequence[str]) -> None:
        super().__init__(message)
        self.checks = tuple(checks)


class CheckPending(LakeOrchError):
    """An output would be published before the check of the same step that is to gate it. Nothing was written."""


class NothingToRecover(LakeOrchError):
    """A session is not one whose steps all succeeded and whose publish did not. The message says what it is, and what to do."""


class FilesGone(LakeOrchError):
    """Files of a landing zone were taken away before they were in their table. Nothing was written."""


class BatchOutOfTurn(LakeOrchError):
    """A batch of a landing zone is to land before an earlier one has: it would make that one look landed. Nothing was written."""
