"""Arrays of Icechunk repositories as rows of Spark: each chunk is read and written by one task.

Needs the extra `arrays`.

The driver opens arrays with Zarr and xarray (`array_variable`), and sends executors what they need by value: where
chunks are, and how they are encoded (`chunk_codec`, `cf_encoding`). Executors therefore need only pyarrow, numpy and
fsspec for the codecs that most arrays have.
"""
