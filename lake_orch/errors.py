"""The errors of the Dagster layer. One meaning each; every one is a LakeError, and every message says what to do."""

from __future__ import annotations

from lake_core.errors import LakeError


class LakeOrchError(LakeError):
    """Every error of this package is one of these."""


class InvalidDefinition(LakeOrchError):
    """An asset's or input's definition metadata cannot be followed: unknown mode, malformed path, missing `partition_expr`."""


class PartitionSliceError(LakeOrchError):
    """The partitions of a run cannot be turned into a predicate on the table's columns. Nothing was written."""


class UnsupportedData(LakeOrchError):
    """An output or an input has a Python type that is neither Arrow nor a PySpark DataFrame."""


class TableNotEmpty(LakeOrchError):
    """Mode `error` found rows where it was to write the first ones. Nothing was written."""


class BatchFailed(LakeOrchError):
    """An earlier batch of this step failed, so later ones no longer have the numbers that a retry would give them."""
