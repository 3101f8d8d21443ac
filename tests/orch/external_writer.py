"""What the tests of Pipes start: it writes two tables, and dies or is overtaken where a file asks for that."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa
from dagster_pipes import open_dagster_pipes

from lake_core import Lake
from lake_pipes import open_workspace

WISHES = Path(sys.argv[1])


def wish(name: str) -> bool:
    """Return whether an event is requested now. Each request counts once."""
    wishes = json.loads(WISHES.read_text()) if WISHES.exists() else []
    if name not in wishes:
        return False
    wishes.remove(name)
    WISHES.write_text(json.dumps(wishes))
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait(when: str) -> None:
    """Wait until a file says to go on, and say so by another one."""
    (WISHES.parent / f"waits {when}").touch()
    while not (WISHES.parent / f"go on {when}").exists():
        time.sleep(0.05)


with open_dagster_pipes() as pipes:
    report = {"argv": sys.argv, "extras": pipes.extras, "dagster": "dagster" in sys.modules}
    with (WISHES.parent / "reports.jsonl").open("a") as file:
        file.write(json.dumps(report) + "\n")
    rows = pa.table({"id": [1, 2, 3]})
    with open_workspace(pipes) as work:
        work.append("tables/first", rows)
        if wish("die between"):
            die()
        work.append("tables/second", rows)
        work.append("tables/second", rows.slice(1))
        work.files.put("files/note.txt", str(len(rows)).encode())
        if wish("wait before"):
            wait("before")
        if wish("be overtaken"):
            assert work.session is not None
            Lake.open(work.root).open_session(id=work.session)
    if wish("wait after"):
        wait("after")
    if wish("die after"):
        die()
    pipes.report_asset_materialization(metadata=work.metadata())
