"""The Python examples of a document, run one after another as a reader would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.conftest import ROOT

DOCS = ROOT / "docs"
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n+)?^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A Python example."""

    code: str
    """With blank lines in front, so that a traceback names the document's own line."""
    reason: str | None
    """Why it must not run, where a comment above it says so: `<!-- not run: … -->`."""


def blocks(page: str) -> Iterator[Block]:
    """The Python examples of `docs/<page>`, in order."""
    text = (DOCS / page).read_text()
    for match in _BLOCK.finditer(text):
        yield Block("\n" * text[: match.start("code")].count("\n") + match["code"], match["reason"])


def run_blocks(page: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the python blocks of `docs/<page>` in one namespace, from the current directory.

    Returns the names that they leave.
    """
    names = {"__name__": "__main__", **(names or {})}
    for block in blocks(page):
        if block.reason is None:
            exec(compile(block.code, str(DOCS / page), "exec", dont_inherit=True), names)
    return names
