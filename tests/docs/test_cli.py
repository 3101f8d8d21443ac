"""docs/cli.md: its examples run one after another and print what they show; nothing is left out."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lake_core.cli import main
from tests.docs.blocks import DOCS

PAGE = (DOCS / "cli.md").read_text()
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODES = {"conflict:": 3, "error:": 1}


def test_the_examples_run_and_print_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKE_URL", raising=False)
    names = {"__name__": "__main__"}
    for match in _BLOCK.finditer(PAGE):
        language, text = match.groups()
        if language == "python":
            exec(compile(text, "cli.md", "exec", dont_inherit=True), names)
            continue
        for example in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, *shown = example.splitlines()
            _run(line, shown, monkeypatch)


def _run(line: str, shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command, *words = shlex.split(line)
    if command == "cd":
        os.chdir(words[0])
        return
    if command == "export":
        name, _, value = words[0].partition("=")
        monkeypatch.setenv(name, value)
        return
    assert command == "lake", f"{line}: only lake, cd and export are run"
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == _CODES.get(shown[0].split()[0] if shown else "", 0), f"{line}\n{result.output}"
    printed = _spaced(result.output)
    for expected in shown:
        pattern = ".*".join(re.escape(part) for part in _spaced(expected).split("…"))
        assert re.search(pattern, printed), f"$ {line}\ndoes not print {expected!r}:\n{result.output}"


def _spaced(text: str) -> str:
    """With one blank between words, as tables' columns are as wide as their values."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_every_command_is_on_the_page() -> None:
    table = PAGE.partition("## All commands")[2]
    assert set(main.commands) <= set(re.findall(r"`([a-z-]+)`", table))


def test_every_environment_variable_of_the_options_is_on_the_page() -> None:
    variables = {option.envvar for option in main.params if isinstance(option, click.Option) and option.envvar}
    assert {str(name) for name in variables} == {"LAKE_URL", "LAKE_STORAGE_OPTIONS"}
    assert all(f"`{name}`" in PAGE for name in variables)
