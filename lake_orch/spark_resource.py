"""A Spark session as a Dagster resource."""

from typing import TYPE_CHECKING

from dagster import ConfigurableResource
from pydantic import Field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(ConfigurableResource):  # type: ignore[type-arg]
    """A Spark session: the running one of this process, or one built with these settings on first use.

    Example:
        .. code-block:: python

            spark = SparkResource(master="local[4]", config={"spark.sql.shuffle.partitions": "8"})

            @dg.asset
            def orders(spark: SparkResource) -> DataFrame:
                return spark.session.read.csv("orders.csv", header=True)
    """

    master: str | None = Field(default=None, description="Spark master, such as local[4]; a Connect server is set in `config`.")
    app_name: str = Field(default="lake", description="The application's name in Spark's own UI.")
    config: dict[str, str] = Field(default_factory=dict, description="Spark settings. No credentials belong here.", repr=False)

    @property
    def session(self) -> "SparkSession":
        """The session. Raises LakeError where Java or PySpark are missing."""
        from lake_core.spark import session

        return session(app_name=self.app_name, master=self.master, config=dict(self.config))
