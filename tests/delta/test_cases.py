"""Tables that other implementations wrote: each is read right, or refused with the name of the feature that it needs."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import DataFileMissing, DeltaError, UnsupportedReaderFeature, UnsupportedWriterFeature

ROOT = Path(__file__).parents[3] / "shared" / "cases" / "delta"
NAMES = sorted(path.name.removesuffix(".expected.json") for path in ROOT.glob("*.expected.json"))

REFUSED: dict[str, str] = {
    "kerneljava-spark-shredded-variant-preview-delta": "variantShredding-preview",
    "kerneljava-spark-variant-stable-feature-checkpoint": "variantType",
    "rs-spark-variant-stable-feature-checkpoint": "variantType",
    "golden-spark-variant-checkpoint": "variantType-preview",
    "krs-unshredded-variant": "variantType-preview",
}
"""Tables that need what this reader does not implement, with the feature that the error must name."""

WITHOUT_DATA = {"krs-app-txn-with-last-updated", "rs-checkpoints", "rs-errlog-a", "rs-errlog-b", "rs-with_checkpoint_no_last_checkpoint"}
"""Cases that hold the log only: rows are then counted from its statistics."""


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    # That a damaged checkpoint is told of has a test of its own.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _expected(name: str) -> dict[str, Any]:
    return json.loads((ROOT / f"{name}.expected.json").read_text())


def _row_hash(table: Any) -> str:
    sys.path.insert(0, str(ROOT))
    try:
        import rowhash
    finally:
        sys.path.remove(str(ROOT))
    return rowhash.row_hash(table)


READABLE = [name for name in NAMES if name not in REFUSED and "error" not in _expected(name)]
ERRORS = [name for name in NAMES if "error" in _expected(name)]


def test_the_collection_is_complete(cases: Path) -> None:
    assert set(REFUSED) <= set(NAMES)
    assert (len(NAMES), len(READABLE), len(ERRORS), len(REFUSED)) == (146, 121, 20, 5)


def test_every_plain_table_is_read(cases: Path) -> None:
    """Reader 1 and writer at most 2, where the data files are there: nothing of these is refused."""
    plain = []
    for name in NAMES:
        protocol = _expected(name).get("protocol") or {}
        if protocol.get("minReaderVersion") == 1 and protocol.get("minWriterVersion", 9) <= 2:
            plain.append(name)
    assert len(plain) >= 71
    assert not set(plain) & set(REFUSED)


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


@pytest.mark.parametrize("name", ERRORS)
def test_is_refused_for_the_reason_given(cases: Path, name: str) -> None:
    with pytest.raises(DeltaError) as caught:
        DeltaTable.open(str(ROOT / name))
    assert type(caught.value).__name__ in _expected(name)["error"]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_is_refused_by_feature(cases: Path, name: str) -> None:
    with pytest.raises(UnsupportedReaderFeature) as caught:
        DeltaTable.open(str(ROOT / name)).files(["path"])
    assert caught.value.feature == REFUSED[name]
    assert REFUSED[name] in str(caught.value)


@pytest.mark.parametrize("name", [name for name in READABLE if "write_error" in _expected(name)])
def test_refuses_to_write(cases: Path, name: str) -> None:
    table = DeltaTable.open(str(ROOT / name))
    with pytest.raises(UnsupportedWriterFeature) as caught:
        table.append(table.to_arrow().slice(0, 1))
    assert caught.value.feature in table.protocol.writer_features
