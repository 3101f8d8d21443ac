"""`lake ui` as a command: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from lake_core.ui import server
from lake_core.ui.errors import MissingPages
from tests.cli.commands import run
from tests.conftest import ROOT


def test_it_prints_its_address_serves_and_ends_by_an_interrupt(root: str) -> None:
    command = [sys.executable, "-m", "lake_core.cli", "--lake", root, "ui", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "(read-only)" in line
        match = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert match is not None
        with urllib.request.urlopen(match[0], timeout=30) as answer:
            assert b"Last publishes" in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


def test_a_port_that_is_taken_is_named(root: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in run(root, "ui", "--port", str(port), code=1)


def test_without_a_lake_it_says_what_to_do(tmp_path: Path) -> None:
    assert "create one with `lake init" in run(str(tmp_path / "none"), "ui", code=1)


def test_a_dagster_address_must_be_a_page(root: str) -> None:
    assert "--dagster-url must begin with http" in run(root, "ui", "--dagster-url", "localhost:3000", code=2)


@pytest.mark.parametrize("library", ["jinja2", "starlette", "uvicorn"])
def test_without_a_library_it_names_the_extra(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingPages, match=r"pip install 'lake-orch\[page\]'"):
        server.check_installed()
