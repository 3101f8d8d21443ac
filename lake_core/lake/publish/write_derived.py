"""Writing the derived objects of a published state, such as checkpoints: in the datasets' folders, or beside them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lake_core.dataset import UnknownFormat

if TYPE_CHECKING:
    from lake_core.lake.state.state_store import StateStore
    from lake_core.store import ObjectStore

_LOG = logging.getLogger(__name__)


def write_derived(state: StateStore, path: str, *, is_checked_out: bool = True) -> None:
    """Write the derived objects of a dataset if they are due. Errors do not affect the commit.

    `is_checked_out` says that the state is one of the branch that is checked out. The objects of other branches are
    written to `_lake/derived` instead of the dataset's folder.
    """
    record = state.datasets().get(path)
    if record is None:
        return
    try:
        view = state.folder_of(record)
        derived_root: ObjectStore | None = view.checkout_store
        if not is_checked_out:
            # Nothing looks there for other formats, and imported entries are not named by their content.
            derived_root = view.derived_root_beside() if view.format.derived_prefix else None
        if derived_root is not None:
            view.format.write_derived(view, derived_root, state.clock())
    except UnknownFormat:
        raise
    except Exception:
        _LOG.warning("%s is published, but the files derived from its log could not be written", path, exc_info=True)
