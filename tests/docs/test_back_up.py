"""how-to/back-up.md: a copy of a lake that was made while others published is a lake."""

from __future__ import annotations

import filecmp
import re
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import deltalake
import pytest
from click.testing import CliRunner

from lake_core import Lake
from lake_core.cli import main
from lake_core.lake.errors import Conflict, LakeError
from tests.docs.blocks import DOCS
from tests.lake.lakes import SCHEMA, ids, rows

PAGE = (DOCS / "how-to/back-up.md").read_text()


def sync(source: Path, target: Path, *, delete: bool = False) -> None:
    """Copy new and changed files in no particular order, as `rsync -a` does. Files may vanish meanwhile."""
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    for path in files:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if not (target / path).exists() or not filecmp.cmp(source / path, target / path):
                shutil.copy2(source / path, target / path)
    if delete:
        for path in [path for path in target.rglob("*") if path.is_file()]:
            if not (source / path.relative_to(target)).exists():
                path.unlink()


def command(lake: Path, *arguments: str) -> None:
    """Run a command of the page."""
    assert re.search(rf"^lake .*{' '.join(arguments)}$", PAGE, re.MULTILINE)
    result = CliRunner().invoke(main, ["--lake", str(lake), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output


class Publisher:
    """Publishes rows to a table, a pool and arrays of a lake until it is stopped."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.published: list[int] = []
        self.refused = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                with self.lake.session() as session:
                    session.delta("t").append(rows([number]))
                    session.pool("p").load([{"ts": number, "n": number}])
            except LakeError as error:
                assert not isinstance(error, Conflict)
                self.refused += 1
                continue
            self.published.append(number)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as session:
        session.create_delta("t", SCHEMA)
        session.create_pool("p")
    return lake


def test_a_copy_that_was_made_while_others_published_is_a_lake(lake: Lake, tmp_path: Path) -> None:
    source, copy = tmp_path / "lake", tmp_path / "copy"
    with Publisher(lake) as publisher:
        while len(publisher.published) < 3:
            pass
        sync(source, copy)
        command(source, "branch", "protect", "main")
        sync(source, copy, delete=True)
        copied = list(publisher.published)
        command(source, "branch", "protect", "main", "--off")
        while publisher.published[-1] == copied[-1]:
            pass
    command(copy, "branch", "protect", "main", "--off")
    command(copy, "checkout")
    command(copy, "verify", "--full")
    restored = Lake.open(copy)
    assert ids(restored.delta("t").to_arrow()) == copied
    assert sorted(record["n"] for record in restored.pool("p").scan().records()) == copied
    assert sorted(deltalake.DeltaTable(copy / "t").to_pyarrow_table()["id"].to_pylist()) == copied


def test_the_copy_and_the_lake_go_on_by_themselves(lake: Lake, tmp_path: Path) -> None:
    sync(tmp_path / "lake", tmp_path / "copy")
    restored = Lake.open(tmp_path / "copy")
    for number, each in enumerate((lake, restored)):
        with each.session() as session:
            session.delta("t").append(rows([number]))
    assert (ids(lake.delta("t").to_arrow()), ids(restored.delta("t").to_arrow())) == ([0], [1])
