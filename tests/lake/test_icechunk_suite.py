"""The contract of formats, held by Icechunk repositories."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import zarr

from lake_core.icechunk import ConflictDetector, DatasetRepository, Repository
from lake_core.lake.session.write_session import WriteSession
from lake_core.testing import DatasetFormatSuite

CHUNK = 200
"""Values of a chunk: more bytes than a manifest takes in."""


class TestIcechunk(DatasetFormatSuite):
    format = "icechunk"

    def create(self, session: WriteSession, path: str) -> DatasetRepository:
        repository = session.create_icechunk(path)
        group = zarr.create_group(repository.store)
        group.create_array("values", shape=(10 * CHUNK,), chunks=(CHUNK,), dtype="i4", fill_value=-1, compressors=None)
        return repository

    def write(self, dataset: Repository, number: int) -> None:
        if isinstance(dataset, DatasetRepository):
            _set(dataset.store, number, number)
            return
        session = dataset.writable_session("main")
        _set(session.store, number, number)
        session.commit("by another client", rebase_with=ConflictDetector())

    def contradict(self, dataset: Repository, number: int) -> None:
        assert isinstance(dataset, DatasetRepository)
        _set(dataset.store, 9, number)

    def contents(self, dataset: Repository) -> list[int]:
        store = dataset.store if isinstance(dataset, DatasetRepository) else dataset.readonly_session("main").store
        values: Any = zarr.open_array(store, path="values", mode="r")[:]
        return list(map(int, values[::CHUNK]))

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("mode", ["before", "after"])
    def test_death_at_any_operation_leaves_all_or_nothing(self, mode: Literal["before", "after"]) -> None:
        super().test_death_at_any_operation_leaves_all_or_nothing(mode)


class TestIcechunk2(TestIcechunk):
    """Repositories of version 2 of the specification, whose pointer is one object."""

    def create(self, session: WriteSession, path: str) -> DatasetRepository:
        repository = session.create_icechunk(path, spec_version=2)
        group = zarr.create_group(repository.store)
        group.create_array("values", shape=(10 * CHUNK,), chunks=(CHUNK,), dtype="i4", fill_value=-1, compressors=None)
        return repository


def _set(store: Any, chunk: int, value: int) -> None:
    array = zarr.open_array(store, path="values", mode="r+")
    array[chunk * CHUNK : (chunk + 1) * CHUNK] = np.full(CHUNK, value, "i4")
