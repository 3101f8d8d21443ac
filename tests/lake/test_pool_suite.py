"""The contract of formats, held by pools."""

from __future__ import annotations

from typing import Literal

import pytest

from lake_core.lake.session.write_session import WriteSession
from lake_core.pool import Pool
from lake_core.pool.key_range import KeyRange
from lake_core.testing import DatasetFormatSuite


class TestPool(DatasetFormatSuite):
    format = "pool"

    def create(self, session: WriteSession, path: str) -> Pool:
        return session.create_pool(path, key="k", order="asc")

    def write(self, dataset: Pool, number: int) -> None:
        dataset.load([{"k": number, "s": f"row {number}"}])

    def contradict(self, dataset: Pool, number: int) -> None:
        dataset.replace(dataset.write_objects([{"k": number}]), [KeyRange()])

    def contents(self, dataset: Pool) -> list[str]:
        return dataset.scan().to_zson().splitlines()

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("mode", ["before", "after"])
    def test_death_at_any_operation_leaves_all_or_nothing(self, mode: Literal["before", "after"]) -> None:
        super().test_death_at_any_operation_leaves_all_or_nothing(mode)
