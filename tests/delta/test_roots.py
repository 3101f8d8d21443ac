"""Tables whose log names files outside of their root, as shallow clones do: read only where the caller allows it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import PathOutsideTable
from lake_core.delta.log_segment import commit_key
from lake_core.delta.path import encode_path, locate
from lake_core.delta.scan import open_data_files, plan_scan
from lake_core.store import LocalStore, MemoryStore
from lake_core.store.cloud.s3 import S3Store
from tests.delta.tables import SCHEMA, ids, rows


def _clone(source: Path, target: Path, spell: str = "file://{}") -> DeltaTable:
    """Create a table at `target` with one file of its own and the files of `source` by absolute paths."""
    original = DeltaTable.create(str(source), SCHEMA, partition_by=["p"])
    original.append(rows(0, 6))
    DeltaTable.create(str(target), SCHEMA, partition_by=["p"]).append(rows(6, 7))
    lines = []
    for line in original.store.get(commit_key(1)).decode().splitlines():
        body = json.loads(line)
        if "add" in body:
            relative = body["add"]["path"]
            folder = encode_path(str(source))
            body["add"]["path"] = spell.format(f"{folder}/{relative}")
        lines.append(json.dumps(body))
    LocalStore(target).put(commit_key(2), "\n".join(lines).encode())
    return original


@pytest.mark.parametrize("spell", ["file://{}", "file:{}", "{}"])
def test_an_allowed_root_is_read(tmp_path: Path, spell: str) -> None:
    source, target = tmp_path / "so urce", tmp_path / "clone"
    _clone(source, target, spell)
    for root in (str(source), f"file://{source}", source, str(tmp_path), LocalStore(source)):
        table = DeltaTable.open(str(target), allowed_roots=["/nowhere", root])
        assert ids(table.to_arrow()) == list(range(7))
        assert ids(table.to_batches(where="p = 'p1'").read_all()) == [1, 4]
        assert ids(table.refresh().to_arrow()) == list(range(7))
        paths = table.files(["path"])["path"].to_pylist()
        assert sum(path.startswith(f"file://{source}/p=") for path in paths) == 3
        files = pickle.loads(pickle.dumps(open_data_files(plan_scan(table.snapshot, None, None))))
        assert sum(len(paths) for paths in files) == 7


def test_others_are_refused_and_told_what_to_do(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "clone"
    _clone(source, target)
    for roots in ([], [str(tmp_path / "sour")], [str(tmp_path / "source2")], [str(source / "p=p0")], ["s3://source"]):
        table = DeltaTable.open(str(target), allowed_roots=roots)
        with pytest.raises(PathOutsideTable, match="allowed_roots"):
            table.to_arrow()
    with pytest.raises(ValueError, match="list of locations"):
        DeltaTable.open(str(target), allowed_roots=str(source))
    assert ids(DeltaTable.open(str(target)).to_arrow(where="id = 6")) == [6], (
        "files that no reader needs are not asked for"
    )


def test_a_clone_goes_on_with_its_roots(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "clone"
    _clone(source, target)
    table = DeltaTable.open(str(target), allowed_roots=[str(source)])
    table.append(rows(7, 8))
    assert ids(table.to_arrow()) == list(range(8))
    at = DeltaTable.open(str(target), timestamp=_last(table), allowed_roots=[str(source)])
    assert ids(at.to_arrow()) == list(range(8))


def _last(table: DeltaTable) -> Any:
    from lake_core.delta.commit_time import instant_of

    return instant_of(table.history(1)[0]["timestamp"])


ROOTS = (S3Store("bucket", "table"), S3Store("other", "a b"), LocalStore("/data/x"))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("p=1/x.parquet", (0, "p=1/x.parquet")),
        ("s3://bucket/table/x", (0, "x")),
        ("s3a://other/a%20b/x%2525", (1, "x%25")),
        ("s3n://other/a b/x", (1, "x")),
        ("file:/data/x/y", (2, "y")),
        ("file:///data/x/y", (2, "y")),
        ("/data/x/y", (2, "y")),
    ],
)
def test_where_paths_lead(path: str, found: tuple[int, str]) -> None:
    assert locate(path, ROOTS) == found


@pytest.mark.parametrize(
    "path",
    [
        "s3://other/a%20bc/x",
        "s3://other/x",
        "s3://bucket/tables/x",
        "S3X://other/a b/x",
        "file:///data/x/../y",
        "file:///data/x/%2e%2e/y",
        "/data/x/..",
        "/data/x",
        "/data/x/",
        "/data/xy/z",
        "file://host/data/x/y",
        "hdfs://n/data/x/y",
        "s3://other/a%20b/%2E%2E/%2E%2E/z",
        "s3://other/a%2520b/x",
        "../x",
        "%2e%2e/x",
    ],
)
def test_paths_that_lead_nowhere(path: str) -> None:
    with pytest.raises(PathOutsideTable):
        locate(path, ROOTS)


def test_links_do_not_lead_out_of_an_allowed_root(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "clone"
    _clone(source, target)
    secret = tmp_path / "secret.parquet"
    data_file = next((source / "p=p0").iterdir())
    data_file.rename(secret)
    data_file.symlink_to(secret)
    with pytest.raises(Exception, match=r"outside|link|gone|leads") as caught:
        DeltaTable.open(str(target), allowed_roots=[str(source)]).to_arrow()
    assert type(caught.value).__module__.startswith("lake_core")


def test_a_memory_root() -> None:
    """A store can be a root too. Plain tables need none."""
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA).append(rows(0, 2))
    assert ids(DeltaTable.open(store, allowed_roots=[MemoryStore()]).to_arrow()) == [0, 1]
