"""Writing the derived objects of a published state, such as checkpoints: in place, or beside the datasets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lake_core.dataset import UnknownFormat

if TYPE_CHECKING:
    from lake_core.lake.state.state_store import StateStore
    from lake_core.store import ObjectStore

_LOG = logging.getLogger(__name__)


def write_derived(state: StateStore, path: str, *, in_place: bool = True) -> None:
    """Write the derived objects of a dataset if they are due. Errors do not affect the commit.

    `in_place` is whether the state is that of the branch in place. Objects of other states are written beside.
    """
    record = state.datasets().get(path)
    if record is None:
        return
    try:
        view = state.folder_of(record)
        place: ObjectStore | None = view.place
        if not in_place:
            # Nothing looks there for other formats, and imported entries are not named by their content.
            place = view.place_beside() if view.format.derived_prefix else None
        if place is not None:
            view.format.write_derived(view, place, state.clock())
    except UnknownFormat:
        raise
    except Exception:
        _LOG.warning("%s is published, but the files derived from its log could not be written", path, exc_info=True)
