"""The errors of the Spark layer. All derive from LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError


class NoJava(LakeError):
    """Spark needs Java, and none was found."""


class JavaTooOld(LakeError):
    """Spark needs a newer Java than the one found."""


class UnreachableStore(LakeError):
    """Spark's executors cannot reach the table's store, because it exists only in this process."""


class SparkJobFailed(LakeError):
    """A Spark job of a read or write failed in its executors.

    Nothing of it is visible. The cause is Spark's own error.
    """


class SparkServerFailed(LakeError):
    """A shared Spark Connect server cannot be started, or cannot be talked to."""


class InvalidOption(LakeError):
    """An option of `format("lake")` is unknown, or means nothing here. Nothing was read or written."""


class UnsupportedArray(LakeError):
    """An array cannot be represented as rows, or is of a kind that Spark's executors cannot read or write.

    Nothing was read or written.
    """


class InvalidArraySpec(LakeError):
    """An array cannot be created as its `ArraySpec` says. Nothing was written."""


class MissingPackage(LakeError):
    """Spark's executors lack a Python package that the array needs. Nothing was written."""


class InvalidColumns(LakeError):
    """A DataFrame lacks a column that the array needs, or has one of another type. Nothing was written."""


class InvalidCoordinates(LakeError):
    """Coordinates are ambiguous: a dimension has one of them twice."""


class UnknownCoordinates(LakeError):
    """Rows have coordinates that the array lacks. Nothing of the write is visible."""


class DuplicateCells(LakeError):
    """Several rows are of one cell. Nothing of the write is visible."""


class InvalidValues(LakeError):
    """Values cannot be stored in the cells of the array. Nothing of the write is visible."""


class ArrayChanged(LakeError):
    """The array, or its chunks, were changed in the session while Spark wrote the same chunks.

    Nothing of the write is visible.
    """
