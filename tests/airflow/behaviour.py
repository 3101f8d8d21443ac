"""What the tasks of the test DAGs do next, and what they did, in files: tasks run in processes of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def home() -> Path:
    return Path(os.environ["LAKE_TEST_HOME"])


def plan(**changes: Any) -> None:
    """Change what tasks do from now on."""
    path = home() / "plan.json"
    path.write_text(json.dumps({**planned(), **changes}))


def planned() -> dict[str, Any]:
    path = home() / "plan.json"
    return json.loads(path.read_text()) if path.exists() else {}


def note(ti: Any, **what: Any) -> int:
    """Note that a try has come to write, and return the number of the note: the rows that it writes have it."""
    path = home() / "calls.jsonl"
    number = len(path.read_text().splitlines()) if path.exists() else 0
    call = {"run": ti.run_id, "task": ti.task_id, "map": ti.map_index, "try": ti.try_number, "n": number, **what}
    with path.open("a") as file:
        file.write(json.dumps(call) + "\n")
    return number


def calls() -> list[dict[str, Any]]:
    path = home() / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def act(task_id: str) -> None:
    """Fail, if that is planned for a task."""
    if task_id.rpartition(".")[2] in planned().get("fail", []):
        raise RuntimeError(f"{task_id} fails as planned")


def begin(ti: Any) -> None:
    """Note that a try has begun, and has written nothing yet. Fail, if that is planned for its task."""
    note(ti, begins=True)
    act(ti.task_id)
