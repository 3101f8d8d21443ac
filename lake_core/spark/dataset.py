"""Datasets of any format as DataFrames, by a function that the format registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lake_core.dataset import UnknownFormat
from lake_core.installed import installed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lake_core.lake.state.state_store import StateStore

SPARK_READERS: Final = "lake_core.spark_readers"
"""The entry point group: format → a function of a session and the format's handle, which returns a DataFrame."""


def read_dataset(spark: SparkSession, state: StateStore, path: str, **options: Any) -> DataFrame:
    """Return the rows of a dataset of a state of a lake, such as `lake.at("main")`.

    Args:
        spark: A session, classic or of Connect.
        state: The state.
        path: The path of the dataset.
        options: Those of the format's own function: of `read_delta`, `read_pool` or `read_array`.

    Raises:
        DatasetNotFound: There is nothing at the path.
        UnknownFormat: The format is not read in Spark.
    """
    record = state.dataset(path).record
    readers = installed(SPARK_READERS)
    if record.format not in readers:
        raise UnknownFormat(
            f"datasets of the format {record.format} are not read in Spark, but those of {', '.join(readers)}: "
            f"its package has to register a function as an entry point of {SPARK_READERS}"
        )
    frame: DataFrame = readers[record.format].load()(spark, state.open(path), **options)
    return frame
