"""One Spark Connect server for the processes of an instance: started once, replaced when it dies, stopped when idle."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lake_core.spark.errors import SparkServerFailed
from lake_core.spark.session import start_settings
from lake_orch.spark.connect_server import Lease, _identity, lease_server, stop_servers
from lake_orch.spark.connect_watchdog import current, is_locked

pytestmark = pytest.mark.xdist_group("connect")  # they share a server

CONFIG = start_settings(
    "local[2,3]",
    {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "555m",
        "spark.sql.shuffle.partitions": "2",
    },
)

CLIENT = """
import json, os, sys, time
from pathlib import Path
from lake_orch.spark.connect_server import shared_session, _leases
folder, config = Path(sys.argv[1]), json.load(sys.stdin)
session = shared_session(folder, config, idle_timeout=60)
assert shared_session(folder, config) is session
rows = session.range(4).mapInArrow(lambda batches: batches, "id long").count()
lease = _leases[session]
shown = f"{lease!r} {session!r} {session.sql('set -v').collect()!r}"
report = {"rows": rows, "folder": str(lease.folder), "shown": shown}
if "table" in sys.argv:
    from pyspark.sql import functions as F
    from lake_core.spark import register
    register(session)
    path = str(folder / "table")
    for _ in range(2):
        write = session.range(5).write.format("lake").mode("append").option("txnAppId", "a").option("txnVersion", "1")
        write.save(path)
    session.sql(f"CREATE TEMPORARY VIEW numbers USING lake OPTIONS (path '{path}')")
    from lake_core.spark.column_origins import column_origins, marked
    left, right = (marked(session.table("numbers"), mark) for mark in ("left", "right"))
    joined = left.join(right.withColumnRenamed("id", "other"), left["id"] == F.col("other"))
    origins = column_origins(joined.withColumn("both", F.expr("id + other")))
    report["origins"] = {name: sorted(map(list, sources)) for name, sources in origins.items()}
    report["sum"] = session.sql("SELECT sum(id) AS total FROM numbers").collect()[0].total
if "die" in sys.argv:
    os.kill(json.loads((lease.folder / "server.json").read_text())["java"], 9)
    while lease.is_alive():
        time.sleep(0.05)
    report["again"] = shared_session(folder, config).range(3).count()
    report["other"] = str(_leases[shared_session(folder, config)].folder)
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("connect")
    yield path
    stop_servers(path)


@pytest.fixture(scope="module")
def work_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of two rows, where a process may work."""
    path = tmp_path_factory.mktemp("work_folder")
    (path / "landing").mkdir()
    (path / "landing" / "customers.csv").write_text("id\n1\n2\n")
    return path


@pytest.fixture(scope="module")
def server(
    work_folder: Path, same_import_path: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lease, Path]]:
    """Lease a server of the processes in `work_folder`, which stops half a second after its last lease.

    Yields the lease and the directory of these servers.
    """
    directory = tmp_path_factory.mktemp("leased")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work_folder)
        lease = lease_server(directory, CONFIG, idle_timeout=0.5)
    yield lease, directory
    stop_servers(directory)


@pytest.fixture(scope="module", autouse=True)
def same_import_path() -> Iterator[None]:
    """Set the import path to that of the clients, because a client that finds other code has a server of its own.

    Earlier tests leave folders of theirs on the path.
    """
    process = subprocess.run(
        [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path))"], capture_output=True, check=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", json.loads(process.stdout))
        yield


def start_client(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CLIENT, str(folder), *arguments]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert client.stdin is not None
    client.stdin.write(json.dumps(CONFIG))
    client.stdin.close()
    client.stdin = None
    return client


def read_result(client: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = client.communicate(timeout=120)
    assert client.returncode == 0, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def java(lease: Lease) -> int:
    return int(json.loads((lease.folder / "server.json").read_text())["java"])


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def command_lines() -> str:
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)


@pytest.mark.exhaustive
@pytest.mark.spark
def test_processes_that_start_at_once_share_a_server_that_is_private(folder: Path) -> None:
    first, second = (read_result(client) for client in [start_client(folder, "table"), start_client(folder)])
    assert first["rows"] == second["rows"] == 4
    assert first["sum"] == 10, "format('lake') works through Connect: rows landed once, and are read back"
    assert first["origins"] == {
        "id": [["left", "id"]],
        "other": [["right", "id"]],
        "both": [["left", "id"], ["right", "id"]],
    }
    assert first["folder"] == second["folder"]

    lease = lease_server(folder, CONFIG)
    assert str(lease.folder) == first["folder"], "it outlives its clients"
    # Only this user can read the credentials, and they are stored nowhere else.
    assert lease.token
    assert lease.token not in first["shown"] + second["shown"] + repr(lease) + command_lines()
    assert lease.token not in (lease.folder / "log").read_text()
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, lease.folder, lease.folder / "token")] == [
        "0o700",
        "0o700",
        "0o600",
    ]
    assert not (lease.folder / "spark.conf").exists()
    assert "-Xmx555m" in Path(f"/proc/{java(lease)}/cmdline").read_text(), "what a JVM starts with is set"
    # It listens on the loopback interface alone.
    inodes = {
        os.readlink(entry)
        for entry in Path(f"/proc/{java(lease)}/fd").iterdir()
        if entry.is_symlink() and entry.exists()
    }
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "0000000000000000FFFF00000100007F")):
        for row in (line.split() for line in Path(f"/proc/{java(lease)}/net/{table}").read_text().splitlines()[1:]):
            if row[3] == "0A" and f"socket:[{row[9]}]" in inodes:
                assert row[1].partition(":")[0] == loopback
    lease.release()


@pytest.mark.spark
@pytest.mark.extended
def test_relative_paths_are_those_of_the_process_that_asks(
    server: tuple[Lease, Path], work_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, directory = server
    source = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from lake_orch.spark.connect_server import shared_session\n"
        "session = shared_session(Path(sys.argv[1]), json.load(sys.stdin), idle_timeout=5)\n"
        "customers = session.read.csv('landing/customers.csv', header=True)\n"
        "print(customers.mapInArrow(lambda rows: rows, 'id string').count())"
    )
    command = [sys.executable, "-c", source, str(directory)]
    process = subprocess.run(
        command, input=json.dumps(CONFIG), capture_output=True, text=True, timeout=120, cwd=work_folder
    )
    assert process.stdout.splitlines()[-1:] == ["2"], process.stderr[-2000:]
    assert [path.name for path in work_folder.iterdir()] == ["landing"], "the server leaves nothing there"
    assert len(list(directory.iterdir())) == 1, "a process in the same folder shares the server"
    before = _identity(CONFIG, [])
    monkeypatch.chdir(tmp_path)
    assert _identity(CONFIG, []) != before, "a process in another folder gets another server"


@pytest.mark.spark
@pytest.mark.extended
def test_a_url_reaches_it_too_and_who_does_not_know_the_token_is_refused(server: tuple[Lease, Path]) -> None:
    lease, _ = server
    source = (
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from lake_orch import SparkResource\n"
        f"url = 'sc://localhost:{lease.port}/;token='\n"
        "resource = SparkResource(remote=url + sys.stdin.read(), config={'spark.sql.shuffle.partitions': '3'})\n"
        "print(resource.session.range(4).count(), resource.session.conf.get('spark.sql.shuffle.partitions'))\n"
        "SparkSession.builder.remote(url + 'guessed').create().range(1).count()"
    )
    process = subprocess.run(
        [sys.executable, "-c", source], input=lease.token, capture_output=True, text=True, timeout=60
    )
    assert process.stdout.splitlines()[-1] == "4 3"
    assert process.returncode != 0
    assert "Invalid authentication token" in process.stderr


@pytest.mark.exhaustive
@pytest.mark.spark
def test_a_server_that_died_is_replaced_for_those_who_used_it_too(folder: Path) -> None:
    result = read_result(start_client(folder, "die"))
    assert result["again"] == 3
    assert result["other"] != result["folder"]
    wait_until(lambda: not Path(result["folder"]).exists())
    lease = lease_server(folder, CONFIG)
    assert str(lease.folder) == result["other"]
    # A server takes a limited number of sessions before the next one is started. Existing clients keep the old one.
    due = lease_server(folder, CONFIG, sessions=1)
    assert due.folder != lease.folder
    assert lease.is_alive()
    lease.release()
    wait_until(lambda: not is_locked(lease.folder / "alive"))
    due.release()


@pytest.mark.spark
@pytest.mark.extended
def test_nothing_stays_behind(server: tuple[Lease, Path]) -> None:
    lease, _ = server
    pid = java(lease)
    time.sleep(1.5)
    assert lease.is_alive(), "a server that is leased does not stop"
    lease.release()
    wait_until(lambda: not runs(pid))
    wait_until(lambda: not lease.folder.exists())
    assert current(lease.folder.parent) is None


@pytest.mark.exhaustive
@pytest.mark.spark
def test_a_server_ends_with_its_parent_and_its_files_are_not_trusted(tmp_path: Path) -> None:
    killed = lease_server(tmp_path / "a", CONFIG, idle_timeout=60)
    pid = java(killed)
    os.kill(int((killed.folder / "alive").read_text()), signal.SIGKILL)
    wait_until(lambda: not runs(pid))
    assert not killed.is_alive()
    assert current(killed.folder.parent) == killed.folder.name
    killed.release()


@pytest.mark.spark
def test_what_files_say_is_not_trusted_without_a_process_behind_it(tmp_path: Path) -> None:
    broken = {**CONFIG, "spark.driver.memory": "much"}
    with pytest.raises(SparkServerFailed, match="much"):  # what Spark said stands in the message
        lease_server(tmp_path, broken)
    (base,) = tmp_path.iterdir()
    assert [path.name for path in base.iterdir()] == ["lock"], "a failed start leaves nothing"

    with socket.create_server(("127.0.0.1", 0)) as other:  # the port has passed to someone else
        dead = base / "dead"
        (dead / "leases").mkdir(parents=True)
        (dead / "alive").write_text(str(os.getpid()))
        (dead / "server.json").write_text(json.dumps({"port": other.getsockname()[1], "java": os.getpid()}))
        (base / "current").write_text("dead")
        with pytest.raises(SparkServerFailed):
            lease_server(tmp_path, broken)
    assert not dead.exists()
    assert current(base) is None


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(SparkServerFailed, match="own folder"):
        lease_server(tmp_path / "link", CONFIG)


@pytest.mark.spark
def test_those_who_wait_for_a_start_that_fails_try_themselves(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def attempt() -> None:
        try:
            lease_server(tmp_path, {**CONFIG, "spark.driver.memory": "much"})
        except SparkServerFailed as error:
            failures.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 2
