"""The page of settings has those that the code has."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from lake_orch import LakeIOManager
from lake_orch.assets.asset_format import FORMAT
from lake_orch.assets.metadata_names import MetadataNames
from lake_orch.io_managers.asset import AssetIOManager
from tests.docs.settings_page import (
    BEGIN,
    END,
    MANAGERS,
    MODELS,
    OF_INPUT,
    OF_OUTPUT,
    PAGE,
    metadata_of,
    sections,
    settings_of,
)

OF_ONE_FORMAT = [manager for manager in MANAGERS if manager is not LakeIOManager]


def described(manager: type[AssetIOManager], section: str) -> set[str]:
    return {name for names in metadata_of(manager, section) for name in names.split(", ")}


def names_of(manager: type[AssetIOManager]) -> MetadataNames:
    return manager.format_class({}).names


def test_the_page_has_the_settings_of_the_code() -> None:
    written = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert written.strip() == sections().strip(), "run `python -m tests.docs.settings_page`"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_each_setting_says_what_it_is(model: type[BaseModel]) -> None:
    assert settings_of(model)
    assert [name for name, field in settings_of(model).items() if not field.description] == []


@pytest.mark.parametrize("manager", OF_ONE_FORMAT, ids=lambda manager: manager.__name__)
def test_each_metadata_of_an_output_is_described(manager: type[AssetIOManager]) -> None:
    names = {name for name in described(manager, OF_OUTPUT) if name.startswith("lake/")}
    assert names == set(names_of(manager).output) - {FORMAT}, "see the docstring of the IO manager"


@pytest.mark.parametrize("manager", OF_ONE_FORMAT, ids=lambda manager: manager.__name__)
def test_each_metadata_of_an_input_is_described(manager: type[AssetIOManager]) -> None:
    names = names_of(manager)
    assert described(manager, OF_INPUT) == {*names.without_prefix, *names.input}, "see the docstring of the IO manager"


def test_the_manager_of_all_formats_describes_how_to_choose_one() -> None:
    assert described(LakeIOManager, OF_OUTPUT) == {FORMAT}
