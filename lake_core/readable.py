"""Numbers and names as a person reads them, for logs. Metadata keeps plain numbers, which Dagster plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import pyarrow as pa

_UNITS = ("kB", "MB", "GB", "TB", "PB")


def readable_bytes(size: int) -> str:
    """Write a size in the unit that leaves up to three digits before the point."""
    if size < 1000:
        return count_of(size, "byte")
    power = min((len(str(size)) - 1) // 3, len(_UNITS))
    return f"{size / 1000**power:.1f} {_UNITS[power - 1]}"


def count_of(number: int, noun: str) -> str:
    """Write a number of things, the noun in its plural where it needs that."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(names: Sequence[str], most: int = 5) -> str:
    """Write the first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def shown_values(values: pa.ChunkedArray) -> list[Any]:
    """Return values as a message shows them: Python's, or Arrow's text of them, as Python has no year after 9999."""
    try:
        return list(values.to_pylist())
    except (OverflowError, ValueError):
        texts = (values.slice(number, 1).combine_chunks().to_string() for number in range(len(values)))
        return [" ".join(text.split()).removeprefix("[ ").removesuffix(" ]") for text in texts]
