"""`lake://`: commits, branches and sessions of lakes as an fsspec file system, for pandas, DuckDB, Zarr and others.

    lake://<lake>/<ref>/<path>      pandas.read_parquet("lake://prod/main/exports/day=1")

The lake is a name (of the option `lakes={"prod": "s3://bucket/lake"}`, or as LAKE_URL_PROD in the environment), a
percent-encoded location (as `Lake.uri` returns it), or a plain location (`lake:///data/lake/main/x`,
`lake://s3://bucket/lake/main/x`), whose shortest prefix that is a lake is used. The ref is a branch, tag, commit or
shared session, or an expression such as `main~1`.

The folder of a dataset lists its log, and the data files that are live in this state. If a Delta table has no deletion
vectors and no column mapping, its rows are those of `<table>/**/*.parquet`. With deletion vectors, these files would
include deleted rows (the vectors are listed too, so that readers of whole folders refuse): read such tables by
`Lake.delta`.
"""

from __future__ import annotations

from lake_core.lake.filesystem.files import FileChanged, FileMissing, FilePresent, LakeMissing, RefMissing, WriteRefused
from lake_core.lake.filesystem.system import LakeFileSystem

__all__ = ["FileChanged", "FileMissing", "FilePresent", "LakeFileSystem", "LakeMissing", "RefMissing", "WriteRefused"]
