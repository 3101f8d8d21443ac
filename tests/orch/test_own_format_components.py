"""Components for formats of other packages, which are known by their entry points alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_core import Lake
from lake_orch import LakeResource
from lake_orch.components import FormatComponent, LakeComponent, LandingZoneComponent, MaintenanceComponent
from lake_orch.errors import InvalidDefinition
from tests.lake.lakes import TOY_FORMATS
from tests.orch.test_components import build

sys.path.insert(0, str(TOY_FORMATS))


pytestmark = pytest.mark.usefixtures("toy_formats")


TEXT = """
def texts() -> str:
    return "a   b"


def copied(draft: str) -> str:
    return draft
"""


@pytest.fixture
def text_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "texts_of_a_test.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("text_module")
def test_what_a_function_returns_is_stored_in_the_format(tmp_path: Path) -> None:
    Lake.create(tmp_path / "lake")
    root = str(tmp_path / "lake")
    lake = build(LakeComponent, root=root, sessions=False, formats={"note": {"signature": " c"}})
    note = build(FormatComponent, asset={"key": "today"}, function="texts_of_a_test:texts", format="note")
    assert dg.Definitions.merge(lake, note).resolve_implicit_global_asset_job_def().execute_in_process().success
    assert Lake.open(root).at().open("tables/today").text == "a   b c"


@pytest.mark.usefixtures("text_module")
def test_inputs_have_the_settings_of_any_format(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as session:
        session.create("tables/draft", "note", "published")
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.open("tables/draft").write("of dev")
    parts = build(LakeComponent, root=str(tmp_path / "lake"), sessions=False, formats={})
    note = build(
        FormatComponent,
        asset={"key": "copy"},
        function="texts_of_a_test:copied",
        format="note",
        inputs={"draft": {"settings": {"ref": "dev"}}},
    )
    draft = dg.Definitions(assets=[dg.AssetSpec("draft").with_io_manager_key("lake_io_manager")])
    job = dg.Definitions.merge(parts, note, draft).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process().success
    assert lake.at().open("tables/copy").text == "of dev"


@pytest.mark.usefixtures("text_module")
@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"settings": {"key": "ts"}}, "'lake/key', which has no effect"),
        (
            {"asset": {"key": "t", "partitions_def": {"type": "static", "partition_keys": ["a"]}}},
            "stores no partitions",
        ),
    ],
)
def test_settings_that_the_format_does_not_have_are_refused(attributes: dict[str, Any], message: str) -> None:
    fields = {"asset": {"key": "today"}, "function": "texts_of_a_test:texts", "format": "note", **attributes}
    with pytest.raises(InvalidDefinition, match=message):
        build(FormatComponent, **fields)


def test_a_dataset_is_maintained(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create("tables/today", "note", "a   b")
        session.create("notes/old", "note", "c")
    defs = build(
        MaintenanceComponent,
        others={"note": {"today": None, "old": {"options": {"note": "short"}}}},
        paths={"old": "notes/old"},
        tasks=["squeeze"],
    )
    resources = {"lake": LakeResource(root=str(tmp_path))}
    job = dg.Definitions.merge(defs, dg.Definitions(resources=resources)).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(
        partition_key="tables/today", asset_selection=[dg.AssetKey(["maintenance", "squeeze"])]
    ).success
    assert lake.at().open("tables/today").text == "a b"


def test_a_setting_that_the_format_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match="retention has no effect on tables/today"):
        build(MaintenanceComponent, others={"note": {"today": {"retention": "7 days"}}})


def test_files_land(tmp_path: Path) -> None:
    defs = build(LandingZoneComponent, name="names", url=str(tmp_path), into="register")
    (asset,) = defs.assets or ()
    assert asset.specs_by_key[dg.AssetKey("names")].kinds == {"register"}  # type: ignore[union-attr]
