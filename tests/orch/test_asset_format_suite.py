"""The contract of formats of assets, held by those of this package and by one of another."""

from __future__ import annotations

import collections.abc
import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr

from lake_orch.assets.arrays.asset_format import ArrayFormat
from lake_orch.assets.files.asset_format import FileFormat
from lake_orch.assets.pools.asset_format import PoolFormat
from lake_orch.assets.tables.asset_format import TableFormat
from lake_orch.assets.testing import AssetFormatSuite
from tests.lake.lakes import TOY_FORMATS

sys.path.insert(0, str(TOY_FORMATS))
from toy_note_assets import NoteAssets

pytestmark = pytest.mark.usefixtures("toy_formats")


class TestTables(AssetFormatSuite):
    asset_format = TableFormat()
    annotation = pa.Table
    first, second = pa.table({"id": [1, 2]}), pa.table({"id": [3]})

    def contents(self, value: pa.Table) -> list[dict[str, Any]]:
        return sorted(value.to_pylist(), key=str)


class TestStreams(TestTables):
    first = staticmethod(lambda: pa.table({"id": [1, 2]}).to_reader())
    second = staticmethod(lambda: pa.table({"id": [3]}).to_reader())


class TestArrays(AssetFormatSuite):
    asset_format = ArrayFormat()
    annotation = xr.Dataset
    first, second = xr.Dataset({"v": ("x", [1.0, 2.0])}), xr.Dataset({"v": ("x", [3.0, 4.0])})

    def contents(self, value: xr.Dataset) -> list[float]:
        return [float(number) for number in np.asarray(value["v"])]


class TestPools(AssetFormatSuite):
    asset_format = PoolFormat()
    annotation = collections.abc.Iterator
    metadata: ClassVar[Mapping[str, Any]] = {"lake/key": "id"}
    first, second = [{"id": 1}, {"id": "two"}], [{"id": 3}]

    def contents(self, value: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(value, key=str)


class TestFiles(AssetFormatSuite):
    asset_format = FileFormat()
    annotation = dict
    first, second = {"rows": 1}, {"rows": 2}


class TestNotes(AssetFormatSuite):
    asset_format = NoteAssets()
    annotation = str
    first, second = "a text", "another"
