"""The pictures of the docs are drawn by tests/docs/pictures.py, and pages show those that exist."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT
from tests.docs import screens
from tests.docs.blocks import DOCS
from tests.docs.pictures import FOLDER, files

PICTURE = re.compile(
    r'<picture>\n  <source media="\(prefers-color-scheme: dark\)" srcset="(\S+)">\n  <img alt="[^"]+" src="(\S+)">\n'
)
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize(("name", "svg"), files().items(), ids=files())
def test_a_picture_is_what_the_script_draws(name: str, svg: str) -> None:
    assert (FOLDER / name).read_text() == svg, "run `python -m tests.docs.pictures`"
    ElementTree.fromstring(svg)


def test_there_are_no_other_pictures() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(files())


def test_pages_show_pictures_that_exist_for_light_and_for_dark() -> None:
    shown = set()
    for page in PAGES:
        for dark, light in PICTURE.findall(page.read_text()):
            assert dark.replace("-dark.", "-light.") == light
            shown |= {(page.parent / path).resolve() for path in (dark, light)}
    assert shown == {FOLDER / name for name in files()} | {screens.FOLDER / name for name in screens.names()}


def test_the_pictures_of_pages_are_those_that_the_script_takes() -> None:
    assert {path.name for path in screens.FOLDER.iterdir()} == set(screens.names())
    for path in screens.FOLDER.iterdir():
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG\r\n")
        assert 10_000 < len(data) < 200_000


def test_no_page_needs_a_script_to_be_drawn() -> None:
    assert [page for page in PAGES if "```mermaid" in page.read_text()] == []
