"""The command `lake`, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lake_core import Lake
from lake_core.cli import main
from lake_core.cli.doctor import examine
from lake_core.delta import DeltaTable
from lake_core.lake.errors import LakeNotFound
from lake_core.store import MemoryStore, ObjectMeta
from lake_core.store.object_store import Bytes
from tests.cli.commands import run, run_json
from tests.lake.lakes import create_tables, ids, rows


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "lake")
    lake = Lake.create(root)
    create_tables(lake, "t/orders")
    return root


def test_as_an_installed_command(tmp_path: Path) -> None:
    lake = Path(sys.executable).parent / "lake"

    def shell(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([lake, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert shell("init").returncode == 0
    assert Lake.exists(tmp_path)
    again = shell("init")
    assert again.returncode == 1
    assert "a lake already exists at" in again.stderr
    assert "Traceback" not in again.stderr


def test_the_lake_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def typed(*words: str) -> Result:
        return CliRunner(env={"LAKE_URL": ""}).invoke(main, words, catch_exceptions=False)

    assert typed("status").exit_code == 1
    assert "lake init" not in typed("--version").stderr
    assert typed("init").exit_code == 0
    assert typed("init", "--exist-ok").exit_code == 0
    assert typed("no-such").exit_code == 2
    assert "branch     main" in typed("status").stdout
    assert typed("init", "elsewhere").exit_code == 0
    assert Lake.exists(tmp_path / "elsewhere"), "as error messages say"
    assert json.loads(typed("--json", "status").stdout)["status"]["sessions"] == 0


def test_looking(root: str) -> None:
    assert "t/orders" in run(root, "status")
    assert "begin" in run(root, "log")
    commits = run_json(root, "log")
    assert [commit["message"] for commit in commits] == ["begin", "Repository created"]
    assert commits[0]["datasets"]["t/orders"]["version"] == 0
    assert len(run_json(root, "log", "-n", "1")) == 1
    assert "its datasets are t/orders" in run_json(root, "log", "--dataset", "t/other", code=1)["error"]
    keys = [row["key"] for row in run_json(root, "diff", "main~1", "main", "--keys")]
    assert keys == ["t/orders/_delta_log/00000000000000000000.json"]
    assert "error: 'nope' is not a branch" in run(root, "diff", "nope", code=1)
    assert run_json(root, "log", "nope", code=1)["kind"] == "RefNotFound"


def test_branches_tags_and_merges(root: str) -> None:
    run(root, "branch", "create", "dev")
    run(root, "tag", "create", "v1", "--at", "main~1")
    assert {branch["branch"] for branch in run_json(root, "branch", "list")} == {"dev", "main"}
    lake = Lake.open(root)
    with lake.session("dev") as s:
        s.put("x", b"1")
    run(root, "branch", "protect", "main")
    assert run_json(root, "merge", "dev", "-m", "in")["commit"] == lake.list_branches()["main"]
    assert "reverted" not in run(root, "revert", "main", code=1)
    run(root, "branch", "protect", "main", "--off")
    run(root, "revert", "main")
    assert not lake.at().exists("x")
    assert "revert the revert" in run(root, "cherry-pick", "dev", "--onto", "main", code=1)
    run(root, "revert", "main")
    assert lake.at().exists("x")
    with lake.session("dev") as s:
        s.put("y", b"1")
    run(root, "cherry-pick", "dev", "--onto", "main")
    assert lake.at().exists("y")
    run(root, "tag", "delete", "v1")
    run(root, "branch", "delete", "dev")
    assert run_json(root, "tag", "list") == []
    assert len(run_json(root, "branch", "list")) == 1


def test_sessions_and_conflicts(root: str) -> None:
    lake = Lake.open(root)
    first, second = (
        run(root, "session", "open", "--expires-in", "2h").strip(),
        run_json(root, "session", "open", "--id", "mine")["session"],
    )
    for session in (first, second):
        with lake.get_session(session).join() as part:
            part.put("same", session.encode())
            part.delta("t/orders").append(rows([len(session)]))
    assert run_json(root, "publish", first)["versions"] == {"t/orders": 1}
    assert run_json(root, "publish", second, code=3)["kinds"] == {"same": "BothCreated"}
    listed = run_json(root, "session", "list")
    assert [(session["session"], session["state"]) for session in listed] == [("mine", "failed")]
    forked = run(root, "session", "fork", "mine", "--without", "same").strip()
    run(root, "publish", forked)
    assert len(ids(lake.delta("t/orders"))) == 12
    run(root, "session", "abandon", "mine")
    assert run_json(root, "session", "list") == []
    assert len(run_json(root, "session", "list", "--all")) == 3
    run(root, "session", "open", "--expires-in", "soon", code=2)


def test_maintenance(root: str) -> None:
    lake = Lake.open(root)
    for id in range(20, 24):
        with lake.session() as s:
            s.delta("t/orders").append(rows([id]))
    assert run_json(root, "table", "optimize", "t/orders")["published"]["versions"] == {"t/orders": 5}
    assert run(root, "table", "optimize", "t/orders") == "no files need it, nothing is changed\n"
    assert run(root, "table", "optimize", "t/orders", "--purge") == "no files need it, nothing is changed\n"
    assert [row["operation"] for row in run_json(root, "table", "history", "t/orders", "-n", "2")] == [
        "OPTIMIZE",
        "WRITE",
    ]
    assert run_json(root, "table", "detail", "t/orders")["num_files"] >= 1
    assert "num_files" in run(root, "table", "detail", "t/orders")
    run(root, "table", "vacuum", "t/orders")
    run(root, "table", "checkpoint", "t/orders")
    assert list(Path(root, "t/orders/_delta_log").glob("*.checkpoint.parquet"))
    lake.create_branch("aside")
    with lake.session("aside") as s:
        s.delta("t/orders").append(rows([99]))
    run(root, "table", "checkpoint", "t/orders", "--branch", "aside")
    assert len(list(Path(root, "_lake/derived").rglob("*.checkpoint.parquet"))) == 1
    assert run_json(root, "gc", "--dry-run")["keys"] == []
    assert run_json(root, "gc", "--history", "7d")["keys"] == []
    assert "7 days at least" in run(root, "gc", "--history", "1h", code=2)
    assert run_json(root, "checkout")["objects"] == 0
    assert run_json(root, "verify") == []
    assert "every object is there" in run(root, "verify", "--quick")
    Path(root, "t/orders/_delta_log/00000000000000000005.json").unlink()
    assert run_json(root, "checkout")["objects"] == 1
    entry = lake.at().view.get("t/orders/_delta_log/00000000000000000000.json")
    assert entry is not None
    Path(root, entry.entry.address).write_bytes(b"other bytes")
    problems = run_json(root, "verify", code=4)
    assert ("corrupt", entry.entry.address) in [(problem["kind"], problem["key"]) for problem in problems]


def test_release_and_adopt(root: str) -> None:
    import deltalake

    run(root, "release", "t/orders")
    deltalake.write_deltalake(f"{root}/t/orders", rows([77]), mode="append")
    lake = Lake.open(root)
    with lake.session() as s:
        s.import_delta("t/orders")
    deltalake.write_deltalake(f"{root}/t/orders", rows([78]), mode="append")
    assert run_json(root, "adopt", "t/orders")["versions"] == {"t/orders": lake.delta("t/orders").version}
    assert ids(lake.delta("t/orders")) == [*range(10), 77, 78]
    assert "nothing to adopt" in run(root, "adopt", "t/orders", code=1)


def test_doctor(root: str) -> None:
    findings = run_json(root, "doctor")
    assert len(findings) == 11
    assert all(finding["ok"] for finding in findings)
    assert not Path(root, "_lake/doctor").exists() or not any(Path(root, "_lake/doctor").rglob("*.*"))


def test_doctor_names_properties_without_effect(root: str) -> None:
    DeltaTable.create(f"{root}/t/foreign", rows([1]).schema, properties={"delta.parquet.compression.codec": "gzip"})
    commit = Path(root, "t/foreign/_delta_log/00000000000000000000.json")
    commit.write_text(commit.read_text().replace('"gzip"', '"lzo"'))
    with Lake.open(root).session() as s:
        s.import_delta("t/foreign")
    failed = {each["check"]: each["detail"] for each in run_json(root, "doctor", code=4) if not each["ok"]}
    assert list(failed) == ["t/foreign"]
    assert failed["t/foreign"].startswith("delta.parquet.compression.codec is 'lzo': use one of zstd, ")
    assert "as if it were not set" in failed["t/foreign"]


class Careless(MemoryStore):
    """A store that ignores conditions, as some S3 servers do."""

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        return super()._put(key, data, False, None, unique)


def test_doctor_finds_a_store_that_ignores_conditions() -> None:
    failed: Sequence[str] = [finding.check for finding in examine(Careless()) if not finding.ok]
    assert failed == ["put if absent", "put if absent, raced", "put if match", "put if match, raced"]


def test_where_no_lake_is_the_command_that_makes_one_is_named(tmp_path: Path) -> None:
    assert f"create one with `lake init {tmp_path}`" in run(str(tmp_path), "status", code=1)
    with pytest.raises(LakeNotFound, match=rf"Lake\.create\('file://{tmp_path}'\)"):
        Lake.open(tmp_path)


def test_a_lake_is_upgraded(root: str) -> None:
    path = Path(root) / "_lake" / "format.json"
    path.write_text(path.read_text().replace('"version": 3', '"version": 1'))
    assert "format version 1 -> 3" in run(root, "upgrade")
    assert run_json(root, "upgrade") == {"before": 3, "version": 3}
    assert Lake.open(root).repository.format.version == 3
