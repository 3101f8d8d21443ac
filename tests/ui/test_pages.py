"""Each page shows what the lake has, and its JSON is what the command prints."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.cli import main
from lake_core.ui import compare, data
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.ui.conftest import BASE
from tests.ui.pages import page_of


def printed(root: Path, *words: str) -> Any:
    result = CliRunner().invoke(main, ["--lake", str(root), *words, "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/", ["status"]),
        ("/history?n=20", ["log"]),
        ("/history?ref=dev&dataset=tables/orders&n=20", ["log", "dev", "--dataset", "tables/orders"]),
        ("/commit/main~2", ["show", "main~2"]),
        ("/compare?from=main~3&to=main", ["diff", "main~3", "main"]),
        ("/data", ["ls"]),
        ("/data?at=dev&prefix=tables", ["ls", "dev:tables"]),
        ("/file/reports/today.txt?at=dev", ["cat", "dev:reports/today.txt"]),
        ("/dataset/tables/orders?n=10", ["head", "tables/orders"]),
        ("/dataset/pools/events?n=10", ["head", "pools/events"]),
        ("/dataset/tables/orders?where=id+%3C+3&columns=id,amount&n=10",
         ["head", "tables/orders", "--where", "id < 3", "--columns", "id,amount"]),
        ("/sessions", ["session", "list"]),
        ("/sql?q=select+customer,+count(*)+as+n+from+orders+group+by+customer+order+by+customer",
         ["sql", "select customer, count(*) as n from orders group by customer order by customer"]),
        ("/merge?ref=dev", ["merge", "dev", "--dry-run"]),
        ("/merge?ref=conflicting&strategy=ours", ["merge", "conflicting", "--dry-run", "--strategy", "ours"]),
        ("/upkeep?check=gc", ["gc", "--dry-run"]),
        ("/upkeep?check=verify", ["verify", "--quick"]),
    ],
)  # fmt: skip
def test_the_json_of_a_page_is_what_the_command_prints(
    client: TestClient, built: Path, address: str, words: list[str]
) -> None:
    separator = "&" if "?" in address else "?"
    assert client.get(f"{address}{separator}format=json").json() == printed(built, *words)


def test_home_names_branches_publishes_and_the_failed_session(client: TestClient) -> None:
    page = page_of(client, "/")
    assert "1 ahead" in page
    assert "the check &#39;amounts are positive&#39; failed: 2 rows" in page
    assert 'href="http://dagster:3000/runs/b8d5e2f0-run-of-thursday"' in page
    assert "holds tables/orders<br>" in page


def test_history_pages_by_a_cursor_through_all_commits_once(client: TestClient, lake: Lake) -> None:
    seen: list[str] = []
    address = "/history?ref=*&n=4"
    while address:
        page = page_of(client, address)
        seen += re.findall(r'<a href="/commit/([0-9a-f]{64})" title', page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        address = f"{following[1].replace('&amp;', '&')}&n=4" if following else ""
    every = {commit.id for name in lake.list_branches() for commit in lake.log(name)}
    assert len(seen) == len(set(seen))
    assert set(seen) == every


@pytest.mark.parametrize(
    ("filters", "messages"),
    [
        ("dataset=arrays/weather", ["orders of wednesday", "weather of the week"]),
        ("run=run-of-monday", ["load orders"]),
        ("text=CORRECT", ["correct order 10 again", "correct three orders"]),
        ("author=nobody", []),
    ],
)
def test_history_is_filtered(client: TestClient, filters: str, messages: list[str]) -> None:
    rows = client.get(f"/history?{filters}&format=json").json()
    assert [row["message"] for row in rows] == messages


def test_history_is_filtered_by_time(client: TestClient, lake: Lake) -> None:
    (commit,) = (each for each in lake.log() if each.message == "correct order 10 again")
    span = [commit.creation_date + sign * timedelta(minutes=5) for sign in (-1, 1)]
    times = {"since": span[0].isoformat(), "until": span[1].isoformat(), "format": "json"}
    assert [row["commit"] for row in client.get("/history", params=times).json()] == [commit.id]
    assert client.get("/history", params=times | {"since": "2030-01-01"}).json() == []


def test_a_commit_shows_what_it_changed_with_counts(client: TestClient) -> None:
    page = page_of(client, "/commit/main~2")
    assert "tables/orders" in page
    assert '<span class="plus">+40</span>' in page
    assert '<span class="plus">+1</span> <span class="minus">−0</span> chunks' in page


def test_rows_are_paged_sorted_and_filtered(client: TestClient) -> None:
    rows = client.get("/dataset/tables/orders?format=json&sort=id&desc=1&n=3&page=2").json()
    assert [row["id"] for row in rows] == [336, 335, 334]
    pages = [client.get(f"/dataset/tables/orders?format=json&n=100&page={page}").json() for page in (1, 2, 3, 4)]
    ids = [row["id"] for page in pages for row in page]
    assert [len(page) for page in pages] == [100, 100, 40, 0]
    assert sorted(ids) == [*range(200), *range(300, 340)]


def test_a_wrong_condition_is_told_beside_its_field(client: TestClient) -> None:
    assert 'role="alert"' in page_of(client, "/dataset/tables/orders?where=nope+%3D+1")


def test_rows_are_those_of_the_commit_that_the_page_names(client: TestClient) -> None:
    assert len(client.get("/dataset/tables/orders?at=main~4&format=json&n=1000").json()) == 200
    assert len(client.get("/dataset/tables/orders?at=run-of-today&format=json&n=1000").json()) == 260


def test_the_schema_has_comments_and_the_key_of_the_last_merge(client: TestClient) -> None:
    page = page_of(client, "/dataset/tables/orders?tab=schema")
    assert "who ordered" in page
    assert "key of the last merge" in page
    assert "decimal128(10, 2)" in page


def test_the_history_of_a_table_is_plotted(client: TestClient) -> None:
    page = page_of(client, "/dataset/tables/orders?tab=history")
    assert 'aria-label="rows after each version"' in page
    assert "orders of wednesday" in page


def test_health_shows_markers(client: TestClient) -> None:
    assert "nightly" in page_of(client, "/dataset/tables/revenue?tab=health")


def test_the_row_page_names_the_commits_that_changed_a_row(client: TestClient) -> None:
    page = page_of(client, "/row/tables/orders?where=%60id%60+%3D+10")
    changed = re.findall(r'(Written|Changed|Removed) by ?<a href="[^"]+">([^<]+)</a>', page)
    assert changed == [
        ("Changed", "correct order 10 again"),
        ("Changed", "correct three orders"),
        ("Written", "load orders"),
    ]
    assert "run-of-thursday" in page


def test_the_rows_page_links_the_history_of_each_row(client: TestClient) -> None:
    page = page_of(client, "/dataset/tables/orders?where=id+%3D+10")
    link = re.search(r'href="(/row/[^"]+)"', page)
    assert link is not None
    assert "correct order 10 again" in page_of(client, link[1].replace("&amp;", "&"))


def test_a_session_shows_what_it_holds_and_until_when(client: TestClient) -> None:
    page = page_of(client, "/session/run-of-today")
    assert '<span class="plus">+20</span>' in page
    assert "amounts are positive" in page
    assert "It can be read, resumed and published" in page


def test_unknown_names_say_so(client: TestClient) -> None:
    assert "the branches are conflicting, dev, main, side" in page_of(client, "/history?ref=nope", 404)
    assert "there is no dataset" in page_of(client, "/dataset/nope", 404)
    assert client.get("/dataset/nope?format=json").json()["kind"] == "DatasetNotFound"
    page_of(client, "/nothing", 404)
    page_of(client, "/file/reports/nope.txt", 404)
    page_of(client, "/dataset/tables/orders?page=x", 400)
    page_of(client, "/dataset/tables/orders?tab=arrays", 400)


def test_an_id_is_shortened_also_before_its_steps(client: TestClient, lake: Lake) -> None:
    head = lake.list_branches()["main"]
    assert f"<title>{head[:12]}~1 to" in client.get(f"/compare?from={head}~1&to=main").text


def test_every_link_of_the_pages_leads_to_a_page(client: TestClient) -> None:
    waiting, seen = ["/"], {"/"}
    kinds: Counter[str] = Counter()
    while waiting:
        address = waiting.pop(0)
        response = client.get(address, follow_redirects=False)
        assert response.status_code == 200, address
        if "text/html" not in response.headers["content-type"]:
            continue
        for link in re.findall(r'(?:href|src)="([^"#]+)"', response.text):
            link = link.replace("&amp;", "&")
            target = f"{address.partition('?')[0]}{link}" if link.startswith("?") else link
            # One of a kind: the same page of another commit or row is no other claim.
            kind = re.sub(r"[0-9a-f]{64}|where=[^&]+|[0-9]+", "*", target)
            if target.startswith("/") and target not in seen and not target.startswith("/static") and kinds[kind] < 1:
                kinds[kind] += 1
                seen.add(target)
                waiting.append(target)
    assert len(seen) > 100


def test_in_a_history_with_merges_a_row_is_changed_by_the_commit_that_did_it(own_lake: Lake) -> None:
    with own_lake.session(message="create") as s:
        rows = pa.table({"id": [1, 2], "v": [0, 0]})
        s.create_delta("tables/m", rows.schema).append(rows)
    own_lake.create_branch("left")
    with own_lake.session("left", message="on the left") as s:
        s.delta("tables/m").append(pa.table({"id": [3], "v": [3]}))
    with own_lake.session(message="on main") as s:
        s.delta("tables/m").append(pa.table({"id": [4], "v": [4]}))
    own_lake.merge("left", message="merge left")
    pages = TestClient(create_app(own_lake, PageSettings()), base_url=BASE)

    def changed(where: str) -> list[str]:
        page = page_of(pages, f"/row/tables/m?where={where}")
        return re.findall(r'(?:Written|Changed|Removed) by ?<a href="[^"]+">([^<]+)</a>', page)

    assert changed("id = 4") == ["on main"]
    assert changed("id = 3") == ["merge left", "on the left"]
    assert changed("id = 1") == ["create"]


@pytest.mark.parametrize(
    "address", ["/dataset/tables/orders", "/compare/dataset?from=dev&to=main&path=tables/orders", "/data?q=t"]
)
def test_the_next_page_is_of_the_same_commit(own_lake: Lake, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(data, "_PAGE", 1)
    monkeypatch.setattr(compare, "_ROWS", 2)
    pages = TestClient(create_app(own_lake, PageSettings()), base_url=BASE)
    head = own_lake.list_branches()["main"]
    following = re.search(r'rel="next" href="([^"]+)"', page_of(pages, address))
    assert following is not None
    with own_lake.session() as s:
        s.delta("tables/orders").delete("id >= 0")
    page = page_of(pages, address.partition("?")[0] + following[1].replace("&amp;", "&"))
    assert head in page
    assert own_lake.list_branches()["main"] not in page


def test_the_address_of_a_commit_has_its_id(client: TestClient, lake: Lake) -> None:
    id = lake.log("main~2", limit=1)[0].id
    response = client.get("/commit/main~2?page=1", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, f"/commit/{id}?page=1")
    assert client.get(f"/commit/{id}", follow_redirects=False).status_code == 200


def test_a_table_names_its_asset_and_links_to_it(own_lake: Lake) -> None:
    with own_lake.session() as session:
        session.create_delta("owned", pa.schema([("id", pa.int64())]), properties={"lake.owner.asset": "sales/o'r \"d"})
    for settings, link in ((PageSettings(dagster_url="http://dagster:3000"), True), (PageSettings(), False)):
        page = TestClient(create_app(own_lake, settings), base_url=BASE).get("/dataset/owned").text
        assert ('href="http://dagster:3000/assets/sales/o%27r%20%22d"' in page) is link
        assert "asset" in page
        assert '"d</' not in page
