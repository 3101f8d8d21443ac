"""`airflow standalone` in processes of its own, on the local machine alone, and what people and accidents do to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from example_pipelines.airflow_flights.clear_request import clear_request
from example_pipelines.airflow_flights.home import write_command

T = TypeVar("T")

ROOT = Path(__file__).parent.parent.parent
DAGS = Path(__file__).parent / "dags_standalone"
DEADLINE = 400
"""How many seconds anything may take on a machine that has other work."""

SETTINGS = {
    "CORE__EXECUTOR": "LocalExecutor",
    "CORE__PARALLELISM": "4",
    "CORE__LOAD_EXAMPLES": "False",
    "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "CORE__TEST_CONNECTION": "Enabled",
    "API__HOST": "127.0.0.1",
    "API_AUTH__JWT_SECRET": "a secret of the tests, which is as long as a secret of its kind has to be",
    "LOGGING__LOGGING_LEVEL": "WARNING",
    "SCHEDULER__ENABLE_HEALTH_CHECK": "False",
    "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    # With less, a busy machine loses tasks that are well.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "3",
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
    "DAG_PROCESSOR__PRINT_STATS_INTERVAL": "0",
}

PRELOADED = "import lake_orch.airflow.preload\n"


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    session: int
    command: str


class Standalone:
    """One `airflow standalone`."""

    def __init__(
        self, home: Path, environment: Mapping[str, str], *, dags: Path = DAGS, local_settings: str = PRELOADED
    ) -> None:
        """Start it."""
        self.home = home
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._sessions: set[int] = set()
        self._lock = Lock()
        self.schedulers_started = 0
        folder = home / "bin"
        self._command = write_command(folder)
        (home / "config").mkdir()
        (home / "config" / "airflow_local_settings.py").write_text(local_settings)
        database = home / "airflow.db"
        with sqlite3.connect(database) as connection:
            # Writers then do not keep readers out.
            connection.execute("PRAGMA journal_mode=WAL")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
            **{f"AIRFLOW__{name}": value for name, value in SETTINGS.items()},
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{database}",
            "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(ROOT),
            **environment,
        }
        self._client = httpx.Client(base_url=self.url, timeout=60)
        self._start("standalone")
        self._stopped = Event()
        self._watch = Thread(target=self._keep_scheduler)

    def wait_until_up(self, dags: Sequence[str]) -> None:
        """Wait until Airflow answers and knows DAGs."""
        token = until(self._token, "Airflow to answer", DEADLINE)
        self._client.headers["Authorization"] = f"Bearer {token}"
        until(lambda: set(dags) <= self._dags(), "Airflow to parse the DAGs", DEADLINE)
        until(self._schedulers, "the scheduler", DEADLINE)
        self._watch.start()

    def _token(self) -> str | None:
        try:
            answer = self._client.get("/auth/token")
        except httpx.TransportError:
            return None
        return str(answer.json()["access_token"]) if answer.is_success else None

    def _dags(self) -> set[str]:
        errors = self.call("GET", "/importErrors")["import_errors"]
        assert not errors, errors
        return {each["dag_id"] for each in self.call("GET", "/dags")["dags"]}

    def _start(self, *command: str) -> None:
        with (self.home / "output.log").open("ab") as log:
            process = subprocess.Popen(
                [self._command, *command],
                env=self._environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sessions.add(process.pid)

    def stop(self) -> None:
        """Kill all its processes, also those that have lost their parents."""
        self._stopped.set()
        if self._watch.is_alive():
            self._watch.join()
        self._client.close()
        while living := [each for each in self.processes() if each.command]:
            for each in living:
                kill(each.pid)
            time.sleep(0.1)

    def processes(self) -> Sequence[Process]:
        """Return its processes."""
        return [each for each in all_processes() if each.session in self._sessions]

    # What people do

    def call(self, method: str, path: str, body: Any = None, **parameters: Any) -> Any:
        """Call the API. SQLite is locked now and then, and calls are repeated then."""
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                with nullcontext() if method == "GET" else self._lock:
                    answer = self._client.request(method, f"/api/v2{path}", json=body, params=parameters or None)
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
                continue
            if answer.status_code < 500 or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        assert answer.is_success, f"{method} {path} {answer.status_code}: {answer.text}"
        return answer.json() if answer.content else None

    def run(self, dag_id: str, logical_date: datetime) -> Run:
        """Start a run of a DAG."""
        body = {"logical_date": logical_date.isoformat()}
        return Run(self, dag_id, self.call("POST", f"/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def runs(self, dag_id: str, **parameters: Any) -> Sequence[Run]:
        """Return the runs of a DAG."""
        path = f"/dags/{dag_id}/dagRuns"
        found = self.call("GET", path, limit=100, order_by="logical_date", **parameters)["dag_runs"]
        return [Run(self, dag_id, each["dag_run_id"]) for each in found]

    def running(self, dag_id: str) -> Mapping[str, tuple[str, str]]:
        """Return the runs and the tasks of the tries that are running, by the ids of the tries."""
        found = self.call("GET", f"/dags/{dag_id}/dagRuns/~/taskInstances", limit=100, state="running")
        return {each["id"]: (each["dag_run_id"], each["task_id"]) for each in found["task_instances"]}

    def backfill(
        self, dag_id: str, first: datetime, last: datetime, *, at_a_time: int, again: str = "none"
    ) -> Backfill:
        """Start a backfill of a DAG. One that began although the answer was an error is taken as it is."""
        known = self._backfills(dag_id)
        body = {
            "dag_id": dag_id,
            "from_date": first.isoformat(),
            "to_date": last.isoformat(),
            "max_active_runs": at_a_time,
            "reprocess_behavior": again,
        }
        try:
            id = self.call("POST", "/backfills", body)["id"]
        except AssertionError:
            others = self._backfills(dag_id) - known
            if not others:
                raise
            (id,) = others
        return Backfill(self, dag_id, id)

    def _backfills(self, dag_id: str) -> set[int]:
        return {each["id"] for each in self.call("GET", "/backfills", dag_id=dag_id)["backfills"]}

    def events(self, dag_id: str, run_id: str) -> Counter[str]:
        """Return how many events of assets a run has given, by their URIs."""
        found = self.call("GET", "/assets/events", limit=100, source_dag_id=dag_id, source_run_id=run_id)
        return Counter(each["uri"] for each in found["asset_events"])

    # Accidents

    def kill_scheduler(self) -> None:
        """Kill the scheduler. Its workers live on, and another scheduler starts after some seconds."""
        for scheduler in self._schedulers():
            kill(scheduler.pid)

    def _schedulers(self) -> Sequence[Process]:
        return [each for each in self.processes() if " scheduler" in each.command]

    def _keep_scheduler(self) -> None:
        """Start a scheduler whenever there is none: Airflow does not, and SQLite may be the death of one."""
        while not self._stopped.wait(2):
            if not self._schedulers():
                self._start("scheduler")
                self.schedulers_started += 1


class Run:
    """A run of a DAG."""

    def __init__(self, airflow: Standalone, dag_id: str, run_id: str) -> None:
        self._airflow, self.dag_id, self.run_id = airflow, dag_id, run_id
        self._path = f"/dags/{dag_id}/dagRuns/{quote(run_id)}"

    def clear(self, *tasks: str, only_failed: bool = False, downstream: bool = False) -> None:
        """Clear tasks, or all."""
        body = clear_request(self.run_id, *tasks, downstream=downstream, only_failed=only_failed)
        self._airflow.call("POST", f"/dags/{self.dag_id}/clearTaskInstances", body)

    def mark(self, state: str) -> None:
        """Mark the run as failed or successful."""
        self._airflow.call("PATCH", self._path, {"state": state})

    @property
    def state(self) -> str:
        """Return the state of the run."""
        return str(self._airflow.call("GET", self._path)["state"])

    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the task instances by the names of their tasks, without the group."""
        found = self._airflow.call("GET", f"{self._path}/taskInstances", limit=100)["task_instances"]
        return {each["task_id"].rpartition(".")[2]: each for each in found}

    def states(self) -> Mapping[str, str | None]:
        """Return the states of the tasks."""
        return {name: each["state"] for name, each in self.tasks().items()}

    def end(self) -> str:
        """Wait until the run has ended, and return its state."""
        try:
            return until(lambda: self._ended(), f"{self.dag_id} to end", DEADLINE)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.state}, {self.states()}") from None

    def _ended(self) -> str | None:
        state = self.state
        return state if state in ("success", "failed") else None


class Backfill:
    """A backfill of a DAG."""

    def __init__(self, airflow: Standalone, dag_id: str, id: int) -> None:
        self._airflow, self._dag_id, self._id = airflow, dag_id, id

    def has_ended(self) -> bool:
        """Return whether all of its runs have ended."""
        return self._airflow.call("GET", f"/backfills/{self._id}")["completed_at"] is not None

    def end(self, seconds: float = DEADLINE) -> Sequence[Run]:
        """Wait until it has ended, and return the runs of the DAG."""
        until(self.has_ended, f"the backfill of {self._dag_id}", seconds)
        return self._airflow.runs(self._dag_id)


def kill(pid: int) -> None:
    """Kill a process, if it is there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def all_processes() -> Iterator[Process]:
    """Return the processes of this machine. The command of one that is dead is empty."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                # The name of a process is in brackets, and may have some itself.
                state, parent, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            yield Process(int(folder.name), int(parent), int(session), "" if state in "ZX" else command)


def is_alive(pid: int) -> bool:
    """Return whether a process is alive."""
    return any(each.pid == pid and each.command for each in all_processes())


def free_port() -> int:
    """Return a port that nothing listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], T | None], what: str, seconds: float) -> T:
    """Wait until a condition returns something true, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.3)


def connection(root: Path) -> str:
    """Return the connection of a lake, as an environment variable has it."""
    return json.dumps({"conn_type": "lake", "host": str(root)})
