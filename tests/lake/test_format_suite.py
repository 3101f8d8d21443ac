"""The contract of formats, held by the one that comes with the lake and by two of others."""

from __future__ import annotations

import sys
from typing import ClassVar, Literal

import pytest

from lake_core.delta import DeltaTable
from lake_core.lake.session.write_session import WriteSession
from lake_core.testing import DatasetFormatSuite
from tests.lake.lakes import SCHEMA, TOY_FORMATS, ids, rows

sys.path.insert(0, str(TOY_FORMATS))
from toy_note import Note
from toy_register import Register

pytestmark = pytest.mark.usefixtures("toy_formats")


class TestDelta(DatasetFormatSuite):
    format = "delta"

    def create(self, session: WriteSession, path: str) -> DeltaTable:
        return session.create_delta(path, SCHEMA, managed=False)

    def write(self, dataset: DeltaTable, number: int) -> None:
        dataset.append(rows([number]))

    def contradict(self, dataset: DeltaTable, number: int) -> None:
        dataset.overwrite(rows([number]))

    def contents(self, dataset: DeltaTable) -> list[int]:
        return ids(dataset)

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("mode", ["before", "after"])
    def test_death_at_any_operation_leaves_all_or_nothing(self, mode: Literal["before", "after"]) -> None:
        super().test_death_at_any_operation_leaves_all_or_nothing(mode)


class TestNote(DatasetFormatSuite):
    format = "note"
    merges: ClassVar[bool] = False

    def create(self, session: WriteSession, path: str) -> Note:
        note: Note = session.create(path, "note", "first")
        return note

    def write(self, dataset: Note, number: int) -> None:
        dataset.write(f"draft {number}")

    def contents(self, dataset: Note) -> str:
        return dataset.text


class TestRegister(DatasetFormatSuite):
    format = "register"

    def write(self, dataset: Register, number: int) -> None:
        dataset.add(f"line {number}", b"attached")

    def contradict(self, dataset: Register, number: int) -> None:
        dataset.add("the same line", b"%d" % number)

    def contents(self, dataset: Register) -> list[str]:
        return sorted(dataset.lines())
