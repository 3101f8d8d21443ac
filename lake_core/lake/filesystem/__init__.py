"""`lake://`: commits, branches and sessions of lakes as an fsspec file system, for pandas, DuckDB, Zarr and others.

    lake://<lake>/<ref>/<path>      pandas.read_parquet("lake://prod/main/exports/day=1")

The lake is a name (of the option `lakes={"prod": "s3://bucket/lake"}`, or as LAKE_URL_PROD in the environment), a
percent-encoded location (`Lake.uri` writes it), or a location as it is (`lake:///data/lake/main/x`,
`lake://s3://bucket/lake/main/x`), of which the shortest beginning that is a lake counts. The ref is a branch, tag,
commit or shared session, or an expression such as `main~1`.

A folder of a dataset lists its log, and the data files that are live in that very state. Of a Delta table without
deletion vectors and column mapping the rows of `<table>/**/*.parquet` are those of the table; of one with deletion
vectors they would include deleted rows (its vectors are listed too, so that readers of whole folders refuse): read such
tables by `Lake.delta`.
"""

from __future__ import annotations

from lake_core.lake.filesystem.files import FileChanged, FileMissing, FilePresent, LakeMissing, RefMissing, WriteRefused
from lake_core.lake.filesystem.system import LakeFileSystem

__all__ = ["FileChanged", "FileMissing", "FilePresent", "LakeFileSystem", "LakeMissing", "RefMissing", "WriteRefused"]
