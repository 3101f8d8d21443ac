"""Insertion and removal of elements along one dimension of all arrays. Later elements move."""

from __future__ import annotations

from typing import Any

import zarr

from lake_core.icechunk import IcechunkStore


def splice(store: IcechunkStore, dimension: str, start: int, stop: int, length: int) -> None:
    """Replace the elements from `start` to `stop` along a dimension by `length` empty ones.

    All arrays with the dimension are changed. At the end, arrays only grow. At any other position, all later elements
    are read and written again.
    """
    for _, array in zarr.open_group(store, mode="r+", use_consolidated=False).arrays():
        names = array.metadata.dimension_names or ()  # type: ignore[union-attr]
        if dimension in names:
            _splice(array, names.index(dimension), start, stop, length)


def _splice(array: zarr.Array[Any], axis: int, start: int, stop: int, length: int) -> None:
    before = array.shape[axis]
    after = before + length - (stop - start)
    chunk = (array.shards or array.chunks)[axis]
    if after > before:
        _resize(array, axis, after)
        # The last chunk may hold elements that were cut off earlier.
        _clear(array, axis, before, min(after, -(-before // chunk) * chunk))
    if stop < before:
        _move(array, axis, stop, before, start + length, chunk)
    _clear(array, axis, start, min(start + length, before))
    if after < before:
        _resize(array, axis, after)


def _move(array: zarr.Array[Any], axis: int, start: int, stop: int, target: int, chunk: int) -> None:
    """Copy elements to another position along an axis, a chunk at a time.

    The copy starts at the side on which no element is overwritten before it is read.
    """
    if target == start:
        return
    begins = range(start, stop, chunk)
    for begin in reversed(begins) if target > start else begins:
        end = min(begin + chunk, stop)
        array[_at(array, axis, begin + target - start, end + target - start)] = array[_at(array, axis, begin, end)]


def _clear(array: zarr.Array[Any], axis: int, start: int, stop: int) -> None:
    if start < stop:
        array[_at(array, axis, start, stop)] = array.fill_value


def _resize(array: zarr.Array[Any], axis: int, length: int) -> None:
    shape = list(array.shape)
    shape[axis] = length
    array.resize(tuple(shape))


def _at(array: zarr.Array[Any], axis: int, start: int, stop: int) -> tuple[slice, ...]:
    return tuple(slice(start, stop) if number == axis else slice(None) for number in range(array.ndim))
