"""What has a Spark session, such as a resource of an orchestrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkSource(Protocol):
    """Something from which a Spark session is had when it is needed."""

    @property
    def session(self) -> SparkSession:
        """Return the session, which may start Spark."""
