"""What the documents say of tests: each one named exists.

That they ran is judged at the end of the run, see `tests.outcomes`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests import outcomes
from tests.conftest import ROOT
from tests.outcomes import EVERYTHING, USUAL, belongs, documented, is_left_out, is_whole

ArgsSource = pytest.Config.ArgsSource


def test_every_section_names_tests_that_exist() -> None:
    sections = documented()
    assert len(sections) >= 32
    for section, tests in sections.items():
        for test in tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).is_file(), f"{section}: {test}"
            assert not name or f"def {name}(" in (ROOT / path).read_text(), f"{section}: {test}"


@pytest.mark.parametrize(
    ("source", "keyword", "selection", "whole"),
    [
        (ArgsSource.TESTPATHS, "", EVERYTHING, True),
        (ArgsSource.TESTPATHS, "", "interop", False),
        (ArgsSource.TESTPATHS, "", USUAL, True),
        (ArgsSource.TESTPATHS, "", "not stress", False),
        (ArgsSource.TESTPATHS, "merge", EVERYTHING, False),
        (ArgsSource.ARGS, "", EVERYTHING, False),
    ],
)
def test_only_whole_runs_are_held_against_all_documents(
    source: ArgsSource, keyword: str, selection: str, whole: bool
) -> None:
    config = SimpleNamespace(args_source=source, option=SimpleNamespace(keyword=keyword, markexpr=selection))
    assert is_whole(cast("pytest.Config", config)) is whole


@pytest.mark.parametrize(("selection", "left_out"), [(USUAL, True), (EVERYTHING, False)])
def test_a_long_test_is_not_missed_in_make_test_alone(
    monkeypatch: pytest.MonkeyPatch, selection: str, left_out: bool
) -> None:
    monkeypatch.setattr(outcomes, "_left_out", {"tests/a.py::test_long[1]"})
    config = SimpleNamespace(option=SimpleNamespace(markexpr=selection))
    assert is_left_out(cast("pytest.Config", config), "tests/a.py::test_long") is left_out


def test_the_selections_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f'-m "{USUAL}"' in makefile
    assert f'-m "{EVERYTHING}"' in makefile


def test_pytest_without_arguments_runs_everything() -> None:
    assert f'"-m", "{EVERYTHING}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    "node", ["tests/a.py::test_b", "tests/a.py::test_b[1]", "tests/a.py::test_b@group", "tests/a.py::test_b[1]@group"]
)
def test_a_documented_test_is_known_in_each_of_its_variants(node: str) -> None:
    assert belongs(node, "tests/a.py::test_b")
    assert belongs(node, "tests/a.py")


def test_a_documented_test_is_not_taken_for_one_whose_name_goes_on() -> None:
    assert not belongs("tests/a.py::test_bc", "tests/a.py::test_b")
