"""The version, which stands in one place."""

from __future__ import annotations

from importlib.metadata import version

from dagster_shared.libraries import DagsterLibraryRegistry

import lake_core
import lake_orch


def test_the_package_is_installed_as_this_version() -> None:
    assert version("lake-orch") == lake_core.__version__


def test_dagster_lists_the_library_with_its_version() -> None:
    assert lake_orch.LakeResource is not None  # what uses Dagster registers it
    assert DagsterLibraryRegistry.get()["lake-orch"] == lake_orch.__version__
