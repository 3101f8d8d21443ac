"""Which browser the tests of the UI take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import browsers


def _program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any browser."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browsers, "PATHS", ())


@pytest.mark.parametrize("name", browsers.NAMES)
def test_a_browser_is_found_by_any_of_its_names(name: str, tmp_path: Path) -> None:
    path = _program(tmp_path, name)
    assert browsers.find_browser() == path


def test_a_browser_that_is_named_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _program(tmp_path, "chromium")
    monkeypatch.setenv("CHROMIUM", "/opt/mine")
    assert browsers.find_browser() == "/opt/mine"


def test_without_any_there_is_none() -> None:
    assert browsers.find_browser() is None
