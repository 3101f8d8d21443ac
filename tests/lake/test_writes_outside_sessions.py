"""Writes into what a commit or a branch holds, outside of a session: refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zarr

from lake_core import Lake
from lake_core.lake.errors import ReadOnly
from tests.lake.lakes import SCHEMA, rows

_WRITES: dict[str, Callable[[Lake], Any]] = {
    "append": lambda lake: lake.delta("t").append(rows([9])),
    "append to a commit": lambda lake: lake.at("main~1").delta("t").append(rows([9])),
    "overwrite": lambda lake: lake.delta("t").overwrite(rows([9])),
    "overwrite a part": lambda lake: lake.delta("t").overwrite(rows([9]), where="p = 'p1'"),
    "delete": lambda lake: lake.delta("t").delete("id = 1"),
    "update": lambda lake: lake.delta("t").update({"v": "7"}, "id = 1"),
    "merge": lambda lake: (
        lake.delta("t").merge(rows([1]), "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    ),
    "optimize": lambda lake: lake.delta("t").optimize(),
    "set_properties": lambda lake: lake.delta("t").set_properties({"delta.appendOnly": "true"}),
    "load": lambda lake: lake.pool("p").load(pa.table({"ts": [3]})),
    "delete records": lambda lake: lake.pool("p").delete("ts = 1"),
    "put": lambda lake: lake.at().put("file", b"x"),
    "delete a file": lambda lake: lake.at().delete(["file"]),
    "append in the handle of a shared session": lambda lake: (
        lake.open_session("main", id="shared").delta("t").append(rows([9]))
    ),
}


def _lake(root: Path) -> Lake:
    lake = Lake.create(root)
    with lake.session() as s:
        s.create_delta("t", SCHEMA).append(rows(range(5)))
        s.create_pool("p").load(pa.table({"ts": [1, 2]}))
        s.put("file", b"x")
        zarr.create_array(s.create_icechunk("a").store, name="x", shape=(4,), dtype="int64")[:] = 1
    with lake.session() as s:
        s.delta("t").append(rows([5]))
    return lake


def _files(root: Path) -> set[str]:
    folders = ("t", "p", "a", "_lake/objects")
    return {str(file) for folder in folders for file in (root / folder).rglob("*") if file.is_file()}


@pytest.mark.parametrize("write", _WRITES)
def test_a_write_outside_of_a_session_leaves_nothing(tmp_path: Path, write: str) -> None:
    lake = _lake(tmp_path)
    before = _files(tmp_path)
    with pytest.raises(ReadOnly) as caught:
        _WRITES[write](lake)
    assert _files(tmp_path) == before
    assert "session" in str(caught.value)
    assert "_delta_log" not in str(caught.value)


def test_the_advice_names_what_to_open(tmp_path: Path) -> None:
    lake = _lake(tmp_path)
    with pytest.raises(ReadOnly, match=r"session\.delta\('t'\)"):
        lake.delta("t").append(rows([9]))
    with pytest.raises(ReadOnly, match=r"session\.pool\('p'\)"):
        lake.pool("p").load(pa.table({"ts": [3]}))


def test_arrays_are_not_written_either(tmp_path: Path) -> None:
    lake = _lake(tmp_path)
    before = _files(tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_group(lake.icechunk("a").store, mode="a")["x"][:] = 2  # type: ignore[index]
    assert _files(tmp_path) == before
