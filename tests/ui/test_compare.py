"""Comparisons of tables, arrays, pools and files."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.ui.conftest import BASE
from tests.ui.pages import page_of


def numbers(page: str) -> dict[str, int]:
    """Return the numbers at the top of a page, by what they count."""
    pairs = re.findall(r"<dt>([^<]+)</dt><dd[^>]*>([0-9,]+)</dd>", page)
    return {name: int(number.replace(",", "")) for name, number in pairs}


def test_rows_are_matched_by_the_key_of_the_last_merge(client: TestClient) -> None:
    page = page_of(client, "/compare/dataset?from=main~2&to=c17&path=tables/orders".replace("c17", "main~1"))
    counts = numbers(page)
    assert (counts["rows added"], counts["rows removed"], counts["rows changed"]) == (0, 0, 1)
    assert len(re.findall(r'<td class="is">', page)) == 1
    assert 'value="id"' in page


def test_without_a_key_a_changed_row_is_removed_and_added(client: TestClient) -> None:
    counts = numbers(page_of(client, "/compare/dataset?from=main~2&to=main&path=tables/orders&key=-"))
    assert (counts["rows added"], counts["rows removed"]) == (1, 1)


def test_changed_rows_are_paged(client: TestClient) -> None:
    address = "/compare/dataset?from=main~5&to=main&path=tables/orders"
    counts = numbers(page_of(client, address))
    assert counts["rows added"] == 40
    assert counts["rows changed"] == 3
    pages = [page_of(client, f"{address}&kind=added&page={page}") for page in (1, 2)]
    assert [len(re.findall(r'<tr class="added">', page)) for page in pages] == [40, 0]


def test_an_array_shows_the_map_of_its_changed_chunks(client: TestClient) -> None:
    page = page_of(client, "/compare/dataset?from=main~3&to=main&path=arrays/weather")
    assert len(re.findall(r'<rect class="written"', page)) == 1
    assert "grid of 4 × 2 × 2" in page


def test_a_pool_shows_its_new_records(client: TestClient) -> None:
    page = page_of(client, "/compare/dataset?from=main~3&to=main&path=pools/events")
    assert numbers(page)["records added"] == 1
    assert "late" in page


def test_a_file_is_compared_line_by_line(client: TestClient) -> None:
    page = page_of(client, "/compare/file?from=main&to=dev&path=reports/today.txt")
    assert re.search(r'<tr class="removed">.*?<td>200 orders</td>', page)
    assert re.search(r'<tr class="added">.*?<td>260 orders</td>', page)
    assert re.search(r'<tr class="">.*?<td>all paid</td>', page)


def test_a_dataset_of_one_side_alone_is_compared(client: TestClient) -> None:
    page = page_of(client, "/compare/dataset?from=main~6&to=main&path=pools/events")
    assert numbers(page)["records added"] == 26
    removed = page_of(client, "/compare/dataset?from=main&to=main~6&path=pools/events")
    assert numbers(removed)["records removed"] == 26


def test_a_merge_says_that_it_is_possible_and_what_it_changes(client: TestClient) -> None:
    page = page_of(client, "/merge?ref=dev")
    assert "It can be merged" in page
    assert "1 dataset and 1 file would change" in page
    assert '<span class="plus">+60</span>' in page


def test_a_merge_says_what_conflicts(client: TestClient) -> None:
    page = page_of(client, "/merge?ref=conflicting")
    assert "It cannot be merged as it is" in page
    assert "ConcurrentAppend" in page
    assert "the strategy decides 1 conflict" in page_of(client, "/merge?ref=conflicting&strategy=theirs")
    assert "There is nothing to merge" in page_of(client, "/merge?ref=side")


@pytest.fixture
def table_client(tmp_path: Path) -> tuple[Lake, TestClient]:
    lake = Lake.create(str(tmp_path / "lake"))
    return lake, TestClient(create_app(lake, PageSettings(compared_rows=100)), base_url=BASE)


def test_columns_are_compared_side_by_side(table_client: tuple[Lake, TestClient]) -> None:
    lake, client = table_client
    with lake.session() as s:
        s.create_delta("t", pa.schema([("id", pa.int64()), ("old", pa.string())])).append(
            pa.table({"id": [1, 2], "old": ["a", "b"]})
        )
    with lake.session() as s:
        s.delta("t").append(pa.table({"id": [3], "old": ["c"], "new": [1.5]}), schema_mode="merge")
    page = page_of(client, "/compare/dataset?from=main~1&to=main&path=t")
    assert re.search(r"<code>new</code></td><td></td><td><code>double</code> ?</td>.*?added", page)
    assert numbers(page)["rows added"] == 1


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_deleted_and_updated_rows_are_found_with_and_without_deletion_vectors(
    table_client: tuple[Lake, TestClient], vectors: str
) -> None:
    lake, client = table_client
    rows = pa.table({"id": list(range(20)), "v": [0] * 20})
    with lake.session() as s:
        s.create_delta("t", rows.schema, properties={"delta.enableDeletionVectors": vectors}).append(rows)
    with lake.session() as s:
        s.delta("t").delete("id = 3")
        s.delta("t").update({"v": "9"}, "id = 5")
    page = page_of(client, "/compare/dataset?from=main~1&to=main&path=t&key=id")
    counts = numbers(page)
    assert (counts["rows added"], counts["rows removed"], counts["rows changed"]) == (0, 1, 1)
    back = numbers(page_of(client, "/compare/dataset?from=main&to=main~1&path=t&key=id"))
    assert (back["rows added"], back["rows removed"], back["rows changed"]) == (1, 0, 1)


def test_a_comparison_that_reads_too_much_is_refused_and_says_what_is_recorded(
    table_client: tuple[Lake, TestClient],
) -> None:
    lake, client = table_client
    with lake.session() as s:
        rows = pa.table({"id": list(range(500))})
        s.create_delta("t", rows.schema).append(rows)
    page = page_of(client, "/compare/dataset?from=main~1&to=main&path=t")
    assert "the files that differ hold 500 rows, and at most 100 rows are compared" in page
    assert '<span class="plus">+500</span>' in page


def test_rows_of_one_key_are_not_guessed_to_be_pairs(table_client: tuple[Lake, TestClient]) -> None:
    lake, client = table_client
    with lake.session() as s:
        rows = pa.table({"id": [1, 1], "v": [1, 2]})
        s.create_delta("t", rows.schema).append(rows)
    with lake.session() as s:
        s.delta("t").overwrite(pa.table({"id": [1, 1], "v": [3, 4]}))
    page = page_of(client, "/compare/dataset?from=main~1&to=main&path=t&key=id")
    counts = numbers(page)
    assert (counts["rows added"], counts["rows removed"], counts["rows changed"]) == (2, 2, 0)
    assert "Several rows have the same id" in page
