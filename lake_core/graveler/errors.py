"""The errors of the commit tree. Each has one meaning and is a LakeError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = 5


class GravelerError(LakeError):
    """The base class of all errors of ranges, metaranges and trees."""


class CorruptTable(GravelerError):
    """Bytes are not a valid SSTable, value, entry or commit, or exceed the reader's budget."""


class MergeConflict(GravelerError):
    """Both sides of a merge changed the same keys in different ways. Nothing was written.

    `keys` holds all of them, in order. Give a `strategy` or a `resolve` function to settle them.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        shown = ", ".join(repr(key.decode("utf-8", "backslashreplace")) for key in keys[:_SHOWN])
        more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        super().__init__(
            f"both sides changed {shown}{more}: choose strategy='ours' or 'theirs', or resolve the conflicts "
            "with a function of your own"
        )
        self.keys = tuple(keys)

    def __reduce__(self) -> tuple[object, ...]:
        return MergeConflict, (self.keys,)
