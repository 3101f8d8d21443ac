"""docs/ui.md: its example runs, and its limits and options are those of the code."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from lake_core.cli.ui import ui
from lake_core.ui import history
from lake_core.ui.settings import PageSettings
from tests.docs.blocks import DOCS, run_blocks

PAGE = (DOCS / "ui.md").read_text()
TEXT = " ".join(PAGE.split())


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks("ui.md")["lake"].ui_url == "http://localhost:7117"


def test_the_limits_are_those_of_the_code() -> None:
    settings = PageSettings()
    assert f"after {settings.query_limits.seconds:g} seconds" in TEXT
    assert settings.query_limits.memory == "1GB"
    assert "has 1 GB of memory" in TEXT
    assert f"at most {settings.query_rows:,} rows" in TEXT
    assert settings.compared_rows == 4_000_000
    assert "more than four million rows" in TEXT
    assert f"A page has {history._PAGE} commits" in TEXT


def test_every_option_but_the_port_is_on_the_page() -> None:
    names = {name for option in ui.params if isinstance(option, click.Option) for name in option.opts}
    assert {name for name in names if name not in PAGE} == {"--port"}
