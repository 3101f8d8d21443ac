"""The parent of a shared Spark Connect server: starts its JVM, and stops it when it is idle.

This is a separate program, run by path (`python connect_watchdog.py <folder>`). It uses only the standard library,
because it runs as long as the server does and must cost almost nothing. The server's folder has what clients share:

    launch.json     the command to run, and the seconds that a server may idle
    token           the secret of the clients; only in this file and in the environment of the JVM
    alive           this program's process id; locked for as long as it runs
    server.json     the port, once the server listens
    leases/         a file for each client, locked for as long as the client's process lives
    ../current      the name of the folder of the server that new clients take
    ../lock         locked by a process that looks for a server, starts one or retires one
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

_PORTS = 3
"""The number of ports to try, because another process may take one before the JVM binds it."""
_START_SECONDS = 120
_STOP_SECONDS = 10
_SET_PARENT_DEATH_SIGNAL = 1


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of an existing file.

    This is reliable, because the system releases the locks of processes that die.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        # The lock is shared, so that two checks do not conflict.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_leased(folder: Path) -> bool:
    """Return whether the server has a running client."""
    return any(is_locked(lease) for lease in (folder / "leases").glob("*"))


def write_whole(path: Path, text: str) -> None:
    """Write a private file. Readers see all of it or nothing."""
    descriptor = os.open(path.with_name(f".{path.name}.{os.getpid()}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(path.with_name(f".{path.name}.{os.getpid()}"), path)


def current(base: Path) -> str | None:
    """Return the name of the folder of the server that new clients take."""
    try:
        return (base / "current").read_text()
    except OSError:
        return None


def main(folder: Path) -> int:
    """Run the server of a folder until it has been idle for too long, it dies, or its folder is deleted.

    The calling process ends as soon as the lock is taken. A process in the background continues.
    """
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    alive = os.open(folder / "alive", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(alive, fcntl.LOCK_EX)
    # Detach, so that the process that started this one need not wait.
    if os.fork():
        os._exit(0)
    os.write(alive, str(os.getpid()).encode())
    launch = json.loads((folder / "launch.json").read_text())
    java = None
    try:
        for _ in range(_PORTS):
            port = _free_port()
            java = _start(folder, launch["command"], port, launch["cwd"])
            if _listens(java, folder, port):
                write_whole(folder / "server.json", json.dumps({"port": port, "java": java.pid}))
                _watch(java, folder, launch["idle_timeout"])
                return 0
            _stop(java)
        return 1
    finally:
        if java is not None:
            _stop(java)
        # If the server did not start, its log stays for the client.
        if (folder / "server.json").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _watch(java: subprocess.Popen[bytes], folder: Path, idle_timeout: float) -> None:
    pause = max(0.05, min(1.0, idle_timeout / 4))
    used = time.monotonic()
    while java.poll() is None and folder.is_dir():
        if is_leased(folder):
            used = time.monotonic()
        elif (time.monotonic() - used >= idle_timeout or current(folder.parent) != folder.name) and _retire(folder):
            return
        time.sleep(pause)


def _retire(folder: Path) -> bool:
    """Make the server unavailable to new clients. Return False if a client has a lease, or is taking one."""
    try:
        descriptor = os.open(folder.parent / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_leased(folder):
            return False
        if current(folder.parent) == folder.name:
            (folder.parent / "current").unlink()
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _start(folder: Path, command: list[str], port: int, cwd: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SPARK_CONNECT_AUTHENTICATE_TOKEN": (folder / "token").read_text()}
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            [*command[:-1], "--conf", f"spark.connect.grpc.binding.port={port}", command[-1]],
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent,
        )


def _die_with_parent() -> None:
    """Let the system stop this process when its parent dies, so that no JVM is left running.

    This has an effect only on Linux.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(java: subprocess.Popen[bytes], folder: Path, port: int) -> bool:
    """Wait until the JVM listens on the port. Return False if it ends, or takes too long."""
    until = time.monotonic() + _START_SECONDS
    while java.poll() is None and folder.is_dir() and time.monotonic() < until:
        if accepts(port) and _owns(java.pid, port):
            return True
        time.sleep(0.05)
    return False


def accepts(port: int) -> bool:
    """Return whether something listens on a port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _owns(pid: int, port: int) -> bool:
    """Return whether a process listens on a port. Return True if the system does not provide this information."""
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    if not tables[0].exists():
        return True
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}
    opened = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            opened.add(os.readlink(descriptor))
    return bool(sockets & opened)


def _stop(java: subprocess.Popen[bytes]) -> None:
    if java.poll() is None:
        java.terminate()
        try:
            java.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
