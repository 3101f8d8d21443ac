"""The components of published checks, and of a lake's tables as external assets."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components import build_defs_for_component

from lake_core import Lake
from lake_orch.components import LakeTablesComponent, PublishedChecksComponent
from lake_orch.errors import InvalidDefinition
from lake_orch.published_checks import lake_freshness_checks

_KEY = dg.AssetKey("orders")


def _checks(**attributes: Any) -> dg.Definitions:
    return build_defs_for_component(PublishedChecksComponent(assets=[_KEY], **attributes))


def _names(definitions: dg.Definitions) -> set[str]:
    return {key.name for checks in definitions.asset_checks or () for key in checks.check_keys}  # type: ignore[union-attr]


def test_both_checks_are_in_yaml() -> None:
    assert _names(_checks()) == {"published"}
    assert _names(_checks(freshness="2h", deadline_cron="0 9 * * *")) == {"published", "published_freshness"}
    assert _names(_checks(published=False, freshness="7 days")) == {"published_freshness"}


def test_freshness_is_that_of_the_function() -> None:
    (made,) = _checks(published=False, freshness="2h").asset_checks or ()
    (expected,) = lake_freshness_checks([_KEY], lower_bound_delta=timedelta(hours=2))
    assert [spec.metadata for spec in made.check_specs] == [spec.metadata for spec in expected.check_specs]  # type: ignore[union-attr]


@pytest.mark.parametrize("attributes", [{"deadline_cron": "0 9 * * *"}, {"published": False}])
def test_settings_without_effect_are_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no effect|no checks"):
        _checks(**attributes)


@pytest.mark.parametrize("attributes", [{"freshness": "soon"}, {"freshness": "2h", "deadline_cron": "never"}])
def test_wrong_times_are_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition):
        _checks(**attributes)


def test_the_tables_of_a_lake_are_external_assets(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    schema = pa.schema([("v", pa.int64())])
    with lake.session() as session:
        for path in ("shared/orders", "tables/own", "shared/deep/lines"):
            session.create_delta(path, schema)
        session.create_pool("shared/pool")
    component = LakeTablesComponent(root=str(tmp_path / "lake"), prefix="shared/", group_name="others")
    state = tmp_path / "state"
    component.write_state_to_path(state)
    definitions = component.build_defs_from_state(None, state)  # type: ignore[arg-type]
    specs = {spec.key.to_user_string(): spec for spec in definitions.assets or ()}  # type: ignore[union-attr]
    assert set(specs) == {"shared/orders", "shared/deep/lines"}
    assert specs["shared/orders"].metadata["lake/path"] == "shared/orders"
    assert specs["shared/orders"].group_name == "others"
    assert list(component.build_defs_from_state(None, None).assets or ()) == []  # type: ignore[arg-type]
