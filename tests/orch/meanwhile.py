"""A lake in which something else happens while a step has the session open that it writes to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lake_core.workspace import Workspace
from lake_orch import LakeResource
from lake_orch.dagster.runs.attempt import Attempt

MEANWHILE: list[Callable[[], object]] = []
"""What happens the next times that a workspace is opened, each once, in a thread of its own."""


class LakeOfOthers(LakeResource):
    """A lake that others use."""

    def workspace(self, attempt: Attempt) -> Workspace:
        workspace = super().workspace(attempt)
        if MEANWHILE:
            thread = threading.Thread(target=MEANWHILE.pop())
            thread.start()
            thread.join()
        return workspace
