"""The page of formats: its excerpts are taken from what the tests run, and its example does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core import Lake
from lake_core import dataset as formats
from lake_core.store import MemoryStore
from tests.conftest import ROOT
from tests.docs.blocks import blocks
from tests.lake.lakes import TOY_FORMATS, forget_formats

SUITES = (ROOT / "tests" / "lake" / "test_format_suite.py", ROOT / "tests" / "orch" / "test_asset_format_suite.py")
EXCERPTS = [block.code.strip("\n") for block in blocks("formats-of-your-own.md")]


def unindented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines() if line.strip())


SOURCES = [unindented(path.read_text("utf-8")) for path in (*sorted(TOY_FORMATS.glob("*.py")), *SUITES)]


def test_all_but_the_example_is_taken_from_the_formats_themselves() -> None:
    assert len([code for code in EXCERPTS if not any(unindented(code) in source for source in SOURCES)]) == 1


def test_what_engines_and_orchestrators_need_is_short() -> None:
    """Count the lines for an IO manager, a maintenance task, `lake head` and Spark, beyond what a lake itself asks."""
    beyond = ("class NoteAssets", "def squeeze", "def read_note")
    shown = [code for code in EXCERPTS if any(start in code for start in beyond)]
    assert len(shown) == len(beyond)
    (core,) = (code for code in EXCERPTS if "class NoteFormat" in code)
    head = core[core.index("def head(") : core.index("def version(")]
    lines = [line for code in (*shown, head) for line in code.splitlines() if line.strip()]
    assert len(lines) <= 60


def test_the_example_writes_two_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOY_FORMATS)
    forget_formats()
    (example,) = [code for code in EXCERPTS if not any(unindented(code) in source for source in SOURCES)]
    lake = Lake.create(MemoryStore())
    exec(example, {"lake": lake})
    assert [lake.at(ref).open("notes/today").text for ref in ("main", "main~1")] == ["second draft", "first draft"]


def test_every_method_of_a_format_is_on_the_page() -> None:
    page = Path(ROOT / "docs" / "formats-of-your-own.md").read_text("utf-8")
    methods = [
        name
        for name in vars(formats.DatasetFormat)
        if not name.startswith("_") and callable(getattr(formats.DatasetFormat, name))
    ]
    assert [name for name in methods if name not in page] == []
