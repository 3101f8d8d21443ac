"""Pools of Zed lakes as rows of Spark, and rows as data objects of pools.

The driver lists the data objects (`parts`) and commits new ones; executors read and write their bytes, and need
only pyarrow, numpy and fsspec. `columns` says which Spark type each Zed type has.
"""
