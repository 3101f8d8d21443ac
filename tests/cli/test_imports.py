"""What commands and packages import: nobody waits for what they do not use."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from lake_core import Lake
from lake_core.cli import main
from lake_core.cli.lazy_commands import LazyCommand
from tests.imports import HEAVY, imported

_FORMATS = ("pyarrow", "lake_core.delta.table", "lake_core.pool.pool", "lake_core.icechunk", "lake_core.expression")


def command(*words: str) -> str:
    return f"from lake_core.cli import main\nmain({list(words)!r}, standalone_mode=False)"


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_imports_nothing_of_lakes(words: list[str]) -> None:
    assert imported(command(*words), (*HEAVY, *_FORMATS, "numpy", "lake_core.lake.lake")) == []


@pytest.mark.parametrize("words", [["log"], ["branch"], ["tag"], ["status"], ["log", "--oneline"]])
def test_commands_about_commits_import_no_format(tmp_path: Path, words: list[str]) -> None:
    Lake.create(tmp_path)
    unused = tuple(name for name in (*HEAVY, *_FORMATS, "numpy") if name != "rich")  # which lays tables out
    assert imported(command("--lake", str(tmp_path), *words), unused) == []


@pytest.mark.parametrize(
    ("statement", "unused"),
    [
        ("import lake_core", (*HEAVY, *_FORMATS, "numpy")),
        ("from lake_core import Lake", (*HEAVY, *_FORMATS, "numpy")),
        (
            "from lake_core.delta import DeltaTable",
            (*HEAVY, "lake_core.pool.pool", "lake_core.icechunk", "lake_core.lake.lake"),
        ),
    ],
)
def test_a_package_imports_what_it_is_asked_for(statement: str, unused: tuple[str, ...]) -> None:
    assert imported(statement, unused) == []


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    listed = main.commands[name]
    assert isinstance(listed, LazyCommand)
    loaded = main.get_command(click.Context(main), name)
    assert loaded is not None
    assert (loaded.name, loaded.get_short_help_str(200)) == (name, listed.get_short_help_str(200))
