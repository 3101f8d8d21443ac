"""Tables that other implementations wrote: each is read right, or refused by the name of the feature it needs."""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    ChangeDataFeedDisabled,
    DataFileMissing,
    DeltaError,
    UnsupportedWriterFeature,
)

ROOT = Path(__file__).parents[3] / "shared" / "cases" / "delta"
NAMES = sorted(path.name.removesuffix(".expected.json") for path in ROOT.glob("*.expected.json"))

WITHOUT_DATA = {
    "kerneljava-spark-variant-stable-feature-checkpoint",
    "rs-spark-variant-stable-feature-checkpoint",
    "krs-app-txn-with-last-updated",
    "rs-checkpoints",
    "rs-errlog-a",
    "rs-errlog-b",
    "rs-with_checkpoint_no_last_checkpoint",
}
"""Cases that hold the log only: rows are then counted from its statistics."""


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    # Another test checks the warning about a damaged checkpoint.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _expected(name: str) -> dict[str, Any]:
    return json.loads((ROOT / f"{name}.expected.json").read_text())


def _row_hash(table: Any) -> str:
    return _rowhash().row_hash(table)


def _canonical_rows(table: Any) -> list[str]:
    return sorted(_rowhash().rows(table))


def _rowhash() -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        import rowhash
    finally:
        sys.path.remove(str(ROOT))
    return rowhash


READABLE = [name for name in NAMES if "error" not in _expected(name)]
ERRORS = [name for name in NAMES if "error" in _expected(name)]


def test_the_collection_is_complete(cases: Path) -> None:
    assert (len(NAMES), len(READABLE), len(ERRORS)) == (146, 126, 20)


def test_every_plain_table_is_read(cases: Path) -> None:
    """Tables of reader version 1 and writer version 2 or lower are all read, where their data files exist."""
    plain = []
    for name in NAMES:
        protocol = _expected(name).get("protocol") or {}
        if protocol.get("minReaderVersion") == 1 and protocol.get("minWriterVersion", 9) <= 2:
            plain.append(name)
    assert len(plain) >= 71


@pytest.mark.parametrize("name", READABLE)
def test_reads_as_its_writer_meant(cases: Path, name: str) -> None:
    expected = _expected(name)
    table = DeltaTable.open(str(ROOT / name))
    assert table.version == expected["version"]
    assert table.files().num_rows == expected["num_files"]
    for app_id, version in expected.get("txns", {}).items():
        assert table.txn_version(app_id) == version
    if expected.get("num_rows") is not None:
        rows = table.to_arrow()
        assert rows.num_rows == expected["num_rows"]
        assert rows.column_names == expected["columns"]
        if "sha256_sorted_rows" in expected:
            assert _row_hash(rows) == expected["sha256_sorted_rows"]
    else:
        assert name in WITHOUT_DATA or "num_rows" not in expected


@pytest.mark.parametrize("name", [name for name in READABLE if _expected(name).get("time_travel")])
def test_travels_to_every_version(cases: Path, name: str) -> None:
    for version, expected in _expected(name)["time_travel"].items():
        table = DeltaTable.open(str(ROOT / name), version=int(version))
        assert table.version == int(version)
        if "num_files" in expected:
            assert table.files(["path"]).num_rows == expected["num_files"]
        if "num_rows" in expected:
            try:
                rows = table.to_arrow().num_rows
            except DataFileMissing:
                assert name in WITHOUT_DATA
                rows = pc.sum(table.files()["num_records"]).as_py()
            assert rows == expected["num_rows"]


FEEDS: dict[str, tuple[int, dict[str, int]]] = {
    "krs-cdf-column-mapping-name-mode-3-7": (
        1,
        {"update_preimage": 1, "update_postimage": 1, "insert": 1, "delete": 1},
    ),
    "krs-cdf-table-backtick-column-names": (0, {"insert": 5}),
    "krs-cdf-table-delete-conditional-two-rows": (0, {"insert": 10, "delete": 2}),
    "krs-cdf-table-partitioned": (0, {"insert": 6, "delete": 4, "update_preimage": 1, "update_postimage": 1}),
    "krs-cdf-table-update-ops": (0, {"insert": 10, "update_pre": 5, "update_post": 5}),  # its writer's own texts
}
"""Feeds at which the oracle failed, from their first version on: read in the tables' own commits and files."""


@pytest.mark.parametrize("name", [name for name in READABLE if "cdf_from_0" in _expected(name)])
def test_the_change_feed_is_what_its_writer_recorded(cases: Path, name: str) -> None:
    expected = _expected(name)["cdf_from_0"]
    table = DeltaTable.open(str(ROOT / name))
    start, kinds = FEEDS[name] if "oracle_error" in expected else (0, expected["by_type"])
    feed = table.changes(start).read_all()
    assert dict(Counter(feed["_change_type"].to_pylist())) == kinds
    assert feed.column_names == [*table.schema.names, "_change_type", "_commit_version", "_commit_timestamp"]
    if "columns" in expected:
        assert sorted(feed.column_names) == sorted(expected["columns"])  # the oracle puts partition columns last
        assert feed.num_rows == expected["num_rows"]
    if start:
        with pytest.raises(ChangeDataFeedDisabled, match="version 0"):
            table.changes(0)


@pytest.mark.parametrize("name", [name for name in READABLE if name in FEEDS or "cdf_from_0" in _expected(name)])
def test_the_change_feed_leads_from_version_to_version(cases: Path, name: str) -> None:
    """The changes of a version, applied to the rows of the version before, give its rows."""
    table = DeltaTable.open(str(ROOT / name))
    first = FEEDS[name][0] if name in FEEDS else 0
    if name == "krs-cdf-table-update-ops":
        return  # its change files hold rows that the table never held
    state: Counter[str] = Counter()
    if first:
        state.update(map(str, DeltaTable.open(str(ROOT / name), version=first - 1).to_arrow().to_pylist()))
    for version in range(first, table.version + 1):
        for row in table.changes(version, version).read_all().to_pylist():
            kind = row.pop("_change_type")
            assert row.pop("_commit_version") == version
            del row["_commit_timestamp"]
            state[str(row)] += 1 if kind in ("insert", "update_postimage") else -1
        rows = DeltaTable.open(str(ROOT / name), version=version).to_arrow()
        missing = [child for child in table.schema if child.name not in rows.column_names]
        for child in missing:
            rows = rows.append_column(child, pa.nulls(len(rows), child.type))
        assert +state == Counter(map(str, rows.select(table.schema.names).to_pylist()))
        assert min(state.values(), default=0) >= 0


@pytest.mark.parametrize("name", READABLE)
def test_the_log_says_what_its_writer_meant(cases: Path, name: str) -> None:
    expected = _expected(name)
    table = DeltaTable.open(str(ROOT / name))
    if "protocol" in expected:
        protocol = table.protocol.to_json()
        assert {
            key: sorted(value) if isinstance(value, list) else value for key, value in expected["protocol"].items()
        } == protocol
    if "partition_columns" in expected:
        assert list(table.metadata.partition_columns) == expected["partition_columns"]
    if "configuration" in expected:
        assert table.properties == expected["configuration"]
    if "domains" in expected:
        assert sorted(domain.domain for domain in table.snapshot.domains) == sorted(expected["domains"])
    if "rows" in expected and expected.get("num_rows") is not None:
        assert _canonical_rows(table.to_arrow()) == sorted(
            json.dumps(row, ensure_ascii=False) for row in expected["rows"]
        )


@pytest.mark.parametrize("name", ERRORS)
def test_is_refused_for_the_reason_given(cases: Path, name: str) -> None:
    with pytest.raises(DeltaError) as caught:
        DeltaTable.open(str(ROOT / name))
    assert type(caught.value).__name__ in _expected(name)["error"]


@pytest.mark.parametrize("name", [name for name in READABLE if "write_error" in _expected(name)])
def test_refuses_to_write(cases: Path, name: str) -> None:
    table = DeltaTable.open(str(ROOT / name))
    with pytest.raises(UnsupportedWriterFeature) as caught:
        table.append(table.to_arrow().slice(0, 1))
    assert caught.value.feature in table.protocol.writer_features
