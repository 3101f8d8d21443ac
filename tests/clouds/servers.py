"""Real servers that speak the clouds' protocols. `make test-clouds` builds them; an environment variable names each."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class CloudServer:
    """A running server: what `open_store` needs to reach its container `lake`."""

    scheme: str
    """Of the URLs of its objects."""
    storage_options: dict[str, object]
    environment: dict[str, str]
    """The variables by which a program without options reaches it."""

    def url(self, prefix: str) -> str:
        """Return the location of a prefix."""
        return f"{self.scheme}://lake/{prefix}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def executable(variable: str) -> str:
    """Return the program that an environment variable names; without it, the test is skipped."""
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} names no server: `make test-clouds` builds it")
    return path


@contextmanager
def running(command: list[str], port: int, log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    """Run a server until the block ends."""
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})}) as process,
    ):
        try:
            deadline = time.monotonic() + 30
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.kill()
