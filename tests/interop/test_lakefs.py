"""A lakeFS server and this implementation on the same repositories, in both directions.

Needs a server's binary: `LAKEFS_BIN=/path/to/lakefs pytest -m interop tests/interop/test_lakefs.py`.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote

import pytest

from lake_core import Lake
from lake_core.lake.errors import ServerDiverged
from lake_core.lake.lakefs.server import KEY_VARIABLE, SECRET_VARIABLE
from tests.lake.lakes import create_tables, ids, rows
from tests.skip_rule import NO_LAKEFS

LAKEFS = os.environ.get("LAKEFS_BIN", "")
KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not LAKEFS, reason=NO_LAKEFS),
]


@dataclass(frozen=True)
class Server:
    url: str
    blocks: Path

    def ask(self, method: str, path: str, body: object = None, *, raw: bytes | None = None) -> Any:
        """Send a request to the API, and return the answer: bytes of objects, else JSON."""
        token = base64.b64encode(f"{KEY}:{SECRET}".encode()).decode()
        kind = "application/json" if raw is None else "application/octet-stream"
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Basic {token}", "Content-Type": kind}
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
            is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return json.loads(text) if is_json and text and "objects?path" not in path else text

    def restore(self, name: str) -> None:
        """Load the export in the folder of this name into a bare repository of the same name."""
        body = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
        self.ask("POST", "repositories?bare=true", body)
        manifest = json.loads((self.blocks / name / "_lakefs/refs_manifest.json").read_text())
        self.ask("PUT", f"repositories/{name}/refs/restore", manifest)

    def upload(self, name: str, branch: str, path: str, data: bytes) -> None:
        self.ask("POST", f"repositories/{name}/branches/{branch}/objects?path={quote(path, safe='')}", raw=data)

    def commit(self, name: str, branch: str, message: str) -> str:
        body = {"message": message, "metadata": {"by": "test"}}
        return str(self.ask("POST", f"repositories/{name}/branches/{branch}/commits", body)["id"])

    def keys(self, name: str, ref: str) -> list[str]:
        listed = self.ask("GET", f"repositories/{name}/refs/{ref}/objects/ls?amount=1000")
        return [each["path"] for each in listed["results"]]

    def get(self, name: str, ref: str, path: str) -> bytes:
        return bytes(self.ask("GET", f"repositories/{name}/refs/{ref}/objects?path={quote(path, safe='')}"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("lakefs")
    blocks = folder / "blocks"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "listen_address": f"127.0.0.1:{port}",
        "logging": {"level": "ERROR"},
        "database": {"type": "local", "local": {"path": str(folder / "kv")}},
        "auth": {"encrypt": {"secret_key": "a secret of this test"}},
        "blockstore": {"type": "local", "local": {"path": str(blocks)}},
        "installation": {"user_name": "admin", "access_key_id": KEY, "secret_access_key": SECRET},
        "stats": {"enabled": False},
        "security": {"check_latest_version": False},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    command = [LAKEFS, "--config", str(folder / "config.yaml"), "run"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = Server(f"http://127.0.0.1:{port}", blocks)
    try:
        for _ in range(300):
            try:
                server.ask("GET", "repositories")
                break
            except (URLError, HTTPError):
                time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.create(tmp_path / "lake")
    create_tables(lake, "t/orders")
    with lake.session() as s:
        s.put("files/ü #1.txt", b"one")
        s.put("files/empty", b"")
    lake.create_branch("dev")
    with lake.session("dev", metadata={"run": "ü"}) as s:
        s.delta("t/orders").append(rows([50]))
        s.delete(["files/empty"])
    with lake.session() as s:
        s.put("files/2", b"two")
    lake.merge("dev")
    lake.create_tag("v1.0")
    return lake


def test_an_export_loads_whole(server: Server, lake: Lake) -> None:
    exported = lake.maintenance.export(server.blocks / "whole")
    server.restore("whole")
    for commit in lake.log():
        id = exported.commits[commit.id]
        there = server.ask("GET", f"repositories/whole/commits/{id}")
        assert (there["message"], there["committer"]) == (commit.message, commit.committer)
        assert there["parents"] == [exported.commits[parent] for parent in commit.parents]
        assert there["metadata"] == commit.metadata
        state = lake.at(commit.id)
        files = {meta.key for meta in state.list()}
        assert files <= set(server.keys("whole", id))
        for key in files:
            assert server.get("whole", id, key) == state.get(key)
    branches = server.ask("GET", "repositories/whole/branches")["results"]
    assert {each["id"]: each["commit_id"] for each in branches} == {
        name: exported.commits[commit] for name, commit in lake.list_branches().items()
    }
    (tag,) = server.ask("GET", "repositories/whole/tags")["results"]
    assert tag["commit_id"] == exported.commits[lake.list_tags()["v1.0"]]
    server.upload("whole", "main", "after", b"1")
    server.commit("whole", "main", "lakeFS goes on")


def test_branches_of_an_export_without_history_can_be_merged(server: Server, lake: Lake) -> None:
    with lake.session("dev") as s:
        s.put("only-dev", b"1")
    lake.maintenance.export(server.blocks / "short", history=False)
    server.restore("short")
    server.ask("POST", "repositories/short/refs/dev/merge/main", {})
    assert "only-dev" in server.keys("short", "main")


def test_a_mirror_brings_what_is_new(server: Server, lake: Lake) -> None:
    target = server.blocks / "mirrored"
    url = f"{server.url}/repositories/mirrored"
    lake.maintenance.export(target)
    server.restore("mirrored")
    with lake.session() as s:
        s.delta("t/orders").append(rows([60]))
        s.put("new", b"new")
    lake.create_branch("next")
    with lake.session("next") as s:
        s.put("newer", b"newer")
    lake.create_tag("v2")
    mirrored = lake.maintenance.mirror(target, url)
    assert mirrored.commits == 2
    assert mirrored.refs == ("main", "next", "v2")
    assert server.get("mirrored", "main", "new") == b"new"
    assert server.get("mirrored", "next", "newer") == b"newer"
    assert lake.maintenance.mirror(target, url).refs == ()
    server.upload("mirrored", "main", "theirs", b"1")
    server.commit("mirrored", "main", "past the lake")
    with lake.session() as s:
        s.put("newest", b"newest")
    with pytest.raises(ServerDiverged, match="'main'"):
        lake.maintenance.mirror(target, url)
    assert server.get("mirrored", "main", "theirs") == b"1"


def test_a_repository_becomes_a_lake(server: Server) -> None:
    body = {"name": "coming", "storage_namespace": "local://coming", "default_branch": "main"}
    server.ask("POST", "repositories", body)
    for number in range(20):
        server.upload("coming", "main", f"files/{number:02}", b"%d" % number)
    first = server.commit("coming", "main", "first")
    server.ask("POST", "repositories/coming/branches", {"name": "dev", "source": "main"})
    server.upload("coming", "dev", "files/ü 00", b"dev")
    server.commit("coming", "dev", "on dev")
    server.upload("coming", "main", "files/03", b"changed")
    server.commit("coming", "main", "second")
    server.ask("POST", "repositories/coming/refs/dev/merge/main", {})
    server.ask("POST", "repositories/coming/tags", {"id": "v1.0", "ref": first})
    server.ask("PUT", "repositories/coming/refs/dump")
    lake = Lake.import_lakefs(server.blocks / "coming")
    logged = server.ask("GET", "repositories/coming/refs/main/commits?amount=100")["results"]
    assert [commit.id for commit in lake.log()] == [each["id"] for each in logged]
    for ref in ("main", "dev", "v1.0"):
        keys = [meta.key for meta in lake.at(ref).list()]
        assert keys == server.keys("coming", ref)
        assert [bytes(lake.at(ref).get(key)) for key in keys] == [server.get("coming", ref, key) for key in keys]
    assert lake.maintenance.verify() == []
    with lake.session() as s:
        s.create_delta("t", rows([1]).schema).append(rows([1]))
    assert ids(lake.delta("t")) == [1]
    assert server.get("coming", "main", "files/03") == b"changed", "lakeFS still reads what it had"
