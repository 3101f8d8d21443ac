"""The manifests of an array after a commit.

A reader looks a chunk up only in the first manifest whose extents hold it. So the extents of an array's manifests never
overlap. References outside of all extents go to a new manifest, for which no other is read. Where a chunk inside of
them changes, that manifest is rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.manifest import ChunkReferences, Extents, concatenated, is_in, is_inside, overlap
from lake_core.icechunk.splitting import split, split_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.icechunk.snapshot import ArrayNode, ManifestRef

MOST_MANIFESTS = 64
"""How many manifests of an array may be in one split before small ones are merged."""
_AFTER_MERGE = 16


@dataclass(frozen=True, slots=True)
class ManifestUpdate:
    """The manifests of an array: unchanged ones, and the references of each one to write."""

    kept: tuple[ManifestRef, ...]
    new: tuple[ChunkReferences, ...]


@dataclass(slots=True)
class ManifestUpdater:
    """An update of the manifests of an array whose chunks have changed."""

    array: ArrayNode
    """The array, with its new shape and its old manifests."""
    written: ChunkReferences
    """References that were set, within the shape."""
    erased: npt.NDArray[np.uint32]
    """Shape (dimensions, chunks): the chunks that were erased."""
    bounds: tuple[int, ...]
    """The grid of chunks outside of which old references are dropped."""
    sizes: tuple[int, ...]
    """How many chunks along each dimension go into one manifest."""
    read: Callable[[ManifestRef], ChunkReferences]
    """Returns the references of the array in a manifest."""
    count: Callable[[ManifestRef], int]
    """Returns about how many references a manifest holds."""
    _kept: list[ManifestRef] = field(default_factory=list)
    _pieces: list[ChunkReferences] = field(default_factory=list)
    """References for new manifests, one manifest each."""

    def update(self) -> ManifestUpdate:
        """Return the unchanged manifests, and the references of those to write."""
        shape = tuple((0, end) for end in self.bounds)
        self._kept = [ref for ref in self.array.manifests if overlap(ref.extents, shape)]
        outside = np.ones(len(self.written), bool)
        for ref in tuple(self._kept):
            here = self.written.inside(ref.extents) & outside
            outside &= ~here
            overshoots = any(end > length for (_, end), length in zip(ref.extents, self.bounds, strict=True))
            if overshoots or here.any() or is_inside(self.erased, ref.extents).any():
                self._rewrite(ref, self.written.take(here))
        # Chunks that were written outside of all extents may surround some of these.
        self._pieces += split(self.written.take(outside), self.sizes)
        self._separate()
        self._merge_small()
        return ManifestUpdate(tuple(self._kept), tuple(self._pieces))

    def _rewrite(self, ref: ManifestRef, written: ChunkReferences) -> None:
        """Rewrite a manifest: drop erased references and those outside the shape, add new ones in its extents."""
        self._kept.remove(ref)
        before = self.read(ref)
        keep = before.inside([(0, end) for end in self.bounds]) & before.inside(ref.extents)
        if self.erased.shape[1]:
            keep &= ~is_in(before.index, self.erased)
        after = concatenated([before.take(keep), written])
        self._pieces += split(after, self.sizes)

    def _separate(self) -> None:
        """Merge overlapping pieces until none overlap."""
        pieces, self._pieces = self._pieces, []
        while pieces:
            piece = pieces.pop()
            extents = piece.extents
            overlapping = [ref for ref in self._kept if overlap(ref.extents, extents)]
            if overlapping:
                for ref in overlapping:
                    self._rewrite(ref, self.written.take(np.zeros(len(self.written), bool)))
                pieces += [piece, *self._pieces]
                self._pieces = []
                continue
            others = [other for other in self._pieces if overlap(other.extents, extents)]
            if others:
                self._pieces = [
                    other for other in self._pieces if not any(other is overlapped for overlapped in others)
                ]
                # A piece within one split stays within it: those that overlap share one.
                pieces.append(concatenated([*others, piece]))
                continue
            self._pieces.append(piece)

    def _merge_small(self) -> None:
        """Merge the smaller manifests of a split that has too many."""
        splits: dict[Extents, list[ManifestRef]] = {}
        for ref in self._kept:
            splits.setdefault(split_cell(ref.extents, self.sizes), []).append(ref)
        crowded = False
        for cell, refs in splits.items():
            pieces = [piece for piece in self._pieces if split_cell(piece.extents, self.sizes) == cell]
            if len(refs) + len(pieces) <= MOST_MANIFESTS:
                continue
            crowded = True
            nothing = self.written.take(np.zeros(len(self.written), bool))
            smallest = sorted(refs, key=self.count)[: max(0, len(refs) - _AFTER_MERGE)]
            before, self._pieces = self._pieces, []
            for ref in smallest:
                self._rewrite(ref, nothing)
            together = [*pieces, *self._pieces]
            self._pieces = [piece for piece in before if not any(piece is merged for merged in pieces)]
            if together:
                self._pieces.append(concatenated(together))
        if crowded:
            self._separate()
