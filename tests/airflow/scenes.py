"""What tests and the tasks of `dags_standalone` tell one another, in files: tasks run in processes of Airflow.

A scene is a DAG with a lake of its own. All scenes have the same tasks.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

SCENES = (
    "happy",
    "task_killed",
    "worker_killed",
    "publish_killed",
    "close_killed",
    "marked_failed",
    "marked_success",
    "cleared_alone",
    "fails",
    "backfilled",
    "scheduler_killed",
    "stressed",
    "shown",
)
"""The ids of the DAGs."""

FOLLOWED = {scene: f"after_{scene}" for scene in ("happy", "shown")}
"""The DAGs that an event of the totals of a scene starts."""

WRITERS = {"day": "days", "line": "lines", "more": "lines", "total": "totals"}
"""The tables of the tasks that write."""

ROWS = 4
"""The number of rows that each of these tasks writes in a run."""


def home() -> Path:
    return Path(os.environ["LAKE_TEST_HOME"])


def root_of(home: Path, scene: str) -> Path:
    """Return the root of the lake of a scene."""
    return home / "lakes" / scene


def connection_of(scene: str) -> str:
    """Return the connection of the lake of a scene."""
    return f"lake_{scene}"


class Hold:
    """Holds the next process that comes to some point of a task, and no other one, until it is let go."""

    def __init__(self, home: Path, scene: str, task: str) -> None:
        self._folder = home / "holds"
        self._folder.mkdir(exist_ok=True)
        self._token = uuid4().hex
        self._waiting = self._folder / f"{scene}.{task}"
        new = self._folder / f"{scene}.{task}.new"
        new.write_text(self._token)
        new.rename(self._waiting)

    def held(self) -> dict[str, Any] | None:
        """Return the process that is held, or None if none has come yet: its pid, that of its worker and its try."""
        path = self._folder / f"{self._token}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def let_go(self) -> None:
        """Let the process go on, or hold none if none has come yet."""
        self._waiting.unlink(missing_ok=True)
        (self._folder / self._token).unlink(missing_ok=True)


def hold(ti: Any) -> None:
    """Wait in a task, if a test holds it."""
    folder = home() / "holds"
    waiting = folder / f"{ti.dag_id}.{ti.task_id.rpartition('.')[2]}"
    try:
        token = waiting.read_text()
        waiting.rename(folder / token)
    except FileNotFoundError:
        return
    said = folder / f"{token}.new"
    said.write_text(json.dumps({"pid": os.getpid(), "worker": os.getppid(), "run": ti.run_id, "id": str(ti.id)}))
    said.rename(folder / f"{token}.json")
    while (folder / token).exists():
        time.sleep(0.05)


def tell(home: Path, scene: str, task: str, what: str | None) -> None:
    """Tell a task what to do from now on: to `fail`, or to write `nothing`."""
    path = home / f"{scene}.{task}.todo"
    path.unlink(missing_ok=True)
    if what is not None:
        path.write_text(what)


def told(ti: Any) -> str | None:
    """Return what a task is to do, if it is something else than to write."""
    path = home() / f"{ti.dag_id}.{ti.task_id.rpartition('.')[2]}.todo"
    return path.read_text() if path.exists() else None
