"""Commands on datasets of formats that other packages install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.icechunk import Repository
from lake_core.store import FolderStore, LocalStore
from tests.cli.commands import run, run_json
from tests.lake.lakes import TOY_FORMATS

sys.path.insert(0, str(TOY_FORMATS))
from toy_register import Register

pytestmark = pytest.mark.usefixtures("toy_formats")


@pytest.fixture
def register(root: str) -> Register:
    """Return a register in the lake's folder, of which the lake does not know."""
    register = Register.create(FolderStore(LocalStore(root), "names"))
    register.add("Ada")
    register.add("Grace")
    return register


@pytest.mark.usefixtures("register")
def test_a_dataset_of_any_format_is_imported_as_what_it_is(root: str, lake: Lake) -> None:
    assert "would bring in names: a register of lines (4 objects, " in run(root, "import", "names", "--dry-run")
    assert run_json(root, "import", "names")["import"]["kind"] == "register"
    assert lake.at().open("names").version == 2


def test_a_repository_is_imported_with_its_snapshots(root: str, lake: Lake) -> None:
    Repository.create(FolderStore(LocalStore(root), "arrays"))
    assert "brought in arrays: an Icechunk repository" in run(root, "import", "arrays")
    assert lake.at().datasets()["arrays"].format == "icechunk"


@pytest.mark.usefixtures("register")
def test_a_dataset_is_not_taken_for_its_files(root: str) -> None:
    text = run(root, "import", "names", "--as", "files", code=1)
    assert "'names' is a register of lines, whose files cannot be read on their own: leave out --as" in text


def test_files_are_not_taken_for_a_dataset(root: str) -> None:
    Path(root, "docs").mkdir()
    Path(root, "docs/a.txt").write_text("hello")
    assert "'docs' is not a register of lines: leave out --as" in run(
        root, "import", "docs", "--as", "register", code=1
    )


def test_a_format_that_is_not_installed_is_no_kind(root: str) -> None:
    text = run(root, "import", "docs", "--as", "journal", code=2)
    assert "'journal' is not one of 'delta', 'icechunk', 'note', 'pool', 'register', 'parquet', 'files'" in text


def test_plain_files_of_a_branch_become_a_dataset_of_any_format(root: str, lake: Lake) -> None:
    with lake.session() as session:
        Register.create(FolderStore(session, "names")).add("Ada", b"a portrait")
    assert "names is a register dataset of the lake" in run(root, "import", "names", "--copy")
    assert list(lake.at().open("names").lines()) == ["Ada"]


@pytest.mark.usefixtures("register")
def test_a_dataset_outside_of_the_lake_is_not_adopted(root: str) -> None:
    text = run(root, "adopt", "names", code=1)
    assert "'names' is a register of lines that is not in the lake yet: run `lake import names`" in text


@pytest.mark.usefixtures("register")
def test_rows_of_one_schema_are_queried(root: str) -> None:
    run(root, "import", "names")
    query = "select line, count(*) over () as lines from names where line = 'Grace'"
    assert run_json(root, "sql", query) == [{"line": "Grace", "lines": 1}]
