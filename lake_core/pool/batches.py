"""Values in batches of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lake_core.pool.value import Value


def batched(values: Iterable[Value], most_bytes: int, most_values: int | None = None) -> Iterator[list[Value]]:
    """Yield values in lists. Each ends with the value with which its bodies take `most_bytes`, or with which it has `most_values`."""
    batch: list[Value] = []
    size = 0
    for value in values:
        batch.append(value)
        size += len(value.body or b"")
        if size >= most_bytes or len(batch) == most_values:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
