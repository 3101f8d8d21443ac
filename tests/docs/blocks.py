"""The Python examples of a document, run one after another as a reader would."""

from __future__ import annotations

import re
from typing import Any

from tests.conftest import ROOT


def run_blocks(page: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the python blocks of `docs/<page>` in one namespace, from the current directory. Returns the names that they leave."""
    text = (ROOT / "docs" / page).read_text()
    names = {"__name__": "__main__", **(names or {})}
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line = text[: match.start(1)].count("\n")
        # Blank lines in front, so that a traceback names the document's own line.
        exec(compile("\n" * line + match[1], str(ROOT / "docs" / page), "exec", dont_inherit=True), names)
    return names
