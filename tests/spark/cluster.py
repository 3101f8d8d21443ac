"""A Spark cluster of processes on this machine: a master, two workers, and a Python for them that lacks this package.

Each worker starts an executor of one core for an application. Executors and the driver know Python by the same path, as
on machines with different environments: the file there starts the interpreter that `EXECUTOR_PYTHON` names, which only
the workers have, and elsewhere this one.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from tests.processes import until
from tests.spark.lean_python import S3_PACKAGES, lean_python

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PYTHON = "EXECUTOR_PYTHON"
_SECONDS = 60
_OTHERS = ("PYTHONPATH", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_MASTER", "PYSPARK_DRIVER_PYTHON")
"""Variables of the environment that are about another session."""


class Cluster:
    """The cluster, a context manager."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self.python = folder / "python"
        """What drivers name as the Python of the executors."""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        lean = lean_python(self._folder / "lean", S3_PACKAGES)
        self.python.write_text(f'#!/bin/sh\nexec "${{{_PYTHON}:-{sys.executable}}}" "$@"\n')
        self.python.chmod(0o755)
        self._worker_environment = {_PYTHON: str(lean)}
        try:
            log = self._start("org.apache.spark.deploy.master.Master", "master", {}, _listening())
            self.url = _logged(log, r"Starting Spark master at (spark://\S+)")
            logs = [self._start_worker() for _ in range(2)]
            for log in logs:
                _logged(log, "(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        executors = self.executors()
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        for executor in executors:
            with suppress(ProcessLookupError):
                os.kill(executor, signal.SIGKILL)

    @property
    def config(self) -> dict[str, str]:
        """Return the settings of an application that has both workers."""
        return {
            "spark.executor.memory": "640m",
            "spark.executor.extraJavaOptions": JVM_OPTIONS,
            "spark.driver.extraJavaOptions": JVM_OPTIONS,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.sql.shuffle.partitions": "2",
        }

    def executors(self) -> list[int]:
        """Return the processes of the executors that run."""
        return [child for worker in self.workers if worker.poll() is None for child in children(worker.pid)]

    def executor_of(self, process: int) -> int:
        """Return the executor that a Python process belongs to."""
        executors = self.executors()
        while process not in executors:
            assert process > 1, "the process belongs to no executor"
            process = _parent(process)
        return process

    def kill_worker_of(self, executor: int) -> None:
        """Kill a worker and its executor, which would stop a little later by itself, and start another worker."""
        worker = next(worker for worker in self.workers if executor in children(worker.pid))
        worker.kill()
        worker.wait()
        os.kill(executor, signal.SIGKILL)
        self.workers.remove(worker)
        _logged(self._start_worker(), "(Successfully registered with master)")

    @contextmanager
    def connect_server(self) -> Iterator[str]:
        """Run a Connect server as an application of the cluster, and yield its URL."""
        port = _free_port()
        config = {
            **self.config,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
        }
        settings = [part for key, value in config.items() for part in ("--conf", f"{key}={value}")]
        command = [SPARK_HOME / "bin" / "spark-submit", "--master", self.url, *settings]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        # Python data sources are planned by the server's Python, which needs the package.
        environment = {**_environment(), "PYSPARK_PYTHON": str(self.python), "PYTHONPATH": str(ROOT)}
        with (self._folder / "connect.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self._folder)
        self._processes.append(process)
        until(lambda: _accepts(port), "the Connect server", _SECONDS)
        yield f"sc://localhost:{port}"
        process.kill()

    def _start_worker(self) -> Path:
        number = len(self._processes)
        options = [*_listening(), "--cores", "1", "--memory", "700m"]
        options += ["--work-dir", str(self._folder / f"work-{number}"), self.url]
        log = self._start(
            "org.apache.spark.deploy.worker.Worker", f"worker-{number}", self._worker_environment, options
        )
        self.workers.append(self._processes[-1])
        return log

    def _start(self, main: str, name: str, environment: Mapping[str, str], arguments: list[str]) -> Path:
        path = self._folder / f"{name}.log"
        with path.open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [SPARK_HOME / "bin" / "spark-class", main, *arguments],
                    stdout=log,
                    stderr=log,
                    env={
                        **_environment(),
                        "SPARK_DAEMON_MEMORY": "256m",
                        "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
                        **environment,
                    },
                    cwd=self._folder,
                )
            )
        return path


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [number for number in numbers if _parent(number) == process]


def process_of_port(port: int) -> int:
    """Return the process that has a connection from a port of this machine."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    # Another connection may use the same port, to another address.
    sockets = {f"socket:[{fields[9]}]" for fields in lines if int(fields[1].rpartition(":")[2], 16) == port}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) in sockets:
                return int(link.parts[2])
    raise AssertionError(f"no process has a connection from port {port}")


def _parent(process: int) -> int:
    try:
        # The name, in parentheses, may have spaces.
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _environment() -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name not in _OTHERS},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": JVM_OPTIONS,
    }


def _listening() -> list[str]:
    return ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]


def _logged(log: Path, pattern: str) -> str:
    """Wait until a daemon logs a line of this pattern, and return its group."""
    match = until(lambda: re.search(pattern, log.read_text()), f"{pattern} in {log.name}", _SECONDS)
    return str(match[1])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
