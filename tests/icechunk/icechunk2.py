"""Icechunk 2 in a process of its own, as it needs a newer Python. `ICECHUNK2_PYTHON` names its interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("ICECHUNK2_PYTHON") or str(ROOT / ".venv-icechunk2" / "bin" / "python")
MISSING = f"icechunk 2 is not installed in {PYTHON}: `make interop` installs it where there is Python 3.12 or newer"


def is_there() -> bool:
    return Path(PYTHON).exists()


class Icechunk2Error(Exception):
    """What the other process raised."""


class Icechunk2:
    """The methods of `tests.icechunk.driver.Driver`, called in the other process."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "ICECHUNK_LOG": "off"}
        self._process = subprocess.Popen(
            [PYTHON, "-m", "tests.icechunk.icechunk2"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps([name, arguments, options]) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
            if "error" in answer:
                raise Icechunk2Error(answer["error"])
            return answer["result"]

        return call

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def serve() -> None:
    import icechunk

    from tests.icechunk.driver import Driver

    answers, driver = sys.stdout, Driver(icechunk)
    sys.stdout = sys.stderr
    for line in sys.stdin:
        name, arguments, options = json.loads(line)
        try:
            answer = {"result": getattr(driver, name)(*arguments, **options)}
        except BaseException as error:  # a panic of Rust is no Exception
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
