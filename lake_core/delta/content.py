"""The check of a data file's content: that all of its pages decode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lake_core.store.object_file import open_object

if TYPE_CHECKING:
    from lake_core.store import ObjectStore


def parquet_problem(store: ObjectStore, key: str) -> str | None:
    """Read a Parquet file, and return what is wrong with it.

    The checksums of its pages are compared if it has any. Files of this package have them.
    """
    try:
        with pq.ParquetFile(open_object(store, key), page_checksum_verification=True) as file:
            for _ in file.iter_batches():
                pass
    except (OSError, EOFError, pa.ArrowException, ValueError) as error:
        return f"it is not a Parquet file that can be read: {error}"
    return None
