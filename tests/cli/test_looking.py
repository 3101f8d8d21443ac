"""`lake ls, cat, head, show, diff, log, table`: what a user sees of a ref, a commit and a table."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

from lake_core import Lake
from lake_core.cli import main
from tests.cli.commands import run, run_json
from tests.lake.lakes import SCHEMA, TOY_FORMATS, forget_formats, rows


def test_a_folder_lists_its_folders_tables_and_files(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.put("top.txt", b"x")
    assert [(row["kind"], row["name"]) for row in run_json(root, "ls")] == [
        ("folder", "reports/"),
        ("folder", "t/"),
        ("file", "top.txt"),
    ]
    assert [(row["kind"], row["name"]) for row in run_json(root, "ls", "t")] == [("delta", "t/orders")]


def test_everything_is_listed_with_a_table_as_one_entry(root: str) -> None:
    assert [row["name"] for row in run_json(root, "ls", "-r")] == ["reports/today.txt", "t/orders"]


def test_another_ref_is_listed(root: str) -> None:
    assert [row["name"] for row in run_json(root, "ls", "main~1:")] == ["t/"]


def test_a_ref_with_an_instant_is_told_from_the_path_behind_it(root: str) -> None:
    assert [row["name"] for row in run_json(root, "ls", "main@{2100-01-01T12:00:00Z}:t")] == ["t/orders"]


def test_a_path_with_nothing_there_is_an_error(root: str) -> None:
    assert "there is nothing at main:nope: run `lake ls main:`" in run(root, "ls", "nope", code=1)


def test_a_file_is_printed_as_it_is(root: str) -> None:
    result = CliRunner().invoke(main, ["--lake", root, "cat", "reports/today.txt"])
    assert result.stdout_bytes == "grün\n".encode()


def test_a_file_in_json_is_text_or_base64(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.put("raw", b"\xff\x00")
    assert run_json(root, "cat", "main:reports/today.txt")["text"] == "grün\n"
    assert run_json(root, "cat", "raw")["base64"] == "/wA="


def test_cat_of_a_table_names_head(root: str) -> None:
    assert "`lake head main:t/orders`" in run(root, "cat", "t/orders", code=1)


def test_head_takes_rows_columns_and_a_condition(root: str) -> None:
    words = ("head", "t/orders", "-n", "2", "--where", "id > 3", "--columns", "id, p")
    assert run_json(root, *words) == [{"id": 4, "p": "p0"}, {"id": 5, "p": "p1"}]


def test_head_prints_brackets_as_they_are(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta("t/texts", pa.schema([("text", pa.string())])).append(pa.table({"text": ["[red] [/]"]}))
    assert "[red] [/]" in run(root, "head", "t/texts")


def test_a_commit_is_shown_with_its_run_and_changes(root: str) -> None:
    output = run(root, "show")
    assert "dagster/run run-17" in output
    assert "+ reports/today.txt  6 bytes" in output


def test_a_commit_of_a_table_is_shown_with_rows_and_versions(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.delta("t/orders").update({"v": "7"}, "id = 1")
    output = run(root, "show", "--rows", "5")
    assert "~ t/orders  version 0 -> 1  rows +1 -1  files +1 -1" in output
    assert "- id=1, p=p1, v=0\n    + id=1, p=p1, v=7" in output


def test_the_first_commit_is_shown(root: str) -> None:
    assert "Repository created" in run(root, "show", "main~2")


def test_a_difference_is_told_by_table(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([20, 21]))
        s.delta("t/orders").delete("id = 1")
        s.delete(["reports/today.txt"])
    difference = run_json(root, "diff", "main~1", "main", "--rows", "1")
    (table,), (file,) = difference["datasets"], difference["files"]
    assert (table["sign"], table["before"], table["after"]) == ("~", 0, 1)
    assert (table["rows_added"], table["rows_removed"]) == (2, 1)
    assert table["sample_removed"] == [{"id": 1, "p": "p1", "v": 0}]
    assert (file["sign"], file["key"]) == ("-", "reports/today.txt")


def test_versions_of_one_number_are_told_apart_by_their_refs(root: str, lake: Lake) -> None:
    lake.create_branch("dev")
    for branch, id in (("main", 20), ("dev", 21)):
        with lake.session(branch) as s:
            s.delta("t/orders").append(rows([id]))
    assert "version 1 of main -> 1 of dev" in run(root, "diff", "main", "dev")


def test_columns_that_differ_are_told(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta(
            "t/narrow",
            pa.schema([("id", pa.int64()), ("old", pa.string())]),
            properties={"delta.columnMapping.mode": "name"},
        )
    with lake.session() as s:
        table = s.delta("t/narrow")
        table.add_columns(pa.schema([("new", pa.int64())]))
        table.drop_columns(["old"])
    output = run(root, "diff", "main~1")
    assert "+ column new int64" in output
    assert "- column old string" in output


def test_rows_that_were_only_rearranged_do_not_differ(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([20]))
    with lake.session() as s:
        s.delta("t/orders").optimize()
    assert "rows +0 -0  files +1 -2" in run(root, "diff", "main~1")


def test_nested_rows_are_compared(root: str, lake: Lake) -> None:
    data = pa.table({"id": [1, 2], "tags": [["a"], ["b", "c"]]})
    with lake.session() as s:
        s.create_delta("t/nested", data.schema).append(data)
    with lake.session() as s:
        s.delta("t/nested").delete("id = 1")
    (table,) = run_json(root, "diff", "main~1")["datasets"]
    assert (table["rows_added"], table["rows_removed"]) == (0, 1)


def test_a_table_that_is_gone_is_told(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.drop("t/orders")
    (table,) = run_json(root, "diff", "main~1")["datasets"]
    assert (table["sign"], table["after"], table["rows_removed"]) == ("-", None, 10)


def test_equal_refs_do_not_differ(root: str) -> None:
    assert run(root, "diff", "main", "main") == "nothing differs\n"


def test_every_key_that_differs_has_its_sign(root: str) -> None:
    assert [row["sign"] for row in run_json(root, "diff", "main~1", "--keys")] == ["+"]


def test_a_log_of_one_line_each(root: str, lake: Lake) -> None:
    assert run(root, "log", "--oneline", "-n", "1") == f"{lake.list_branches()['main'][:12]} report\n"


def test_a_log_with_what_each_commit_changed(root: str, lake: Lake) -> None:
    with lake.session(message="more") as s:
        s.delta("t/orders").delete("id < 3")
    first, second = run(root, "log", "--stat", "-n", "1").splitlines()
    assert first.startswith(f"{lake.list_branches()['main'][:12]} more  (")
    assert second == "  ~ t/orders  version 0 -> 1  rows +0 -3  files +1 -1"


def test_a_tables_history_has_dates_rows_and_runs(root: str, lake: Lake) -> None:
    with lake.session(message="load", metadata={"dagster/run": "run-18"}) as s:
        s.delta("t/orders").overwrite(rows([1, 2, 3]))
    newest, oldest = run_json(root, "table", "history", "t/orders")
    assert (newest["rows_added"], newest["rows_removed"], newest["metadata"]["dagster/run"]) == (3, 10, "run-18")
    assert (oldest["rows_added"], oldest["rows_removed"]) == (10, 0)
    assert newest["commit"] == lake.list_branches()["main"]
    output = run(root, "table", "history", "t/orders")
    assert newest["date"][:10] in output
    assert "+3 -10" in output


def test_a_tables_history_that_begins_in_the_middle_counts_rows_that_were_removed(root: str, lake: Lake) -> None:
    for id in (20, 21):
        with lake.session() as s:
            s.delta("t/orders").append(rows([id]))
    with lake.session() as s:
        s.delta("t/orders").delete("id = 0")
    (newest,) = run_json(root, "table", "history", "t/orders", "-n", "1")
    assert (newest["version"], newest["rows_added"], newest["rows_removed"]) == (3, 0, 1)


def test_a_tables_history_in_a_session_and_on_a_branch(root: str, lake: Lake) -> None:
    lake.create_branch("dev")
    opened = lake.open_session("dev")
    with opened.join() as part:
        part.delta("t/orders").append(rows([20]))
    assert run_json(root, "table", "history", "t/orders", "--ref", opened.id)[0]["rows_added"] == 1
    opened.publish()
    assert run_json(root, "table", "history", "t/orders", "--ref", "dev")[0]["commit"] == lake.list_branches()["dev"]


def test_a_tables_detail_has_rows_and_columns(root: str) -> None:
    detail = run_json(root, "table", "detail", "t/orders")
    assert detail["num_rows"] == 10
    assert list(detail["columns"]) == SCHEMA.names
    assert "  id                 int64" in run(root, "table", "detail", "t/orders")


@pytest.mark.parametrize("command", ["branch", "tag"])
def test_names_are_listed_made_and_deleted_as_in_git(root: str, command: str) -> None:
    run(root, command, "dev", "--at", "main~1")
    assert "dev" in [row[command] for row in run_json(root, command, "list")]
    assert "dev" in run(root, command)
    assert "dev" in [row[command] for row in run_json(root, command)]
    run(root, command, "-d", "dev")
    assert "dev" not in run(root, command)


def test_the_lake_is_found_upwards(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(root, "t/orders")
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, ["ls", "t"])
    assert "t/orders" in result.output


def test_an_option_and_the_environment_go_before_the_folder(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = str(tmp_path / "other")
    Lake.create(other)
    monkeypatch.chdir(root)
    monkeypatch.setenv("LAKE_URL", other)
    assert CliRunner().invoke(main, ["ls", "-r"]).output.split() == ["kind", "name", "size", "modified"]
    assert "t/orders" in CliRunner().invoke(main, ["--lake", root, "ls", "-r"]).output


def test_where_there_is_no_lake_init_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "create one with `lake init <root>`" in CliRunner().invoke(main, ["status"]).output
    assert "create one with `lake init nowhere`" in run("nowhere", "status", code=1)


def test_a_lake_in_the_working_directory_is_named(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is one in lake: name it with `lake --lake lake ...`" in CliRunner().invoke(main, ["log"]).output


@pytest.mark.parametrize("words", [("log", "--lake", "lake"), ("table", "history", "t/orders", "--lake=lake")])
def test_the_lake_named_after_the_command_is_wrong_usage_that_says_where_it_belongs(
    root: str, words: tuple[str, ...]
) -> None:
    output = run(root, *words, code=2)
    assert f"The option --lake must come before the command: write `main --lake ... {words[0]}`" in output


def test_an_unknown_option_is_only_unknown(root: str) -> None:
    assert "No such option '--oneliner'" in run(root, "log", "--oneliner", code=2)


def test_the_status_counts_failed_sessions_that_are_kept(root: str, lake: Lake) -> None:
    assert "sessions   0 open\n" in run(root, "status")
    lake.open_session(id="nightly").fail("steps failed: orders")
    assert "sessions   0 open, 1 failed and kept: see `lake session list`" in run(root, "status")


def test_help_names_the_environment() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert "[env var: LAKE_URL]" in output
    assert "LAKE_STORAGE_OPTIONS]" in output


def test_an_option_of_the_store_comes_from_the_environment(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_STORAGE_OPTIONS", "nonsense")
    assert "write NAME=VALUE" in run(root, "status", code=2)


def completed(words: str, incomplete: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    line = f"{words} {incomplete}"
    monkeypatch.setenv("_LAKE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - (1 if incomplete else 0)))
    result = CliRunner().invoke(main, prog_name="lake", args=[])
    return [item.partition(",")[2] for item in result.output.split()]


def test_a_shell_completes_commands_refs_and_tables(root: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_branch("develop")
    monkeypatch.chdir(root)
    assert "merge" in completed("lake", "me", monkeypatch)
    assert completed("lake merge", "dev", monkeypatch) == ["develop"]
    assert completed("lake head", "t/", monkeypatch) == ["t/orders"]
    assert completed("lake head", "develop:t", monkeypatch) == ["develop:t/orders"]


def test_rows_beyond_the_bound_are_told_by_the_commits_numbers(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.delta("t/orders").delete("id < 2")
    with lake.session() as s:
        s.delta("t/orders").delete("id < 4")
    (dataset,) = lake.compare("main~1", "main", most_rows=0).datasets
    assert (dataset.comparison.rows_added, dataset.comparison.rows_removed, dataset.comparison.rows_exact) == (
        0,
        2,
        True,
    )
    (several,) = lake.compare("main~2", "main", most_rows=0).datasets
    assert several.comparison.rows_exact is False


def test_rows_are_counted_without_statistics_of_columns(root: str, lake: Lake) -> None:
    data = pa.table({"id": [1]})
    with lake.session() as s:
        s.create_delta("t/bare", data.schema, properties={"delta.dataSkippingNumIndexedCols": "0"}).append(data)
    (table,) = lake.compare("main~1", "main").datasets
    assert table.comparison.rows_added == 1


def test_a_session_is_told_by_the_difference_that_show_names(root: str, lake: Lake) -> None:
    opened = lake.open_session(id="nightly")
    with opened.join() as part:
        part.delta("t/orders").append(rows([20]))
    assert "`lake diff nightly~1 nightly`" in run(root, "show", "nightly", code=1)
    assert "rows +1 -0" in run(root, "diff", "nightly~1", "nightly")


def test_rows_whose_column_has_a_type_that_cannot_hold_them_all_differ(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta("t/texts", pa.schema([("a", pa.string())])).append(pa.table({"a": ["x", "1"]}))
    with lake.session() as s:
        s.delta("t/texts").overwrite(pa.table({"a": [7, 8, 9]}), schema_mode="overwrite")
    (table,) = run_json(root, "diff", "main~1", "main", "--rows", "5")["datasets"]
    assert (table["rows_added"], table["rows_removed"]) == (3, 2)
    assert table["sample_removed"] == [{"a": "x"}, {"a": "1"}]


@pytest.mark.parametrize(
    "words", [("log", "--dataset"), ("table", "optimize"), ("table", "vacuum"), ("adopt",), ("release",)]
)
def test_a_path_that_is_no_dataset_is_an_error_that_names_those_there(root: str, words: tuple[str, ...]) -> None:
    output = run(root, *words, "nope", code=1)
    assert "dataset at 'nope' in main; its datasets are t/orders" in output
    assert "session" not in output


def test_the_last_part_of_a_path_alone_is_an_error(root: str) -> None:
    output = run(root, "log", "--dataset", "orders", code=1)
    assert "no dataset at 'orders' in main; its datasets are t/orders" in output


def test_commits_of_a_dataset_that_was_dropped_are_listed(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.drop("t/orders")
    assert len(run_json(root, "log", "--dataset", "t/orders")) == 2


def test_adopting_a_table_that_only_lies_there_names_import(root: str) -> None:
    deltalake.write_deltalake(f"{root}/tables/e", rows([1]))
    assert "`lake import tables/e`" in run(root, "adopt", "tables/e", code=1)


def test_making_a_lake_twice_names_the_option(root: str) -> None:
    output = run(root, "init", code=1)
    assert "--exist-ok" in output
    assert "Lake.open" not in output


def test_credentials_in_the_location_are_told_where_to_go_and_not_printed() -> None:
    output = run("s3://name:secret@bucket/lake", "status", code=1)
    assert "LAKE_STORAGE_OPTIONS" in output
    assert "secret@" not in output


def test_an_empty_location_is_wrong_usage() -> None:
    assert "--lake is empty" in run("", "status", code=2)


def test_the_first_rows_of_a_format_of_ones_own(root: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOY_FORMATS))
    forget_formats()
    with lake.session() as session:
        session.create("note", "note", "a text")
        session.create("names", "register")
    assert run_json(root, "head", "note") == [{"text": "a text"}]
    assert "has no rows to show" in run(root, "head", "names", code=1)
    forget_formats()
