"""The errors of the Spark layer. All derive from LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError
from lake_core.runner import RunnerFailed


class NoJava(LakeError):
    """Spark needs Java, but it is not installed."""


class JavaTooOld(LakeError):
    """Spark needs a newer Java than the one that is installed."""


class UnreachableStore(RunnerFailed):
    """Spark's executors cannot reach the table's store, because it exists only in this process.

    Keep what Spark reads in files or in a bucket.
    """


class SparkJobFailed(RunnerFailed):
    """A Spark job of a read or write failed in its executors. The cause is Spark's own error.

    Nothing that the job wrote is visible.
    """


class SparkServerFailed(LakeError):
    """A shared Spark Connect server cannot be started or reached."""


class InvalidOption(LakeError):
    """An option of `format("lake")` is unknown, or not valid for this read or write. Nothing was read or written."""


class UnsupportedArray(LakeError):
    """An array cannot be represented as rows, or is of a kind that Spark's executors cannot read or write.

    Nothing was read or written.
    """


class InvalidArraySpec(LakeError):
    """An array cannot be created as its `ArraySpec` says. Nothing was written."""


class MissingPackage(LakeError):
    """Spark's executors lack a Python package that the array needs. Nothing was written."""


class InvalidColumns(LakeError):
    """A DataFrame lacks a column, or has one of the wrong type, for an array or a pool. Nothing was written."""


class InvalidCoordinates(LakeError):
    """The coordinates of an array cannot be used: one is missing or occurs twice, or their type or values differ."""


class UnknownCoordinates(LakeError):
    """Rows have coordinates that the array lacks. Nothing was written to the array."""


class DuplicateCells(LakeError):
    """Several rows have the same cell. Nothing was written to the array."""


class InvalidValues(LakeError):
    """Values cannot be stored in the array, or read as rows. Nothing was written to the array."""


class ArrayChanged(LakeError):
    """The array, or its chunks, were changed in the session while Spark wrote the same chunks.

    Nothing was written to the array.
    """
