"""Variables say what they hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VAGUE = frozenset(["found", "told", "done", "made", "begun", "wanted", "given", "standing", "seen", "thing"])


def bindings(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the names that the modules of a folder bind, with their locations."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id.strip("_"), f"{path.relative_to(ROOT)}:{node.lineno}"
            elif isinstance(node, ast.arg):
                yield node.arg.strip("_"), f"{path.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("folder", ["lake_core", "lake_orch", "lake_pipes", "example_pipelines", "benchmarks", "tests"])
def test_few_names_say_nothing_of_what_they_hold(folder: str) -> None:
    names = list(bindings(folder))
    vague = [f"{location} {name}" for name, location in names if name in VAGUE]
    assert len(vague) <= len(names) * 0.003, vague
