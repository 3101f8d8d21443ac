"""What other pages, other machines and hostile values cannot do."""

from __future__ import annotations

import re
import threading
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.ui.app import create_app
from lake_core.ui.guard import COOKIE
from lake_core.ui.server import is_loopback, settings_for
from lake_core.ui.settings import HIDDEN, PageSettings, is_secret_name, without_secrets
from tests.ui.conftest import BASE
from tests.ui.lakes import HOSTILE


@pytest.mark.parametrize("host", ["localhost:7117", "127.0.0.1:7117", "[::1]:7117", "127.0.0.1", "LOCALHOST"])
def test_the_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/static/page.js", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7117", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_a_name_that_was_pointed_at_this_machine_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 421


def test_every_answer_has_the_headers_that_keep_browsers_from_harm(client: TestClient) -> None:
    for address in ("/", "/nothing", "/static/style.css", "/file/reports/today.txt?download=1"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert client.get("/", headers={"Host": "evil"}).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("mode", ["no-cors", "cors", "websocket"])
def test_another_page_cannot_read_or_load_anything(client: TestClient, mode: str) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}
    assert client.get("/sql?q=select+1", headers=headers).status_code == 403
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_an_address_that_others_reach_needs_the_token(lake: Lake) -> None:
    settings = settings_for("0.0.0.0", PageSettings(), ["lake.example"])
    assert settings.token is not None
    visitor = TestClient(create_app(lake, settings), base_url="http://192.0.2.7:7117")
    assert visitor.get("/").status_code == 401
    assert visitor.get("/?token=wrong").status_code == 401
    assert visitor.get("/static/page.js").status_code == 401
    response = visitor.get(f"/data?at=dev&token={settings.token}", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, "/data?at=dev")
    address = visitor.get(f"/file/a%3Fb?token={settings.token}", follow_redirects=False)
    assert address.headers["location"] == "/file/a%3Fb"
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}_7117=")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert visitor.get("/data?at=dev").status_code == 200
    fresh = TestClient(create_app(lake, settings), base_url="http://192.0.2.7:7117")
    assert fresh.get("/", headers={"Authorization": f"Bearer {settings.token}"}).status_code == 200
    assert fresh.get("/", headers={"Cookie": f"{COOKIE}={settings.token[:-1]}"}).status_code == 401
    redirect = fresh.get(f"//evil.example/?token={settings.token}", follow_redirects=False)
    assert redirect.headers.get("location", "/").startswith("/") != redirect.headers.get("location", "/").startswith(
        "//"
    )


def test_an_open_address_is_called_by_ip_or_by_names_that_were_allowed(lake: Lake) -> None:
    settings = settings_for("0.0.0.0", PageSettings(), ["lake.example"])
    assert settings.allows_host("192.0.2.7:7117")
    assert settings.allows_host("lake.example:7117")
    assert not settings.allows_host("rebound.example:7117")
    assert settings_for("127.0.0.1", PageSettings(), []).token is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("192.0.2.7", False),
        ("lake.example", False),
    ],
)
def test_only_loopback_goes_without_a_token(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    assert (settings_for(host, PageSettings(), []).token is None) is expected


class Elements(HTMLParser):
    """The names of elements, and the attributes that would run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.handlers += [f"{tag} {name}" for name, value in attrs if name.startswith("on") or name == "style"]
        self.handlers += [f"{tag} {name}={value}" for name, value in attrs if value and value.startswith("javascript:")]
        if tag == "script":
            assert dict(attrs).get("src") == "/static/page.js"


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/history?ref=*",
        f"/history?text={HOSTILE}",
        "/commit/main",
        "/dataset/tables/hostile",
        "/dataset/tables/hostile?tab=schema",
        "/dataset/tables/hostile?tab=history",
        "/dataset/pools/hostile",
        "/dataset/pools/hostile?as=text",
        "/file/reports/hostile.txt",
        "/compare?from=main~1&to=main",
        "/compare/dataset?from=main~1&to=main&path=tables/hostile",
        "/compare/dataset?from=main~1&to=main&path=pools/hostile",
        "/compare/file?from=main~1&to=main&path=reports/hostile.txt",
        f"/sql?q=select * from hostile where 1=1 or '{HOSTILE}'=''",
        f"/dataset/tables/hostile?where={HOSTILE}",
        f"/data?q={HOSTILE}",
        f"/dataset/{HOSTILE}",
        f"/commit/{HOSTILE}",
        f"/row/tables/hostile?where=id=1 or '{HOSTILE}'=''",
        "/act/revert?commit=main",
    ],
)
def test_values_of_a_lake_are_text(hostile_lake: Lake, address: str) -> None:
    pages = TestClient(create_app(hostile_lake, PageSettings(writes=True)), base_url=BASE)
    response = pages.get(address)
    assert response.status_code in (200, 400, 404)
    elements = Elements(response.text)
    assert "img" not in elements.names
    assert elements.handlers == []
    if "hostile" in address or address in ("/", "/commit/main"):
        assert "onerror" in response.text  # it is shown, as text


@pytest.mark.parametrize(
    "query",
    [
        "copy (select 1) to '/tmp/lake-ui-copy.csv'",
        "select * from read_text('/etc/hostname')",
        "select * from read_csv('http://127.0.0.1:1/x')",
        "attach '/tmp/lake-ui.db'",
        "install httpfs",
        "set enable_external_access = true",
        "set memory_limit = '90GB'; select 1",
        "pragma database_list; copy orders to 'x.parquet'",
        "select getenv('HOME')",
    ],
)
def test_a_query_reaches_no_file_network_or_setting(client: TestClient, query: str) -> None:
    response = client.get("/sql", params={"q": query})
    assert response.status_code == 400, response.text
    assert not Path("/tmp/lake-ui-copy.csv").exists()


def test_a_query_that_takes_too_long_is_stopped(lake: Lake) -> None:
    from lake_core.report.query import Limits

    pages = TestClient(create_app(lake, PageSettings(query_limits=Limits(seconds=0.3, memory="200MB"))), base_url=BASE)
    response = pages.get("/sql", params={"q": "select count(*) from range(100000000) a, range(100000) b"})
    assert response.status_code == 400
    assert "took longer than 0.3 seconds" in response.text


def test_a_query_that_takes_too_much_memory_is_stopped(lake: Lake) -> None:
    from lake_core.report.query import Limits

    pages = TestClient(create_app(lake, PageSettings(query_limits=Limits(seconds=20, memory="30MB"))), base_url=BASE)
    response = pages.get("/sql", params={"q": "select list(range) from range(50000000)"})
    assert response.status_code == 400
    assert "Out of Memory" in response.text


def test_a_query_whose_time_is_over_before_it_begins_is_stopped(lake: Lake) -> None:
    from lake_core.report.query import Limits, QueryTimeout, run_query

    with pytest.raises(QueryTimeout):
        run_query(lake.at("main"), "select count(*) from range(100000000) a, range(100000) b", 1, Limits(seconds=0))


def test_a_result_of_too_many_bytes_is_refused(lake: Lake) -> None:
    from lake_core.report.query import Limits

    pages = TestClient(create_app(lake, PageSettings(query_limits=Limits(result_bytes=1_000_000))), base_url=BASE)
    response = pages.get("/sql", params={"q": "select range(1000000) as x"})
    assert response.status_code == 400
    assert "the result takes more than 1,000,000 bytes" in response.text


def test_few_queries_wait_so_that_other_pages_answer(lake: Lake) -> None:
    from lake_core.report.query import Limits

    settings = PageSettings(query_limits=Limits(seconds=0.7, memory="200MB", threads=1))
    pages = TestClient(create_app(lake, settings), base_url=BASE)
    query = {"q": "select count(*) from range(100000000) a, range(100000) b"}
    answers: list[str] = []
    visitors = [threading.Thread(target=lambda: answers.append(pages.get("/sql", params=query).text)) for _ in range(9)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert sum("other queries are running" in answer for answer in answers) >= 3


def test_only_the_first_rows_of_a_result_are_read(lake: Lake) -> None:
    pages = TestClient(create_app(lake, PageSettings(query_rows=10)), base_url=BASE)
    page = pages.get("/sql", params={"q": "select * from range(1000)"}).text
    assert "Only the first 10 rows are read" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/lake", f"s3://{HIDDEN}@bucket/lake"),
        ("see https://a.example/x?sig=abc&v=1.", f"see https://a.example/x?sig={HIDDEN}&v=1."),
        ("https://a.example/x?X-Amz-Signature=abc", f"https://a.example/x?X-Amz-Signature={HIDDEN}"),
        ("https://a.example/x?page=2", "https://a.example/x?page=2"),
        ("mail ann@example.org", "mail ann@example.org"),
        ("s3://AKIA:se/cret+x@bucket/lake", f"s3://{HIDDEN}@bucket/lake"),
        ("s3://u:p@ss@bucket/x", f"s3://{HIDDEN}@bucket/x"),
        ("https://a.example:8080/x@y", "https://a.example:8080/x@y"),
        ("https://a.example/?api_key=abc", f"https://a.example/?api_key={HIDDEN}"),
        ("abfss://lakes@account.dfs.core.windows.net/lake", "abfss://lakes@account.dfs.core.windows.net/lake"),
    ],
)
def test_secrets_of_urls_are_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize("text", ["a." * 130_000 + "://x", "a://" * 65_000, "a://b:c/" * 30_000 + "@"])
def test_long_texts_are_searched_for_secrets_at_once(text: str) -> None:
    started = time.process_time()
    without_secrets(text)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "name",
    [
        "private_key",
        "passphrase",
        "pwd",
        "authorization",
        "fs.azure.sas.fixed.token.acc",
        "connection_string",
        "sas_key",
    ],
)
def test_properties_of_these_names_are_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["sassy", "keys", "author", "delta.minReaderVersion"])
def test_properties_of_other_names_are_shown(name: str) -> None:
    assert not is_secret_name(name)


def test_no_page_shows_a_secret_of_metadata(own_lake: Lake) -> None:
    with own_lake.session(metadata={"source": "https://ann:hunter2@db.example/x", "db.password": "hunter2"}) as s:
        s.put("x", b"1")
        s.delta("tables/revenue").set_properties({"api.secret": "hunter2"})
    pages = TestClient(create_app(own_lake, PageSettings()), base_url=BASE)
    for address in ("/commit/main", "/commit/main?format=json", "/dataset/tables/revenue?tab=schema", "/history"):
        text = pages.get(address).text
        assert "hunter2" not in text, address
    assert HIDDEN in pages.get("/commit/main").text


def test_pages_never_run_sql_of_metadata(own_lake: Lake) -> None:
    with own_lake.session() as s:
        s.delta("tables/revenue").add_constraint("positive", "total > 0")
    pages = TestClient(create_app(own_lake, PageSettings()), base_url=BASE)
    page = pages.get("/dataset/tables/revenue?tab=schema").text
    assert re.search(r"<td>positive</td><td><code>.*total.*0.*</code>", page)
