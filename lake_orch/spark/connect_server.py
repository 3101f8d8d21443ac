"""One local Spark Connect server for the processes of a Dagster instance, started on demand and stopped when idle.

A server has a folder that only this user can open. Clients find the server and its token there. Each client holds a
lease: a file that it keeps locked for as long as its process lives. The server's parent (`connect_watchdog`) stops the
server if there has been no lease for a while. The content of a file is trusted only while the process that wrote it
runs.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from lake_core.spark.errors import SparkServerFailed
from lake_core.spark.java import check_java
from lake_core.spark.session import is_local
from lake_orch.spark import connect_watchdog as connect_watchdog
from lake_orch.spark.connect_watchdog import accepts, current, is_locked, write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_SECONDS = 600.0
SESSIONS_PER_SERVER = 32
"""The number of sessions that one server serves before a new one takes over.

Until a server ends, Spark keeps a Python process (some 45 MB) for each session that ran Python code.
"""

_START_SECONDS = 150
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LOG_LINES = 8
_OF_A_SESSION = "userFiles-"
"""The prefix of the folder that PySpark adds to the import path for each session with a JVM of its own."""

# A lease lasts as long as the session, and not longer than the process.
_leases: WeakKeyDictionary[SparkSession, Lease] = WeakKeyDictionary()
_connecting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Lease:
    """A client's hold on a running server."""

    folder: Path
    port: int
    descriptor: int = field(repr=False)

    @property
    def token(self) -> str:
        """Return the access token. It is in no repr, argument list or log."""
        return (self.folder / "token").read_text()

    def is_alive(self) -> bool:
        """Return whether the server still runs."""
        return is_locked(self.folder / "alive") and accepts(self.port)

    def release(self) -> None:
        """Release the server."""
        os.close(self.descriptor)


def shared_session(directory: Path, config: Mapping[str, str], *, idle_timeout: float = IDLE_SECONDS) -> SparkSession:
    """Return the session of this process on the shared server for these settings. Open it if there is none.

    Raises SparkServerFailed, NoJava, JavaTooOld.
    """
    from lake_core.spark.session import active_session

    # All threads share one session.
    with _connecting:
        session = active_session()
        if session is not None:
            lease = _leases.get(session)
            if lease is None or lease.is_alive():
                return session
            # The server died, and the session with it.
            session.stop()
            _leases.pop(session).release()
        lease = lease_server(directory, config, idle_timeout=idle_timeout)
        try:
            session = connect(lease)
        except BaseException:
            lease.release()
            raise
        _leases[session] = lease
        atexit.register(session.stop)
        return session


def connect(lease: Lease) -> SparkSession:
    """Open a new session of a server. Raises SparkServerFailed if PySpark's Connect client is not installed."""
    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as error:
        raise SparkServerFailed(
            f"a shared server needs PySpark's Connect client: pip install 'pyspark[connect]' ({error})"
        ) from error

    class Loopback(DefaultChannelBuilder):
        def toChannel(self) -> grpc.Channel:
            # This does not use the name `localhost`, because on some machines another user may listen on its second
            # address and learn the token. It does not use a URL with the token either, because then the client would
            # use TLS, which the server does not support.
            token = grpc.access_token_call_credentials(lease.token)
            local = grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP)
            return self._secure_channel(
                f"ipv4:127.0.0.1:{lease.port}", grpc.composite_channel_credentials(local, token)
            )

    # As in `SparkSession.builder.remote`, this selects the functions and types of Connect.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    session = ConnectSession.builder.channelBuilder(Loopback(f"sc://localhost:{lease.port}")).create()
    # By default, a client silently retries a dead server for ten minutes. This server is on the same machine.
    session.client.set_retry_policies([DefaultPolicy(max_retries=4, max_backoff=2000)])
    return cast("SparkSession", session)


def lease_server(
    directory: Path,
    config: Mapping[str, str],
    *,
    idle_timeout: float = IDLE_SECONDS,
    sessions: int = SESSIONS_PER_SERVER,
) -> Lease:
    """Lease the server with these settings below a directory. Start it if it does not run.

    Concurrent processes get the same server. A process in another folder, with other code, or with another Python or
    Spark gets another server. Raises SparkServerFailed, NoJava, JavaTooOld.

    Args:
        directory: The folder of all shared servers.
        config: Spark's settings, including `spark.master`.
        idle_timeout: The seconds without a client after which the server stops.
        sessions: The most sessions of one server.
    """
    path = _import_path()
    base = _private(directory) / _identity(config, path)
    _private(base)
    with _locked(base):
        running = current(base)
        if running is not None:
            folder = base / running
            port = _port(folder)
            if port is not None and len(list((folder / "leases").iterdir())) < sessions:
                return Lease(folder, port, _take_lease(folder))
            # The server is dead, or has served enough sessions. Its current clients may continue.
            (base / "current").unlink()
        return _start(base, config, path, idle_timeout)


def stop_servers(directory: Path) -> int:
    """Stop all shared servers below a directory, even if they are in use. Return the number of stopped servers."""
    count = 0
    for base in directory.glob("*"):
        with _locked(base):
            (base / "current").unlink(missing_ok=True)
            for folder in (path for path in base.iterdir() if is_locked(path / "alive")):
                process_id = (folder / "alive").read_text()
                if not process_id.isdigit():
                    # It has only just begun, and ends by itself when it sees that it is not the current one.
                    continue
                os.kill(int(process_id), signal.SIGTERM)
                count += 1
                until = time.monotonic() + _START_SECONDS
                while is_locked(folder / "alive") and time.monotonic() < until:
                    time.sleep(0.05)
    return count


def _port(folder: Path) -> int | None:
    """Return the port of a running server."""
    if not is_locked(folder / "alive"):
        return None
    try:
        port = int(json.loads((folder / "server.json").read_text())["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return port if accepts(port) else None


def _start(base: Path, config: Mapping[str, str], path: list[str], idle_timeout: float) -> Lease:
    check_java()
    for old in (entry for entry in base.iterdir() if entry.is_dir() and not is_locked(entry / "alive")):
        shutil.rmtree(old, ignore_errors=True)
    folder = base / secrets.token_hex(8)
    for name in ("", "leases"):
        (folder / name).mkdir(mode=0o700)
    write_whole(folder / "token", secrets.token_urlsafe(32))
    write_whole(folder / "spark.conf", "".join(f"{key} {_escaped(value)}\n" for key, value in config.items()))
    home = _spark_home()
    command = [
        str(home / "bin" / "spark-submit"),
        "--class",
        _CLASS,
        "--properties-file",
        str(folder / "spark.conf"),
        "spark-internal",
    ]
    write_whole(
        folder / "launch.json", json.dumps({"command": command, "idle_timeout": idle_timeout, "cwd": os.getcwd()})
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    }
    if is_local(config["spark.master"]):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    environment |= {
        "SPARK_HOME": str(home),
        "SPARK_CONNECT_MODE": "0",
        "PYSPARK_PYTHON": environment.get("PYSPARK_PYTHON", sys.executable),
        "PYTHONPATH": os.pathsep.join(path),
    }
    descriptor = _take_lease(folder)
    try:
        subprocess.run(
            [sys.executable, "-I", connect_watchdog.__file__, str(folder)],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A step that is killed with its process group must not stop the server of other steps.
            start_new_session=True,
            check=True,
        )
        port = _wait(folder)
    except BaseException:
        # Without a lease, the server stops by itself.
        os.close(descriptor)
        raise
    (folder / "spark.conf").unlink()
    write_whole(base / "current", folder.name)
    return Lease(folder, port, descriptor)


def _wait(folder: Path) -> int:
    """Wait until the server listens, and return its port."""
    until = time.monotonic() + _START_SECONDS
    while not (folder / "server.json").exists():
        if not is_locked(folder / "alive") or time.monotonic() >= until:
            log = folder / "log"
            last_lines = log.read_text(errors="replace").strip().splitlines()[-_LOG_LINES:] if log.exists() else []
            shutil.rmtree(folder, ignore_errors=True)
            raise SparkServerFailed(
                "the shared Spark server did not start: check its settings. The end of its log is:\n"
                + "\n".join(last_lines)
            )
        time.sleep(0.05)
    return int(json.loads((folder / "server.json").read_text())["port"])


def _take_lease(folder: Path) -> int:
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    descriptor = os.open(folder / "leases" / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


@contextmanager
def _locked(base: Path) -> Iterator[None]:
    descriptor = os.open(base / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise SparkServerFailed(
            f"{folder} holds the access to a shared Spark server, but is not this user's own folder: remove it"
        )
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _identity(config: Mapping[str, str], path: list[str]) -> str:
    """Return a hash of the settings that two processes must share to use the same server."""
    # The server resolves relative paths of files by its own working directory.
    location = [os.getcwd(), socket.gethostname()]
    parts = [sorted(config.items()), path, sys.executable, str(_spark_home()), metadata.version("pyspark"), *location]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _import_path() -> list[str]:
    """Return the import paths of this process that are not installed. The server's Python workers need them, too."""
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    paths = []
    for entry in sys.path:
        folder = Path(entry or os.curdir).resolve()
        if folder.name.startswith(_OF_A_SESSION):
            continue
        if (
            folder.exists()
            and str(folder) not in paths
            and not any(folder.is_relative_to(prefix) for prefix in installed)
        ):
            paths.append(str(folder))
    return paths


def _spark_home() -> Path:
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkServerFailed("PySpark is not installed: pip install 'pyspark[connect]'")
    return Path(spec.origin).parent


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{text}" if text.startswith(" ") else text
