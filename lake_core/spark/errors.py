"""The errors of the Spark layer. One meaning each; every one is a LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError


class NoJava(LakeError):
    """Spark needs Java, and none was found."""


class JavaTooOld(LakeError):
    """Spark needs a newer Java than the one found."""


class UnreachableStore(LakeError):
    """Spark's executors cannot reach the table's store, because it lives in this process alone."""


class SparkJobFailed(LakeError):
    """A Spark job of a read or write failed in its executors. Nothing of it is visible. The cause is Spark's own error."""


class SparkServerFailed(LakeError):
    """A shared Spark Connect server cannot be started, or cannot be talked to."""


class InvalidOption(LakeError):
    """An option of `format("lake")` is unknown, or means nothing here. Nothing was read or written."""
