"""Reads pools of Zed lakes as rows of Spark, and writes rows as data objects of pools.

The driver lists the data objects (`parts`) and commits new ones. Executors read and write their bytes, and need only
pyarrow, numpy and fsspec. `columns` maps the types of Zed to those of Spark.
"""
