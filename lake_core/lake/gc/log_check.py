"""The check of the checked-out logs of main: they are what the lake has, byte for byte."""

from __future__ import annotations

from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING

from lake_core.dataset import KeyClass
from lake_core.errors import LakeError
from lake_core.lake.gc.problem import Problem
from lake_core.lake.state.content import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.store import ObjectMeta

_READ_AT_ONCE = 64


def check_log(view: DatasetView, *, full: bool) -> Iterator[Problem]:
    """Yield a problem for each log entry in the folder of a dataset that is not that of the lake.

    Entries that the folder lacks are none: old ones are cleaned up, and new ones are yet to be checked out.

    Args:
        view: The dataset as of the branch that is checked out.
        full: Whether to read the entries. By default only their sizes are compared, which costs a listing.
    """
    path = view.record.path
    entries = [meta for meta in view.list() if view.format.key_class(meta.key) is KeyClass.LOG]
    same: list[ObjectMeta] = []
    for folder, group in groupby(entries, lambda meta: meta.key.rpartition("/")[0]):
        sizes = {meta.key: meta.size for meta in view.checkout_store.list(f"{folder}/" if folder else "")}
        for meta in group:
            if sizes.get(meta.key, meta.size) != meta.size:
                yield _problem(path, meta.key, f"it has {sizes[meta.key]} bytes, and in the lake {meta.size}")
            elif meta.key in sizes:
                same.append(meta)
    if not full:
        return
    for start in range(0, len(same), _READ_AT_ONCE):
        batch = same[start : start + _READ_AT_ONCE]
        try:
            bodies = view.checkout_store.get_many([meta.key for meta in batch])
        except LakeError as error:
            yield Problem("unreadable", path, str(error))
            continue
        for meta, body in zip(batch, bodies, strict=True):
            item = view.item(meta.key)
            digest = None if item is None else digest_of(item.entry.address)
            if digest is not None and sha256(body).hexdigest() != digest:
                yield _problem(path, meta.key, "its bytes are not those in the lake")


def _problem(path: str, key: str, detail: str) -> Problem:
    advice = "restore it from a backup. Readers that know the lake are not affected"
    return Problem("corrupt", f"{path}/{key}", f"{detail}: {advice}")
