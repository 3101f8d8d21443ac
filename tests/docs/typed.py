"""The files and commands of a page that is followed by hand."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.blocks import DOCS
from tests.processes import answers, until

_BLOCK = re.compile(r"^```(python|yaml|sql|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|--) (\S+\.(?:py|yaml|sql))\n")


def blocks(page: str, kind: str, section: str = "") -> list[str]:
    """Return the blocks of one kind in `docs/<page>`, or below one of its headings."""
    text = (DOCS / page).read_text()
    if section:
        (text,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [code for name, code in _BLOCK.findall(text) if name == kind]


def write_files(page: str, folder: Path, section: str = "") -> list[str]:
    """Write every block, each of which names its file in its first line. Return the names."""
    names = []
    for kind in ("python", "yaml", "sql"):
        for code in blocks(page, kind, section):
            match = _NAMED.match(code)
            assert match, f"a block of {page} names no file: {code[:80]}"
            file = folder / match[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code)
            names.append(match[1])
    assert len(names) == len(set(names))
    return names


class Terminal:
    """A shell that is started anew for each command, and keeps its folder and its environment.

    Its programs are those of this Python.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._after = folder.parent / f"{folder.name}-after"
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER", "LAKE_", "PYTHONPATH"))
        }
        self.environment = {
            **inherited,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }

    def run(self, lines: str) -> str:
        """Run commands, which must succeed. Return what they wrote to standard output."""
        program = f"set -e\n{lines}\npwd > {self._after}.folder\nenv -0 > {self._after}.environment"
        ended = subprocess.run(
            ["bash", "-c", program], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0, f"{lines}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        self.folder = Path(Path(f"{self._after}.folder").read_text().strip())
        variables = Path(f"{self._after}.environment").read_text().rstrip("\0").split("\0")
        self.environment = dict(variable.split("=", 1) for variable in variables)
        return ended.stdout

    @contextmanager
    def serving(self, command: str) -> Iterator[str]:
        """Run `dg dev` until the end of the block, at a free port. Yield its URL."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        url, log = f"http://127.0.0.1:{port}", Path(f"{self._after}.log")
        arguments = [*shlex.split(command), "-h", "127.0.0.1", "-p", str(port)]
        with (
            log.open("w") as out,
            subprocess.Popen(arguments, cwd=self.folder, env=self.environment, stdout=out, stderr=out) as server,
        ):
            try:
                until(lambda: server.poll() is not None or answers(url), "the web server", seconds=180)
                assert server.poll() is None, log.read_text()
                yield url
            finally:
                server.terminate()  # it stops its web server, daemon and code server before it ends
                server.wait(120)
