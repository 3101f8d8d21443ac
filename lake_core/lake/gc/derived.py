"""Which derived objects beside the datasets are still of use, such as the checkpoints of tables on branches."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lake_core.errors import LakeError
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.lake.state.derived import DERIVED, derived_folder

if TYPE_CHECKING:
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository


def needed_derived(repository: Repository, refs: RefsState) -> set[str]:
    """Return the keys of the newest derived objects of what branches, tags and live sessions name.

    Older commits do without: readers of them take an older object or the log.
    """
    folders = {f"{DERIVED}/{name}" for name in repository.root.list_folders(f"{DERIVED}/")}
    if not folders:
        return set()
    trees = {refs.commit(id).metarange_id for id in refs.named()}
    trees |= {record.tree for record in refs.sessions() if record.state in (OPEN, FAILED)}
    needed: set[str] = set()
    for tree in trees:
        state = repository.state(tree, f"tree {tree[:12]}")
        with suppress(LakeError):  # what cannot be read needs no faster way to read it
            for record in state.registered().values():
                if derived_folder(record) in folders:
                    needed |= state.folder_of(record).derived.needed()
    return needed
