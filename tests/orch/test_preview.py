"""The first rows of what was written, on the asset's page: bounded, readable, and only where they may be there."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_orch import DeltaIOManager, InvalidDefinition, LakeResource
from lake_orch.assets.tables.markdown import markdown_table

ROWS = pa.table({"id": list(range(100)), "name": [f"name {number}" for number in range(100)]})


def preview(root: Path, value: Any, metadata: dict[str, Any] | None = None, **options: Any) -> str | None:
    @dg.asset(metadata=metadata)
    def shown() -> Any:
        return value

    Lake.create(root) if not Lake.exists(root) else None
    result = dg.materialize(
        [shown], resources={"io_manager": DeltaIOManager(lake=LakeResource(root=str(root)), **options)}
    )
    (event,) = result.asset_materializations_for_node("shown")
    entry = event.metadata.get("lake/preview")
    return None if entry is None else str(entry.value)


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_five_rows_are_shown(tmp_path: Path, kind: str) -> None:
    shown = preview(tmp_path / "lake", ROWS if kind == "table" else ROWS.to_reader(max_chunksize=10))
    assert shown is not None
    assert shown.splitlines()[:3] == ["| id | name |", "| --- | --- |", "| 0 | name 0 |"]
    assert len(shown.splitlines()) == 2 + 5


@pytest.mark.parametrize("off", ["asset", "IO manager"])
def test_it_can_be_switched_off(tmp_path: Path, off: str) -> None:
    metadata = {"lake/preview_rows": 0} if off == "asset" else None
    options = {} if off == "asset" else {"preview_rows": 0}
    assert preview(tmp_path / "lake", ROWS, metadata, **options) is None


def test_an_asset_goes_before_its_io_manager(tmp_path: Path) -> None:
    shown = preview(tmp_path / "lake", ROWS, {"lake/preview_rows": 1}, preview_rows=0)
    assert shown is not None
    assert len(shown.splitlines()) == 2 + 1


def test_no_rows_have_no_preview(tmp_path: Path) -> None:
    assert preview(tmp_path / "lake", ROWS.slice(0, 0)) is None


@pytest.mark.parametrize("number", [-1, 51, "5", True])
def test_another_number_is_refused(tmp_path: Path, number: Any) -> None:
    with pytest.raises(Exception, match="preview_rows") as raised:
        preview(tmp_path / "lake", ROWS, {"lake/preview_rows": number})
    assert isinstance(raised.value.__cause__, InvalidDefinition) or isinstance(raised.value, InvalidDefinition)


def test_rows_that_cannot_be_shown_fail_no_step(tmp_path: Path) -> None:
    moment = pa.array([2**62], pa.timestamp("us", "UTC"))  # a year beyond those that Python has
    shown = preview(tmp_path / "lake", pa.table({"at": moment}))
    assert shown is not None
    assert shown.startswith("these rows cannot be shown")


def test_a_table_is_bounded_in_columns_and_width() -> None:
    wide = pa.table({f"column_{number}": ["x" * 10_000] * 20 for number in range(100)})
    text = markdown_table(wide)
    assert len(text) < 6000
    assert "and 88 more columns" in text


def test_values_cannot_break_out_of_their_cell() -> None:
    rows = pa.table(
        {"a|b": ["x | y\n| z |", "<img src=x>", "[link](http://x)", None], "raw": [b"\x00\xff", b"", b"1", None]}
    )
    lines = markdown_table(rows).splitlines()
    assert len(lines) == 2 + 4
    assert lines[2] == "| x \\| y \\| z \\| | 2 bytes |"
    assert lines[3] == "| &lt;img src=x&gt; | 0 bytes |"
    assert lines[4] == "| \\[link\\](http://x) | 1 byte |"
    assert lines[5] == "| null | null |"
