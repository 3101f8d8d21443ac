"""What commands say of pools in SQL and of lengths of time, and names that differ only in case."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.cli.context import Span
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.properties import duration_ms
from lake_core.lake.errors import DatasetExists
from tests.cli.commands import run
from tests.lake.lakes import SCHEMA


def test_sql_says_how_to_read_a_pool(tmp_path: Path) -> None:
    with Lake.create(tmp_path).session() as s:
        s.create_pool("logs/ev").load(pa.table({"ts": [1]}))
    for name in ("ev", '"logs/ev"'):
        text = run(str(tmp_path), "sql", f"select * from {name}", code=1)
        assert "logs/ev is a pool" in text
        assert "lake pool scan logs/ev" in text


@pytest.mark.parametrize("text", ["8d", "8 days", "interval 8 days", "8 d", "192h", "192 hours"])
def test_both_spellings_of_a_length_of_time_are_read(text: str) -> None:
    assert Span().convert(text, None, None) == timedelta(days=8)
    assert duration_ms(text, "retention") == 8 * 86_400_000


@pytest.mark.parametrize("text", ["8", "days", "8 months", "8q", "-8d"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidProperty):
        duration_ms(text, "retention")


@pytest.mark.parametrize("path", ["tables/A", "Tables/a"])
def test_names_that_differ_only_in_case_are_refused(tmp_path: Path, path: str) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as s:
        s.create_delta("tables/a", SCHEMA)
    with pytest.raises(DatasetExists, match="case"), lake.session() as s:
        s.create_delta(path, SCHEMA)
    assert not (tmp_path / path).exists()
