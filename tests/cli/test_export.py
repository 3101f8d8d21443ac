"""`lake export`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.lake.lakefs.server import KEY_VARIABLE, SECRET_VARIABLE
from lake_core.store import LocalStore
from tests.cli.commands import run, run_json
from tests.lake.lakefs_server import KEY, SECRET, Server, serving
from tests.lake.lakes import create_tables


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "lake")
    create_tables(Lake.create(root), "t/orders")
    return root


def test_an_export_prints_the_next_steps(root: str, tmp_path: Path) -> None:
    target = tmp_path / "ns"
    printed = run(root, "export", str(target))
    assert "exported 2 commits, 2 objects" in printed
    assert "lakectl repo create-bare lakefs://NAME local://ns --default-branch main" in printed
    manifest = json.loads((target / "_lakefs/refs_manifest.json").read_text())
    restore = next(line for line in printed.splitlines() if "refs-restore" in line)
    assert json.loads(restore.split("'")[1]) == manifest
    assert "0 objects (0 bytes) copied" in run(root, "export", str(target))


def test_names_that_lakefs_refuses_are_renamed(root: str, tmp_path: Path) -> None:
    run(root, "branch", "release-1.0")
    assert "--rename" in run(root, "export", str(tmp_path / "ns"), code=1)
    assert not (tmp_path / "ns").exists()
    rename = ("--rename", "release-1.0=release-1-0")
    assert len(run_json(root, "export", str(tmp_path / "ns"), "--no-history", *rename)["exported"]["commits"]) == 1
    assert "NAME=VALUE" in run(root, "export", str(tmp_path / "ns"), "--rename", "x", code=2)


def test_a_lake_is_mirrored(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    target = str(tmp_path / "ns")
    run(root, "export", target)
    server = Server(LocalStore(target))
    server.restore()
    run(root, "branch", "dev")
    with serving(server) as url:
        assert f"0 new commits on {url}; moved dev" in run(root, "export", target, "--onto", url)
        assert "--no-history" in run(root, "export", target, "--onto", url, "--no-history", code=2)


def test_an_export_becomes_a_lake_again(root: str, tmp_path: Path) -> None:
    target = str(tmp_path / "ns")
    run(root, "export", target)
    assert "init --from-lakefs" in run(root, "init", target, code=1)
    printed = run(root, "init", target, "--from-lakefs")
    assert "2 commits" in printed
    assert "lake import PATH --copy" in printed
    assert "not a dataset" in run(target, "import", "nothing", "--copy", code=1)
    assert "is a delta dataset" in run(target, "import", "t/orders", "--copy")
    assert "10" in run(target, "sql", 'select count(*) as n from "t/orders"')
    assert "--from-lakefs" in run(root, "init", str(tmp_path / "other"), "--rename", "a=b", code=2)
