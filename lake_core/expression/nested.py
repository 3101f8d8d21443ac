"""Functions that create structs and arrays, and search arrays and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE
from lake_core.expression.arrays import array, booleans, null_unless, true, valid, values
from lake_core.expression.numeric import compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.expression.tree import Call


def make_struct(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Combine the values of all arguments, row by row, into structs with the names of the call's type."""
    return pa.StructArray.from_arrays(list(arguments), fields=list(call.type))


def make_array(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Combine each row's arguments into a list, in their order."""
    rows, width = len(arguments[0]), len(arguments)
    order = np.arange(rows * width).reshape(width, rows).T.ravel()  # row by row, not argument by argument
    elements = pa.concat_arrays(list(arguments)).take(array(order, pa.int64()))
    return pa.ListArray.from_arrays(array(np.arange(rows + 1) * width, pa.int32()), elements, type=call.type)


def size(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return the number of elements, or null for null, as in ANSI mode."""
    (lists,) = arguments
    return null_unless(array(np.diff(values(lists.offsets)), pa.int32()), valid(lists))


def holds_element(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return whether the element is in the list. Return null if it is not in the list, but the list contains a null."""
    lists, element = arguments
    lengths = np.where(valid(lists), np.diff(values(lists.offsets)), 0)
    owners = np.repeat(np.arange(len(lists)), lengths)
    elements = lists.flatten()
    equal = compare("=", elements, element.take(array(owners, pa.int64())))
    contained, unknown = np.zeros(len(lists), np.bool_), np.zeros(len(lists), np.bool_)
    contained[owners[true(pc.fill_null(equal, FALSE_VALUE))]] = True
    unknown[owners[~valid(elements)]] = True
    return null_unless(booleans(contained), valid(lists) & valid(element) & (contained | ~unknown))
