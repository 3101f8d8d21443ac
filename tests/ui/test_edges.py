"""Lakes, datasets and values at the edges, and many visitors at once."""

from __future__ import annotations

import datetime as dt
import re
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.delta import variant
from lake_core.testing.manual_clock import ManualClock
from lake_core.ui import app, dataset, history
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.cli.commands import run_json
from tests.ui.conftest import BASE
from tests.ui.pages import page_of


@pytest.fixture
def fresh(tmp_path: Path) -> tuple[Lake, TestClient]:
    lake = Lake.create(str(tmp_path / "lake"))
    return lake, TestClient(create_app(lake, PageSettings()), base_url=BASE)


def test_an_empty_lake_has_all_its_pages(fresh: tuple[Lake, TestClient]) -> None:
    _, client = fresh
    for address in ("/", "/history?ref=*", "/data", "/commit/main", "/compare", "/sessions", "/sql", "/upkeep",
                    "/sql?q=select 1", "/upkeep?check=gc", "/upkeep?check=verify"):  # fmt: skip
        page_of(client, address)


def test_an_empty_table_an_empty_pool_and_a_dropped_one(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session() as s:
        s.create_delta("t", pa.schema([("id", pa.int64())]))
        s.create_pool("p", key="ts")
    for tab in ("rows", "schema", "history", "health"):
        page_of(client, f"/dataset/t?tab={tab}")
    for tab in ("rows", "shapes", "history", "health"):
        page_of(client, f"/dataset/p?tab={tab}")
    with lake.session() as s:
        s.drop("t")
    page_of(client, "/dataset/t", 404)
    page_of(client, "/dataset/t?at=main~1")
    assert "removed" in page_of(client, "/compare?from=main~1&to=main")
    page_of(client, "/compare/dataset?from=main~1&to=main&path=t")
    page_of(client, "/commit/main")


def test_partitions_are_listed_with_their_sizes(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    rows = pa.table({"id": [1, 2, 3], "day": ["mon", "mon", None]})
    with lake.session() as s:
        s.create_delta("t", rows.schema, partition_by=["day"]).append(rows)
    page = page_of(client, "/dataset/t?tab=partitions")
    assert "2 partitions" in page
    assert re.search(r'day=<span class="nowrap">mon</span></code>.*?<td class="number">2</td>', page, re.DOTALL)
    assert 'day=<span class="null">null</span>' in page


VALUES = pa.table(
    {
        "int": pa.array([2**62, None], pa.int64()),
        "float": [float("nan"), float("-inf")],
        "text": ["it's \\ a `quote`", ""],
        "bytes": [b"\x00\xff", b""],
        "when": pa.array([dt.datetime(2026, 1, 1, 12, 0, 0, 123456, dt.UTC), None], pa.timestamp("us", "UTC")),
        "day": [dt.date(2026, 1, 1), None],
        "amount": [Decimal("-1.50"), None],
        "yes": [True, False],
        "list": [[1, 2], []],
        "struct": [{"a": 1, "b": "z"}, None],
        "long": ["x" * 5000, "<b>"],
        "odd `name`; --": ["a", "b"],
    }
)


def test_values_of_all_types_are_shown_and_exact_rows_have_a_history(
    fresh: tuple[Lake, TestClient],
) -> None:
    lake, client = fresh
    with lake.session(message="all types") as s:
        s.create_delta("t", VALUES.schema).append(VALUES)
        exact = VALUES.drop_columns(["bytes", "list", "struct"])
        exact = exact.set_column(1, "float", pa.array([0.1, 5e-324]))
        s.create_delta("exact", exact.schema).append(exact)
    page = page_of(client, "/dataset/t")
    for shown in ("4611686018427387904", "NaN", "-inf", "0x00ff", "2026-01-01 12:00:00.123456+00:00", "-1.50", "[1, 2]",
                  "{&#34;a&#34;: 1, &#34;b&#34;: &#34;z&#34;}", "&lt;b&gt;", "empty"):  # fmt: skip
        assert shown in page, shown
    assert "x" * 300 + '</span><span class="muted nowrap">… 5,000 letters</span>' in page
    assert "/row/" not in page  # a condition without the list would select other rows, too
    links = re.findall(r'href="(/row/[^"]+)"', page_of(client, "/dataset/exact"))
    assert len(links) == 2
    for link in links:
        assert "all types" in page_of(client, link.replace("&amp;", "&"))
    for column in VALUES.schema.names:
        page_of(client, "/dataset/t?sort=" + column.replace("`", "%60").replace(";", "%3B").replace(" ", "+"))
    for kind in ("csv", "parquet"):
        page_of_bytes = client.get(f"/sql/result.{kind}?q=select * from t")
        assert page_of_bytes.status_code == 200, page_of_bytes.text


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("line", np.arange(5000.0), "every 1 × 10th drawn"),
        ("flags", np.array([[True, False], [False, True]]), "2 × 2 cells"),
        ("texts", np.array(["a", "b"]), "not numbers"),
        ("hollow", np.full((4, 4), np.nan), "without a number"),
        ("deep", np.ones((2, 2, 2, 3)), "2 × 3 cells"),
        ("empty", np.empty((0, 3)), "0 × 3 cells"),
    ],
)
def test_arrays_of_any_shape(fresh: tuple[Lake, TestClient], name: str, value: Any, shown: str) -> None:
    lake, client = fresh
    with lake.session() as s:
        zarr.create_array(s.create_icechunk("a").store, name=name, data=value)
    page = page_of(client, f"/dataset/a?node=/{name}")
    assert shown in page
    picture = client.get(f"/picture/a?node=/{name}")
    if value.dtype.kind in "fb" and value.size:
        assert picture.content.startswith(b"\x89PNG")
    else:
        assert picture.status_code == 400
    page_of(client, "/compare/dataset?from=main~1&to=main&path=a")


def test_any_two_dimensions_are_a_picture(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session() as s:
        zarr.create_array(s.create_icechunk("a").store, name="x", data=np.arange(24.0).reshape(2, 3, 4))
    for down in range(3):
        for across in range(3):
            status = 400 if down == across else 200
            assert client.get(f"/picture/a?node=/x&down={down}&across={across}&i0=1").status_code == status
    assert "2 × 3 cells" in page_of(client, "/dataset/a?node=/x&down=0&across=1&i2=3")
    assert "3 × 2 cells" in page_of(client, "/dataset/a?node=/x&down=1&across=0&i2=3")
    page_of(client, "/dataset/a?node=/x&i0=2", 400)


def test_files_that_are_no_text_are_shown_by_their_bytes_and_sent_whole(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    data = bytes(range(256)) * 5000
    with lake.session() as s:
        s.put("raw/a b&c.bin", data)
        s.put("raw/large.txt", "zeile ü\n".encode() * 100_000)
    assert "00 01 02" in page_of(client, "/file/raw/a%20b%26c.bin")
    response = client.get("/file/raw/a%20b%26c.bin?download=1")
    assert response.content == data
    assert response.headers["content-disposition"].startswith("attachment")
    assert "The first 262.1 kB of 900.0 kB" in page_of(client, "/file/raw/large.txt")
    assert "Not compared line by line" in page_of(client, "/compare/file?from=main~1&to=main&path=raw/a b%26c.bin")


def test_many_visitors_at_once_see_what_one_sees(client: TestClient) -> None:
    addresses = (
        *("/history?ref=*", "/dataset/tables/orders", "/compare?from=main~4&to=main", "/dataset/pools/events"),
        *("/sql?q=select sum(amount) from orders", "/dataset/arrays/weather", "/merge?ref=dev"),
    )
    varying = re.compile(r"[0-9.]+ s</span>|\d+ (?:day|hour|minute)s?|moments|…")

    def seen(address: str) -> str:
        return varying.sub("", page_of(client, address))

    alone = {address: seen(address) for address in addresses}
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda address: (address, seen(address)), addresses * 6))
    assert all(page == alone[address] for address, page in together)


def test_reading_that_takes_too_long_ends_and_says_so(
    fresh: tuple[Lake, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, client = fresh
    rows = pa.table({"id": list(range(1000))})
    with lake.session() as s:
        s.create_delta("t", rows.schema).append(rows)
        s.create_pool("p", key="ts").load([{"ts": number} for number in range(10)])
    monkeypatch.setattr(dataset, "_READ_SECONDS", -1.0)
    for address in (
        "/dataset/t?where=id+%3E+5000+OR+id+%25+7+%3D+6",
        "/dataset/t?sort=id",
        "/dataset/p?where=ts+%3D+3",
    ):
        assert "not enough rows were found" in page_of(client, address)


def test_values_that_python_has_no_type_for_are_text(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    days = pa.array([0, 2932897], pa.int32()).cast(pa.date32())
    documents = variant.from_python([{"a": 1, "b": [1, "x"]}, None])
    schema = pa.schema([("day", pa.date32()), pa.field("v", variant.VARIANT)])
    with lake.session() as s:
        s.create_delta("t", schema).append(pa.table({"day": days, "v": documents}, schema=schema))
    for address in ("/dataset/t", "/compare/dataset?from=main~1&to=main&path=t"):
        page = page_of(client, address)
        assert "10000-01-01" in page
        assert "{&#34;a&#34;:1,&#34;b&#34;:[1,&#34;x&#34;]}" in page
    assert "<code>variant</code>" in page_of(client, "/dataset/t?tab=schema")
    shown = client.get("/sql", params={"q": "select v, v->>'$.a' as a from t order by a", "format": "json"}).json()
    assert shown == [{"v": '{"a":1,"b":[1,"x"]}', "a": "1"}, {"v": None, "a": None}]
    twice = {"q": "select count(*) as n from t join t as u on t.v = u.v", "format": "json"}
    assert client.get("/sql", params=twice).json() == [{"n": 1}]
    assert client.get("/sql/result.csv?q=select v from t order by v nulls last").text.count('""a""') == 1
    assert "10000-01-01" in page_of(client, "/sql?q=select day from t")


def test_a_damaged_variant_is_said_to_be_one(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    schema = pa.schema([pa.field("v", variant.VARIANT)])
    rows = pa.table({"v": pa.array([{"value": b"\xff", "metadata": b"\x01\x00\x00"}], variant.VARIANT)}, schema=schema)
    with lake.session() as s:
        s.create_delta("t", schema).append(rows)
    assert "not a variant" in page_of(client, "/dataset/t")
    for query in ("select v from t", "select count(*) from t join t as u on t.v = u.v"):
        page = page_of(client, f"/sql?q={query}", 400)
        assert "a value is not a variant (it is cut off)" in page
        assert "Traceback" not in page


def test_a_long_binary_is_cut_in_a_cell_that_says_so_and_whole_in_a_file(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    data = bytes(range(256)) * 40
    rows = pa.table({"b": [data], "l": [[data]]})
    with lake.session() as s:
        s.create_delta("t", rows.schema).append(rows)
    page = page_of(client, "/dataset/t")
    assert '>0x000102030405060708090a0b0c0d0e0f</span><span class="muted nowrap">… 10,240 bytes</span>' in page
    assert len(page) < 40_000
    text = client.get("/sql/result.csv?q=select b, l from t").text
    assert text.count(data.hex()) == 2


def test_variants_inside_of_other_values_are_json_too(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    kinds = {
        "s": pa.struct([("v", variant.VARIANT)]),
        "l": pa.list_(variant.VARIANT),
        "m": pa.map_(pa.string(), variant.VARIANT),
    }
    document = variant.from_python([{"a": 1}]).to_pylist()[0]
    values = {"s": [{"v": document}, None], "l": [[document, None], []], "m": [[("k", document)], None]}
    schema = pa.schema(list(kinds.items()))
    rows = pa.table({name: pa.array(values[name], kind) for name, kind in kinds.items()}, schema=schema)
    with lake.session() as s:
        s.create_delta("t", schema).append(rows)
    page = page_of(client, "/dataset/t")
    assert page.count("{\\&#34;a\\&#34;:1}") == 3
    answer = client.get("/sql?q=select s.v as s, l[1] as l, m['k'] as m from t limit 1&format=json").json()
    assert answer == [{"s": '{"a":1}', "l": '{"a":1}', "m": '{"a":1}'}]


def test_numbers_that_json_does_not_have_are_text(fresh: tuple[Lake, TestClient]) -> None:
    _, client = fresh
    address = "/sql?q=select 'nan'::double a, '-inf'::double b&format=json"
    assert client.get(address).json() == [{"a": "NaN", "b": "-Infinity"}]


def test_json_shows_columns_whatever_their_names(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    rows = pa.table({"token": ["the"]})
    with lake.session() as s:
        s.create_delta("t", rows.schema).append(rows)
    for address in ("/dataset/t?format=json", "/sql?q=select * from t&format=json"):
        assert client.get(address).json() == [{"token": "the"}]


def test_a_form_sends_back_what_was_sent(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    rows = pa.table({"u": ["https://x.example/?key=1"]})
    with lake.session() as s:
        s.create_delta("t", rows.schema).append(rows)
    condition = "u = 'https://x.example/?key=1'"
    shown = condition.replace("'", "&#39;")
    assert (
        f">select * from t where {shown}</textarea>"
        in client.get("/sql", params={"q": f"select * from t where {condition}"}).text
    )
    assert f'name="where" value="{shown}"' in client.get("/dataset/t", params={"where": condition}).text


def test_a_row_is_not_said_to_be_changed_by_what_changed_another(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    rows = pa.table({"f": [float(number) for number in range(9)], "g": ["a"] * 9})
    with lake.session(message="one") as s:
        s.create_delta("t", rows.schema).append(rows)
    with lake.session(message="two") as s:
        s.delta("t").update({"g": "'z'"}, "f = 2.0")
    page = page_of(client, "/dataset/t")
    (link,) = [each for each in re.findall(r'href="(/row/[^"]+)"', page) if "0.0" in each]
    page = page_of(client, link.replace("&amp;", "&"))
    assert ">one</a>" in page
    assert ">two</a>" not in page


def test_all_selected_rows_are_compared_or_the_page_says_so(
    fresh: tuple[Lake, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, client = fresh
    rows = pa.table({"id": range(9), "g": ["a"] * 9})
    with lake.session(message="one") as s:
        s.create_delta("t", rows.schema).append(rows)
    with lake.session(message="the last") as s:
        s.delta("t").update({"id": "100"}, "id = 8")
    page = page_of(client, "/row/t?where=g = 'a'")
    assert ">the last</a>" in page
    assert "selects more than" not in page
    monkeypatch.setattr(dataset, "_MOST_COMPARED", 5)
    assert "selects more than 5 rows" in page_of(client, "/row/t?where=g = 'a'")


def test_commits_since_a_time_are_found_below_one_of_a_late_clock(tmp_path: Path) -> None:
    clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    lake = Lake.create(str(tmp_path / "lake"), clock=clock)
    client = TestClient(create_app(lake, PageSettings()), base_url=BASE)
    for hour in (12, 13, 10):
        clock.now = dt.datetime(2026, 1, 2, hour, tzinfo=dt.UTC)
        with lake.session(message=f"at {hour}") as s:
            s.put("f", b"%d" % hour)
    found = client.get("/history?format=json&since=2026-01-02T11:00").json()
    assert [each["message"] for each in found] == ["at 13", "at 12"]


def test_a_search_since_a_time_says_that_it_stopped(
    fresh: tuple[Lake, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = fresh
    monkeypatch.setattr(history, "_MOST_OLDER", 1)
    assert "The search stopped after 1 commits" in page_of(client, "/history?since=2999-01-01")


@pytest.mark.parametrize(
    ("name", "shape", "chunks", "shrunk", "expected"),
    [("planes", (300, 8, 8), (1, 4, 4), None, (800, "400")), ("shrinks", (40, 20), (10, 10), (20, 20), (4, None))],
)
def test_all_changed_chunks_are_drawn_or_counted(
    fresh: tuple[Lake, TestClient],
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    shrunk: tuple[int, ...] | None,
    expected: tuple[int, str | None],
) -> None:
    lake, client = fresh
    with lake.session() as s:
        zarr.create_array(
            s.create_icechunk("a").store, name=name, shape=shape, chunks=chunks, dtype="i1", fill_value=9
        )[:] = 1
    with lake.session() as s:
        array = zarr.open_array(s.icechunk("a").store, path=name, mode="r+")
        if shrunk is None:
            array[:] = 2
        else:
            array.resize(shrunk)
    page = page_of(client, "/compare/dataset?from=main~1&to=main&path=a")
    drawn = len(re.findall(r'<rect class="(?:written|erased)"', page))
    undrawn = re.search(r"(\d+) chunks of later planes are not drawn", page)
    assert (drawn, undrawn and undrawn[1]) == expected


def test_a_damaged_chunk_is_named(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session() as s:
        zarr.create_array(s.create_icechunk("a").store, name="x", data=np.random.default_rng(1).random((40, 40)))
    (chunk,) = (meta.key for meta in lake.repository.root.list("a/chunks/"))
    path = Path(lake.url.removeprefix("file://")) / chunk
    path.write_bytes(bytes(path.stat().st_size))
    assert "the slice cannot be read" in page_of(client, "/dataset/a")
    assert "the slice cannot be read" in page_of(client, "/picture/a?node=/x", 400)


def test_numbers_of_a_thinned_slice_say_that_they_are_of_the_drawn_cells(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session() as s:
        zarr.create_array(s.create_icechunk("a").store, name="x", data=np.ones((600, 1000)))
    assert 'greatest <span class="muted">of the cells drawn</span>' in page_of(client, "/dataset/a")


def test_a_page_that_fails_says_so_and_the_log_says_why(
    fresh: tuple[Lake, TestClient], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake, _ = fresh

    def broken(visit: object) -> object:
        raise KeyError("s3://key:hunter2@bucket")

    monkeypatch.setitem(app._PAGES, "/sessions", broken)  # type: ignore[arg-type]
    response = TestClient(create_app(lake, PageSettings()), base_url=BASE).get("/sessions")
    assert response.status_code == 500
    assert "this page failed by KeyError" in response.text
    assert "default-src" in response.headers["content-security-policy"]
    assert "in broken" in caplog.text
    assert "hunter2" not in caplog.text


def test_pages_without_json_say_so(fresh: tuple[Lake, TestClient]) -> None:
    _, client = fresh
    assert client.get("/compare?format=json").json()["kind"] == "NoSuchPage"


@pytest.mark.parametrize("query", ["select " + "(" * 150 + "1" + ")" * 150, "select date 'infinity' as x"])
def test_deep_queries_and_endless_dates_are_answered(fresh: tuple[Lake, TestClient], query: str) -> None:
    _, client = fresh
    assert client.get("/sql", params={"q": query}).status_code in (200, 400)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_cannot_hold_a_type_says_so(fresh: tuple[Lake, TestClient], kind: str) -> None:
    _, client = fresh
    assert "cast it to text" in page_of(client, f"/sql/result.{kind}?q=select interval 1 month as x", 400)


def test_nested_values_that_python_has_no_type_for_are_text(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    days = pa.array([0, 2932897], pa.int32()).cast(pa.date32())
    times = pa.array([0, 253402300800000000]).cast(pa.timestamp("us", "UTC"))
    struct = pa.StructArray.from_arrays([times], ["at"])
    rows = pa.table(
        {
            "list": pa.ListArray.from_arrays([0, 1, 2], days),
            "struct": struct,
            "map": pa.MapArray.from_arrays([0, 1, 2], ["k", "k"], struct),
        }
    )
    with lake.session() as s:
        s.create_delta("t", rows.schema).append(rows)
    root = lake.url.removeprefix("file://")
    for address in ("/dataset/t", "/compare/dataset?from=main~1&to=main&path=t", "/sql?q=select * from t"):
        page = page_of(client, address)
        assert "[&#34;1970-01-01&#34;]" in page
        assert "[&#34;10000-01-01&#34;]" in page
        assert page.count("10000-01-01 00:00:00") == 2
    assert client.get("/sql/result.csv?q=select list from t").text == (
        '"list"\n"[""1970-01-01""]"\n"[""10000-01-01""]"\n'
    )
    shown = client.get("/sql?q=select * from t&format=json").json()
    assert shown == run_json(root, "sql", "select * from t")


def test_binaries_are_written_alike_in_pages_their_json_and_commands(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    rows = pa.table({"b": [b"\x00\xff"], "l": [[b"'"]]})
    with lake.session() as s:
        s.create_delta("t", rows.schema).append(rows)
    expected = [{"b": "0x00ff", "l": ["0x27"]}]
    assert client.get("/dataset/t?format=json").json() == expected
    assert client.get("/sql?q=select * from t&format=json").json() == expected
    assert run_json(lake.url.removeprefix("file://"), "sql", "select * from t") == expected


def test_thousands_of_columns_are_read_and_compared_in_one_pass_over_their_names(
    fresh: tuple[Lake, TestClient],
) -> None:
    lake, client = fresh
    rows = pa.table({f"c{number}": [number] for number in range(3000)})
    with lake.session() as s:
        s.create_delta("wide", rows.schema).append(rows)
    for address in ("/sql?q=select * from wide", "/compare/dataset?from=main~1&to=main&path=wide"):
        started = time.process_time()
        assert "2999" in page_of(client, address)
        assert time.process_time() - started < 6, address  # a pass for each column takes longer


def test_a_long_message_is_cut_in_lists_and_whole_on_its_page(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    message = "word " * 400 + "end"
    with lake.session(message=message) as s:
        s.put("f", b"1")
    lake.open_session(id="open", message=message)
    for address in ("/", "/history", "/sessions"):
        page = page_of(client, address)
        assert "word word…" in page
        assert f">{message}" not in page
    for address in ("/commit/main", "/session/open"):
        assert f">{message}</pre>" in page_of(client, address)


def test_an_array_that_is_gone_is_linked_where_it_was(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session() as s:
        group = zarr.open_group(s.create_icechunk("a").store, mode="a")
        group.create_array("kept", shape=(2,), dtype="i4")
        group.create_array("gone", shape=(2,), dtype="i4")
    with lake.session() as s:
        del zarr.open_group(s.icechunk("a").store, mode="r+")["gone"]
    with lake.session() as s:
        s.drop("a")
    for before, after in (("main~2", "main~1"), ("main~1", "main")):
        page = page_of(client, f"/compare/dataset?from={before}&to={after}&path=a")
        links = re.findall(r'href="(/dataset/a\?[^"]*node=[^"]*)"', page)
        assert links
        for link in links:
            page_of(client, link.replace("&amp;", "&"))


def test_a_commit_that_adds_a_column_changed_no_row(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session(message="writes") as s:
        s.create_delta("t", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    with lake.session(message="widens") as s:
        s.delta("t").add_columns(pa.schema([("note", pa.string())]))
    page = page_of(client, "/row/t?where=id = 1")
    assert "writes</a>" in page
    assert "widens</a>" not in page


def test_the_history_of_a_row_goes_back_to_where_its_columns_were_others(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session() as s:
        s.create_delta("t", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    with lake.session() as s:
        s.delta("t").add_columns(pa.schema([("note", pa.string())]))
    with lake.session(message="notes") as s:
        s.delta("t").update({"note": "'n'"})
    page = page_of(client, "/row/t?where=id = 1 AND note = 'n'")
    assert "notes</a>" in page
    assert "The history ends at" in page


def test_rows_of_a_struct_that_gained_a_field_are_compared(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session() as s:
        table = s.create_delta("t", pa.schema([("id", pa.int64()), ("x", pa.struct([("a", pa.int64())]))]))
        table.append(pa.table({"id": [1, 2], "x": [{"a": 1}, {"a": 2}]}))
    with lake.session() as s:
        s.delta("t").append(pa.table({"id": [3], "x": [{"a": 3, "b": 3}]}), schema_mode="merge")
        s.delta("t").update({"id": "id + 10"}, "id = 2")  # writes the row of id 1 again, with the new field
    page = page_of(client, "/compare/dataset?from=main~1&to=main&path=t&key=-")
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "rows added 2 rows removed 1" in text


@pytest.mark.parametrize(
    ("old", "new"), [(b"a\r\nb\r\n", b"a\nb\n"), (b"a\nb", b"a\nb\n"), (b"a\xe2\x80\xa8b", b"a\nb")]
)
def test_files_that_differ_in_what_ends_their_lines_differ(
    fresh: tuple[Lake, TestClient], old: bytes, new: bytes
) -> None:
    lake, client = fresh
    for body in (old, new):
        with lake.session() as s:
            s.put("f.txt", body)
    assert "Nothing differs" not in page_of(client, "/compare/file?from=main~1&to=main&path=f.txt")


def test_nan_that_stayed_nan_is_not_marked(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session() as s:
        table = s.create_delta("t", pa.schema([("id", pa.int64()), ("f", pa.float64()), ("v", pa.int64())]))
        table.append(pa.table({"id": [1], "f": [float("nan")], "v": [1]}))
    with lake.session() as s:
        s.delta("t").update({"v": "2"})
    page = page_of(client, "/compare/dataset?from=main~1&to=main&path=t&key=id")
    assert re.search(r'class="is">\s*<span class="nowrap">2<', page)
    assert not re.search(r'class="is">\s*<span class="nowrap">NaN<', page)


def test_runs_of_airflow_are_told_apart(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    for day in ("2026-11-27", "2026-11-28"):
        with lake.session(metadata={"run": f"scheduled__{day}"}) as s:
            s.put("f", day.encode())
    assert "scheduled__2026-11-28" in re.sub(r'title="[^"]*"', "", page_of(client, "/history?ref=main"))
