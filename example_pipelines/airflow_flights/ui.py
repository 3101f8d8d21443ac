"""`make ui-airflow`: serve the DAGs, with the demo's runs, on this machine alone."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from example_pipelines.airflow_flights import home
from example_pipelines.flights.places import LAKE_ROOT
from lake_core.lake import Lake

GRACE_SECONDS = 8.0
"""The time that Airflow has to stop by itself."""


def main() -> None:
    """Make the lake and the home where they are missing, and run `airflow standalone` until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    port = parser.parse_args().port
    Lake.create(LAKE_ROOT, exist_ok=True)
    os.environ.update(home.settings(port))
    home.make_home(anew=False)
    command = home.write_command(Path(os.environ["AIRFLOW_HOME"], "bin"))
    # It starts its parts by the name `airflow`.
    os.environ["PATH"] = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    print(f"Airflow will be at http://127.0.0.1:{port} in half a minute. Stop it with Ctrl-C.", flush=True)
    # On Ctrl-C, some of its processes wait for one another for ever. So they get a session of their own, to be ended.
    server = subprocess.Popen([command, "standalone"], start_new_session=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.wait()
    except KeyboardInterrupt:
        os.killpg(server.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            server.wait(GRACE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
