"""The examples of the pages about Airflow: DAG files, and commands that are typed."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    """Return the blocks of one kind in `docs/<page>`."""
    return [code for name, code in _BLOCK.findall((DOCS / page).read_text()) if name == kind]


def files(page: str) -> dict[str, str]:
    """Return the files of a page, by the names in their first lines."""
    return {code.partition("\n")[0].removeprefix("# "): code for code in blocks(page, "python")}


def dags_of_pages(home: Path) -> Path:
    """Write the DAG files of both pages into a folder. Those of the reference are parts of one file."""
    folder = home / "dags"
    folder.mkdir()
    (folder / "reference.py").write_text("\n".join(blocks("airflow.md", "python")))
    for name, code in files("how-to/airflow.md").items():
        (home / name).write_text(code)
    return folder
