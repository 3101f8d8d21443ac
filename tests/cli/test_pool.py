"""`lake pool`, and what other commands say of pools."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.pool import PoolLake
from tests.cli.commands import run, run_json

PATH = "events/raw"
LINES = '{"k":2,"s":"b"}\n{"k":1}\n\n{"k":3,"s":7}\n'


@pytest.fixture
def zed(tmp_path: Path) -> str:
    """A Zed lake of its own with the pool `raw`, whose branch `main` holds the keys 1 to 3."""
    location = str(tmp_path / "zed")
    PoolLake.create(location).create_pool("raw", key="k", order="asc").load(
        [{"k": 2, "s": "b"}, {"k": 1}, {"k": 3, "s": 7}]
    )
    return location


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "new.ndjson"
    path.write_text(LINES)
    return str(path)


@pytest.fixture
def pools(root: str, lake: Lake, file: str) -> str:
    """The lake with the pool `events/raw`, into which `LINES` were loaded."""
    with lake.session(message="a pool") as session:
        session.create_pool(PATH, key="k", order="asc")
    run(root, "pool", "load", PATH, file, "-m", "lines")
    return root


def test_records_of_a_file_are_loaded_and_published_as_one_commit(root: str, lake: Lake, file: str) -> None:
    with lake.session() as session:
        session.create_pool(PATH, key="k", order="asc")
    assert run(root, "pool", "load", PATH, file, file, "-m", "lines") == "6 records loaded into events/raw\n"
    assert [commit.message for commit in lake.log(limit=1)] == ["lines"]


def test_a_pool_is_created_and_published(root: str, lake: Lake, file: str) -> None:
    assert run(root, "pool", "create", PATH, "--key", "user.id", "--order", "asc", "-m", "a pool") == (
        "events/raw created, sorted by user.id, smallest first\n"
    )
    config = lake.pool(PATH).config
    assert (config.keys, config.order) == ((("user", "id"),), "asc")
    assert [commit.message for commit in lake.log(limit=1)] == ["a pool"]


def test_a_pool_is_created_by_ts_and_largest_first_as_zed_does(root: str, lake: Lake) -> None:
    created = run_json(root, "pool", "create", PATH)
    assert (created["pool"], created["key"], created["order"]) == (PATH, "ts", "desc")
    assert created["id"] == lake.pool(PATH).config.id
    assert created["published"]["commit"] == lake.log(limit=1)[0].id


def test_a_pool_is_created_on_a_branch(root: str, lake: Lake) -> None:
    lake.create_branch("dev")
    run(root, "pool", "create", PATH, "--branch", "dev")
    on_dev, on_main = ({record.path for record in lake.list_datasets(ref)} for ref in ("dev", "main"))
    assert on_dev - on_main == {PATH}


def test_a_pool_is_created_in_a_zed_lake_of_its_own(root: str, zed: str) -> None:
    run(root, "pool", "create", "more", "--key", "k", "--zed", zed)
    assert [config.name for config in PoolLake.open(zed).pools()] == ["more", "raw"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((PATH,), "there is a dataset or a file at events/raw"),
        ((f"{PATH}/below",), "or above or below it, on main"),
        (("other", "--key", ""), "a pool needs a key"),
        (("other", "--branch", "absent"), "absent"),
    ],
)
def test_a_pool_that_cannot_be_created_changes_nothing(
    pools: str, lake: Lake, words: tuple[str, ...], message: str
) -> None:
    before = [commit.id for commit in lake.log()]
    assert message in run(pools, "pool", "create", *words, code=1)
    assert [commit.id for commit in lake.log()] == before


def test_a_pool_is_created_once_in_a_zed_lake_that_exists(root: str, zed: str, tmp_path: Path) -> None:
    assert "already" in run(root, "pool", "create", "raw", "--zed", zed, code=1)
    run(root, "pool", "create", "raw", "--zed", str(tmp_path / "absent"), code=1)
    assert not (tmp_path / "absent").exists()


def test_records_are_printed_in_order_as_zson(pools: str) -> None:
    assert run(pools, "pool", "scan", PATH) == '{k:1}\n{k:2,s:"b"}\n{k:3,s:7}\n'


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("--format", "ndjson"), '{"k":1}\n{"k":2,"s":"b"}\n{"k":3,"s":7}\n'),
        (("--start", "2", "--stop", "3"), '{k:2,s:"b"}\n'),
        (("-n", "1"), "{k:1}\n"),
        (("--where", "k > 1", "--columns", "k"), "{k:2}\n{k:3}\n"),
        (("--ref", "main~1"), ""),
    ],
)
def test_a_scan_takes_formats_bounds_a_limit_and_a_ref(pools: str, words: tuple[str, ...], printed: str) -> None:
    assert run(pools, "pool", "scan", PATH, *words) == printed


def test_pools_are_listed(pools: str) -> None:
    (row,) = run_json(pools, "pool", "ls")
    assert (row["pool"], row["key"], row["order"], row["records"], row["objects"]) == (PATH, "k", "asc", 3, 1)


def test_the_commits_of_a_pool_are_listed(pools: str) -> None:
    assert [row["message"] for row in run_json(pools, "pool", "log", PATH)] == ["lines"]


def test_a_zed_lake_of_its_own_is_looked_at_by_its_location(root: str, zed: str) -> None:
    assert [row["pool"] for row in run_json(root, "pool", "ls", "--zed", zed)] == ["raw"]
    commit = run_json(root, "pool", "log", "raw", "--zed", zed)[0]["commit"]
    assert run(root, "pool", "scan", "raw", "--zed", zed, "--ref", commit, "-n", "1") == "{k:1}\n"


def test_a_zed_lake_of_its_own_is_loaded(root: str, zed: str, file: str) -> None:
    run(root, "pool", "load", "raw", file, "--zed", zed, "--author", "ada")
    assert [commit.author for commit in PoolLake.open(zed).pool("raw").log()] == ["ada", ""]


@pytest.mark.parametrize("suffix", ["zson", "ndjson", "parquet"])
def test_what_is_printed_and_exported_can_be_loaded_again(pools: str, lake: Lake, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"out.{suffix}"
    if suffix == "parquet":
        run(pools, "pool", "export", PATH, "--parquet", str(file))
    else:
        file.write_text(run(pools, "pool", "scan", PATH, "--format", suffix))
    run(pools, "pool", "load", PATH, str(file))
    assert [record["k"] for record in lake.pool(PATH).scan().records()] == [1, 1, 2, 2, 3, 3]


def test_a_file_that_does_not_say_what_it_holds_is_refused(pools: str, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_text(LINES)
    assert "pass --format" in run(pools, "pool", "load", PATH, str(file), code=2)


def test_a_file_that_is_not_there_is_refused(pools: str, tmp_path: Path) -> None:
    assert "does not exist" in run(pools, "pool", "load", PATH, str(tmp_path / "absent.ndjson"), code=2)


def test_a_file_that_cannot_be_written_is_refused(pools: str, tmp_path: Path) -> None:
    assert "Could not open file" in run(
        pools, "pool", "export", PATH, "--parquet", str(tmp_path / "absent/rows.parquet"), code=1
    )


def test_loading_into_no_pool_says_how_to_create_one(root: str, file: str) -> None:
    output = run(root, "pool", "load", PATH, file, code=1)
    assert (
        f"no pool dataset at '{PATH}' in main; its datasets are t/orders. Create a pool with `lake pool create {PATH}`"
        in output
    )


def test_a_date_is_no_key(pools: str) -> None:
    assert "2026-01-31T00:00:00Z" in run(pools, "pool", "scan", PATH, "--start", "2026-01-31", code=2)


def test_a_file_with_a_wrong_line_leaves_the_pool_as_it_is(pools: str, lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "wrong.ndjson"
    file.write_text('{"k":1}\n{"k":\n')
    assert "line 2" in run(pools, "pool", "load", PATH, str(file), code=1)
    assert len(list(lake.pool(PATH).log())) == 1


@pytest.mark.parametrize("line", ['[{"k":1}]', "7", '"text"', "null"])
def test_a_line_that_is_not_an_object_is_refused(pools: str, tmp_path: Path, line: str) -> None:
    file = tmp_path / "values.ndjson"
    file.write_text(f'{{"k":1}}\n{line}\n')
    printed = " ".join(run(pools, "pool", "load", PATH, str(file), code=1).split())
    assert "values.ndjson: line 2: " in printed
    assert "write one object on each line" in printed


@pytest.mark.parametrize("text", ['{"k":7}\n', "{k:7}\n"], ids=["ndjson", "zson"])
def test_a_byte_order_mark_is_passed_over(pools: str, lake: Lake, tmp_path: Path, text: str) -> None:
    file = tmp_path / f"marked.{'zson' if text[1] == 'k' else 'ndjson'}"
    file.write_text(text, encoding="utf-8-sig")
    run(pools, "pool", "load", PATH, str(file))
    assert [record["k"] for record in lake.pool(PATH).scan(start=7).records()] == [7]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("broken.ndjson", b'{"k":\n'),
        ("broken.zson", b"{k:"),
        ("broken.zng", b"\x7f"),
        ("broken.parquet", b"no parquet"),
        ("latin.ndjson", b'{"k":"\xe9"}\n'),
        ("latin.zson", b'"\xe9"'),
    ],
)
def test_the_one_file_of_several_that_cannot_be_read_is_named(
    pools: str, file: str, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert f"{name}: " in run(pools, "pool", "load", PATH, file, str(tmp_path / name), code=1).replace("\n", "")


def test_files_before_a_broken_one_are_said_to_be_in_a_zed_lake(root: str, zed: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "broken.ndjson").write_text('{"k":\n')
    printed = run(root, "pool", "load", "raw", file, str(tmp_path / "broken.ndjson"), "--zed", zed, code=1)
    assert "1 file before it is loaded" in " ".join(printed.split())


def test_a_pool_is_exported_to_a_table_of_the_lake(pools: str, lake: Lake) -> None:
    run(pools, "pool", "export", PATH, "--delta", "tables/events")
    assert lake.delta("tables/events").to_arrow().to_pylist() == [
        {"k": 1, "s": None},
        {"k": 2, "s": '"b"'},
        {"k": 3, "s": "7"},
    ]


def test_a_zed_lake_of_its_own_is_exported(root: str, zed: str, tmp_path: Path) -> None:
    run(root, "pool", "export", "raw", "--zed", zed, "--delta", str(tmp_path / "table"))
    assert len(DeltaTable.open(tmp_path / "table").to_arrow()) == 3
    run(root, "pool", "export", "raw", "--zed", zed, "--parquet", str(tmp_path / "rows.parquet"))
    assert pq.read_table(tmp_path / "rows.parquet").schema.field("k").metadata == {b"zed.type": b"int64"}


@pytest.mark.parametrize("alone", [False, True])
def test_data_objects_are_compacted(pools: str, zed: str, lake: Lake, file: str, alone: bool) -> None:
    words = ("raw", "--zed", zed) if alone else (PATH,)
    run(pools, "pool", "load", *words, file)
    assert run(pools, "pool", "compact", *words) == "2 data objects became 1\n"
    assert run(pools, "pool", "compact", *words) == "no data objects need it, nothing is changed\n"
    opened = PoolLake.open(zed).pool("raw") if alone else lake.pool(PATH)
    assert (len(opened.objects()), len(list(opened.scan().records()))) == (1, 6)


def test_what_no_branch_needs_is_vacuumed(pools: str, zed: str) -> None:
    pool = PoolLake.open(zed).pool("raw")
    pool.delete("k > 1")
    words = ("pool", "vacuum", "raw", "--zed", zed, "--retention", "0s")
    assert run_json(pools, *words, "--dry-run")["deleted"] == run_json(pools, *words)["deleted"] != []
    assert [record["k"] for record in pool.scan().records()] == [1]
    assert "`lake gc`" in run(pools, "pool", "vacuum", PATH)


def test_other_commands_know_pools(pools: str) -> None:
    assert [(row["kind"], row["name"]) for row in run_json(pools, "ls", "events")] == [("pool", PATH)]
    assert "`lake head main:events/raw`" in run(pools, "cat", PATH, code=1)
    assert run_json(pools, "head", PATH, "-n", "2") == [{"k": 1}, {"k": 2, "s": "b"}]
    assert run_json(pools, "head", PATH, "--where", "k = 3", "--columns", "s") == [{"s": 7}]
    line = f"{PATH}  version 0 -> 1  rows +3 -0  files +1 -0"
    assert line in run(pools, "show", "main")
    assert line in run(pools, "diff", "main~1", "main")


def test_a_zed_lake_in_the_folder_is_imported(root: str, lake: Lake) -> None:
    PoolLake.create(Path(root) / "others/raw").create_pool("raw", key="k").load([{"k": 1}])
    assert "a Zed lake with one pool" in run(root, "import", "others/raw")
    assert run(root, "pool", "scan", "others/raw") == "{k:1}\n"
