"""`lake sql`: queries over the tables of a ref."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lake_core import Lake
from tests.cli.commands import run, run_json
from tests.lake.lakes import SCHEMA, rows


def test_a_table_is_named_by_its_path_or_its_last_part(root: str) -> None:
    assert run_json(root, "sql", 'select count(*) as n from "t/orders"') == [{"n": 10}]
    assert run_json(root, "sql", "select count(*) as n from Orders") == [{"n": 10}]


def test_a_last_part_that_two_tables_share_names_neither(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta("u/orders", SCHEMA)
    output = run(root, "sql", "select * from orders", code=1)
    assert 'The tables of main are "t/orders", "u/orders"' in output


def test_any_ref_is_queried(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.delta("t/orders").delete("id < 5")
    assert run_json(root, "sql", "select count(*) as n from orders") == [{"n": 5}]
    assert run_json(root, "sql", "select count(*) as n from orders", "--ref", "main~1") == [{"n": 10}]


def test_rows_of_failed_sessions_do_not_show(root: str, lake: Lake) -> None:
    """Their files lie in the table's folder, where a glob would find them."""
    with pytest.raises(KeyError), lake.session() as s:
        s.delta("t/orders").append(rows([99]))
        raise KeyError
    assert len(list(Path(root, "t/orders").glob("*.parquet"))) == 2
    assert run_json(root, "sql", "select max(id) as id from orders") == [{"id": 9}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select id from orders where id >= 8 and p = 'p1'", [{"id": 9}]),
        ("select id from orders where not (id >= 1) order by id", [{"id": 0}]),
        ("select id from orders where id < 1 or p = 'none'", [{"id": 0}]),
        (
            "select a.id from orders a left join orders b on a.id = b.id and b.id > 8 "
            "where b.id is null order by 1 limit 1",
            [{"id": 0}],
        ),
        ("with orders2 as (select * from orders where id > 8) select id from orders2", [{"id": 9}]),
        ("select o.id from (select * from orders) o where o.id = 3", [{"id": 3}]),
        ("select count(*) filter (where id > 7) as n, count(v) as m from orders where v = 0", [{"n": 2, "m": 10}]),
        ("from orders select id where id = 4", [{"id": 4}]),
        ("select orders.id from orders where 8 < id", [{"id": 9}]),
        ("select id from orders where P = 'p0' and ID > 7", [{"id": 8}]),
    ],
)
def test_what_is_left_out_early_never_changes_a_result(
    root: str, query: str, expected: list[dict[str, object]]
) -> None:
    assert run_json(root, "sql", query) == expected


def test_files_that_cannot_match_are_not_read(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta("t/parts", SCHEMA, partition_by=["p"]).append(rows(range(10)))
    for file in Path(root, "t/parts/p=p0").glob("*.parquet"):
        file.unlink()
    assert run_json(root, "sql", "select count(*) as n from parts where p = 'p1'") == [{"n": 5}]


def test_only_columns_that_are_named_are_asked_for(root: str, lake: Lake) -> None:
    data = pa.table({"id": [1], "big": ["x"]})
    with lake.session() as s:
        s.create_delta("t/wide", data.schema).append(data)
    assert run_json(root, "sql", "select id from wide") == [{"id": 1}]
    assert run_json(root, "sql", "select * from wide") == [{"id": 1, "big": "x"}]


@pytest.mark.parametrize(
    "query",
    [
        "select w from wide w",
        "select columns('.*') from wide",
        "from wide",
        "select #2, id from wide",
        "select id from wide natural join (select 1 as id, 'y' as big)",
        "select wide.* from wide",
        "summarize wide",
    ],
)
def test_columns_that_are_asked_for_without_a_name_are_read(root: str, lake: Lake, query: str) -> None:
    data = pa.table({"id": [1], "big": ["x"]})
    with lake.session() as s:
        s.create_delta("t/wide", data.schema).append(data)
    engine = duckdb.connect()
    engine.register("wide", data)
    assert run_json(root, "sql", query) == json.loads(
        json.dumps(engine.sql(query).to_arrow_table().to_pylist(), default=str)
    )


NAMED = pa.table(
    {
        "id": [1, 2, 3],
        "name": ["O'Brien", "a\\b", "c"],
        "d": [dt.date(2026, 1, day) for day in (1, 2, 3)],
        "s": [{"id": 3}, {"id": 1}, {"id": 2}],
    }
)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("select id from named where s.id = 1", [2]),
        ("select id from named s where s.id = 1", [1]),
        ("select id from named as s where s.s.id = 1", [2]),
        ("select id from named where named.id = 1", [1]),
        ("select id from named where name = 'O''Brien'", [1]),
        ("select id from named where name = 'a\\b'", [2]),
        ("select id from named where d = '2026/01/02'", [2]),
        ("select id from named where d = '2026-01-03'", [3]),
        ("select id from named where id < 99999999999999999999 order by id", [1, 2, 3]),
    ],
)
def test_a_comparison_means_what_it_means_to_the_engine(root: str, lake: Lake, query: str, ids: list[int]) -> None:
    with lake.session() as s:
        s.create_delta("t/named", NAMED.schema).append(NAMED)
    assert [row["id"] for row in run_json(root, "sql", query)] == ids


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("pivot orders on p using count(*) group by v", [{"v": 0, "p0": 5, "p1": 5}]),
        (
            "select * from (select p, v from orders) pivot (count(*) for p in ('p0', 'p1'))",
            [{"v": 0, "p0": 5, "p1": 5}],
        ),
        (
            "with recursive r as (select 0 as i union all select id from r join orders on id = i + 1) "
            "select count(*) as n from r",
            [{"n": 10}],
        ),
        ("with a as (select id from orders) select count(*) as n from a x join a y on x.id = y.id", [{"n": 10}]),
        ("select count(*) as n from query_table('orders')", [{"n": 10}]),
        ("select count(*) as n from query('select * from orders')", [{"n": 10}]),
        ("show tables", [{"name": "orders"}, {"name": "t/orders"}]),
    ],
)
def test_a_table_is_read_however_the_engine_comes_to_it(
    root: str, query: str, expected: list[dict[str, object]]
) -> None:
    assert run_json(root, "sql", query) == expected


def test_a_name_with_quotes_is_listed_as_a_query_writes_it(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta('t/the "one"', SCHEMA)
    assert '"t/the ""one"""' in run(root, "sql", "select * from nope", code=1)


def test_a_statement_that_only_the_engine_knows_gives_no_warning(root: str, caplog: pytest.LogCaptureFixture) -> None:
    run(root, "sql", "explain select * from orders")
    assert caplog.messages == []


def test_many_rows_are_printed_at_once(root: str) -> None:
    began = time.monotonic()
    lines = run(root, "sql", "select range as id, 'x' as x from range(200_000)", "-n", "200000").splitlines()
    assert time.monotonic() - began < 10
    assert (lines[0], lines[1], lines[-1]) == ("id      x", "0       x", "199999  x")


def test_rows_are_bounded_and_say_so(root: str) -> None:
    assert "only the first 3 rows are shown: pass a larger -n" in run(root, "sql", "select id from orders", "-n", "3")


@pytest.mark.parametrize(
    "query", ["select * from read_parquet('x.parquet')", "copy (select 1) to 'x.csv'", "select * from 'x.parquet'"]
)
def test_a_query_opens_no_file(root: str, query: str) -> None:
    assert "error: " in run(root, "sql", query, code=1)


def test_a_wrong_query_is_a_clear_error(root: str) -> None:
    output = run(root, "sql", "selec 1", code=1)
    assert "syntax error" in output
    assert "Traceback" not in output


def test_without_duckdb_the_error_says_how_to_install_it(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "pip install 'lake-orch[sql]'" in run(root, "sql", "select 1", code=1)
