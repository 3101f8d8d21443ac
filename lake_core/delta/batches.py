"""Rows that come in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def together(batches: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Join batches until they have so many rows. Work done once a piece is then done less often."""
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
