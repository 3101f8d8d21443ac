"""One session over three tables and some files: four processes write it, and readers see it published at once."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import deltalake

from lake_core import Lake
from tests.lake.lakes import create_tables, ids, rows
from tests.processes import CONTEXT

TABLES = ("t/a", "t/b", "t/c")
OLD = list(range(10))
NEW = sorted([*OLD, *(1000 * worker + row for worker in range(1, 5) for row in range(3))])


def _writer(root: str, session: str, worker: int) -> None:
    with Lake.open(root).get_session(session).join(task=f"worker-{worker}") as part:
        for path in TABLES:
            part.delta(path).append(rows([1000 * worker + row for row in range(3)]), txn=(f"worker-{worker}", 1))
        for number in range(3):
            part.put(f"files/{worker}-{number}", b"%d" % worker)


def _reader(root: str, report: str) -> None:
    """Read main through `lake://` and as a plain reader until the stop file exists, and write both to `report`."""
    import fsspec

    looks: list[tuple[list[str], int]] = []
    plain: list[list[str]] = []
    Path(f"{report}.ready").touch()
    last = False
    while True:
        stop = Path(f"{report}.stop").exists()
        at = Lake.open(root).at("main")
        tables = [_state(ids(at.delta(path))) for path in TABLES]
        files = len(fsspec.filesystem("lake").glob(f"lake://{root}/main/files/*"))
        pinned = sum(1 for _ in at.list("files/"))
        assert files in (0, 12)
        looks.append((tables, pinned))
        plain.append([_state(ids(deltalake.DeltaTable(f"{root}/{path}").to_pyarrow_table())) for path in TABLES])
        if last:
            break
        last = stop
    Path(report).write_text(json.dumps({"seen": looks, "plain": plain}))
    os._exit(0)  # the threads of native libraries sometimes abort a process that ends the usual way


def _state(row_ids: list[int]) -> str:
    return "old" if row_ids == OLD else "new" if row_ids == NEW else f"torn: {row_ids}"


def test_readers_see_all_or_nothing(tmp_path: Path) -> None:
    root, report = str(tmp_path / "lake"), str(tmp_path / "told")
    lake = Lake.create(root)
    create_tables(lake, *TABLES, partition_by=["p"])
    reader = CONTEXT.Process(target=_reader, args=(root, report))
    reader.start()
    opened = lake.open_session("main", message="four processes")
    writers = [CONTEXT.Process(target=_writer, args=(root, opened.id, worker)) for worker in range(1, 5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    while not Path(f"{report}.ready").exists():
        time.sleep(0.02)
    time.sleep(0.5)  # the reader reads while changes are flushed and not published
    result = opened.publish()
    assert result.versions == dict.fromkeys(TABLES, 1)
    Path(f"{report}.stop").touch()
    reader.join(60)
    assert reader.exitcode == 0
    observed = json.loads(Path(report).read_text())
    looks = [(set(tables), files) for tables, files in observed["seen"]]
    assert all(look in (({"old"}, 0), ({"new"}, 12)) for look in looks), looks
    assert looks[0] == ({"old"}, 0)
    assert looks[-1] == ({"new"}, 12)
    assert all(state in ("old", "new") for states in observed["plain"] for state in states), observed["plain"]
    assert observed["plain"][-1] == ["new"] * 3
    assert lake.maintenance.verify() == []
