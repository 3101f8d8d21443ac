"""Lakes, datasets and values at the edges, and many visitors at once."""

from __future__ import annotations

import datetime as dt
import re
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
from lake_core.ui import dataset
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.ui.conftest import BASE


@pytest.fixture
def fresh(tmp_path: Path) -> tuple[Lake, TestClient]:
    lake = Lake.create(str(tmp_path / "lake"))
    return lake, TestClient(create_app(lake, PageSettings()), base_url=BASE)


def page_of(client: TestClient, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status, response.text
    return response.text


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


def test_values_of_all_types_are_shown_and_each_row_has_a_history(fresh: tuple[Lake, TestClient]) -> None:
    lake, client = fresh
    with lake.session(message="all types") as s:
        s.create_delta("t", VALUES.schema).append(VALUES)
    page = page_of(client, "/dataset/t")
    for shown in ("4611686018427387904", "NaN", "-inf", "0x00ff", "2026-01-01 12:00:00.123456+00:00", "-1.50", "[1, 2]",
                  "{&#34;a&#34;: 1, &#34;b&#34;: &#34;z&#34;}", "&lt;b&gt;", "empty"):  # fmt: skip
        assert shown in page, shown
    assert "x" * 301 + "</span>" not in page
    links = re.findall(r'href="(/row/[^"]+)"', page)
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
