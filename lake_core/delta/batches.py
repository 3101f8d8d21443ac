"""Batches of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def together(batches: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Combine batches until each has `rows` rows, so that work per batch is done less often."""
    held: list[pa.Table] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.concat_tables(held)
            held, count = [], 0
    if held:
        yield pa.concat_tables(held)
