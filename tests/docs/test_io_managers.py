"""The examples of docs/io-managers.md do what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from tests.docs.blocks import run_blocks


@pytest.mark.parametrize("storage", [pytest.param("plain", marks=pytest.mark.extended), "lake"])
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str) -> None:
    monkeypatch.chdir(tmp_path)
    if storage == "lake":
        Lake.create("lake")
    names = run_blocks("io-managers.md")

    def rows(table: str) -> list[dict[str, Any]]:
        return sorted(DeltaTable.open(f"lake/tables/{table}").to_arrow().to_pylist(), key=str)

    assert len(rows("orders")) == 4
    assert [row["amount_sum"] for row in rows("total")] == [30, 30]
    assert [row["value"] for row in rows("readings")] == [1.5, 2.5]
    assert [(row["id"], row["name"]) for row in rows("customers")] == [(1, "a"), (100, "guest"), (3, "c")]
    assert [(row["id"], row["euros"]) for row in rows("invoices")] == [(1, 1.0), (2, 2.5)]
    assert [row["amount"] for row in rows("large")] == [20, 20]
    assert [row["n"] for row in rows("running")] == [1, 2]
    months = {row["month"]: row["rows"] for row in rows("months")}
    assert len(months) == 12
    assert sum(months.values()) == 4
    assert rows("checked") == [{"n": 1}]
    assert len(names["rows"]) == 2
    assert [row["level"] for row in rows("levels")] == ["info", "info"]
    files = names["lake"].read_files(None)
    assert files.get("files/report.json") == b'{\n "months": 2\n}'
    assert files.get("reports/index.html") == b"<p>2 months</p>"
