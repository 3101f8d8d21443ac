"""The contract of an `AssetFormat`, as tests. Needs pytest.

Subclass the suite in a test module, and give two values that differ:

    class TestNotes(AssetFormatSuite):
        asset_format = NoteAssets()
        first, second = "a text", "another"
        annotation = str
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lake_core.dataset import dataset_format
from lake_core.errors import LakeError
from lake_core.lake.lake import Lake
from lake_core.store import open_store
from lake_core.workspace import Assignment, Workspace, open_workspace
from lake_orch.assets.asset_format import AssetFormat, AssetInput, AssetOutput, Written, asset_format_class
from lake_orch.assets.description import ColumnLineage, ColumnSchema, Markdown, Records
from lake_orch.errors import InvalidDefinition, LakeOrchError

PATH = "tables/value"
_IN_LAKES = ("branch", "session")
"""The targets that show no write before it is finished. A folder shows each at once."""
_DESCRIPTIONS = (Markdown, Records, ColumnSchema, ColumnLineage)


class Interrupted(Exception):
    """A write that is given up before it takes effect."""


class AssetFormatSuite:
    """Tests that every format of assets must pass, in a folder, on a branch and in a session of a lake.

    Set `asset_format`, `first`, `second` and `annotation`, and override the rest if its default does not fit.
    """

    asset_format: ClassVar[AssetFormat]
    annotation: ClassVar[object]
    """The type of a parameter that loads the values."""
    first: ClassVar[Any]
    second: ClassVar[Any]
    """Another value, which replaces the first one. A callable is called for each use, for values that are used once."""
    metadata: ClassVar[Mapping[str, Any]] = {}
    """The definition metadata of the asset."""

    def contents(self, value: Any) -> Any:
        """Return a loaded value as something that can be compared."""
        return value

    @pytest.fixture(params=["folder", "branch", "session"])
    def target(self, request: pytest.FixtureRequest, tmp_path: Path) -> Target:
        """Return where values are written."""
        return Target(str(tmp_path), request.param)

    def test_it_is_registered_under_its_name(self) -> None:
        """Look the format up as an IO manager does."""
        assert asset_format_class(self.asset_format.format) is type(self.asset_format)

    def test_it_accepts_its_values(self) -> None:
        """Ask as an IO manager does that chooses by the value."""
        assert self.asset_format.accepts(_fresh(self.first))

    def test_it_loads_its_type(self) -> None:
        """Ask as an IO manager does that chooses by the annotation."""
        assert self.asset_format.loads(self.annotation)

    def test_a_written_value_is_loaded(self, target: Target) -> None:
        """Write a value, and load it."""
        self._write(target, self.first)
        assert self.contents(self._load(target)) is not None

    def test_a_later_value_takes_the_place_of_an_earlier_one(self, target: Target) -> None:
        """Write two values by two tasks, and load what is there."""
        self._write(target, self.first, task="1")
        before = self.contents(self._load(target))
        self._write(target, self.second, task="2")
        assert self.contents(self._load(target)) != before

    def test_an_attempt_that_is_made_again_changes_nothing(self, target: Target) -> None:
        """Write one value twice by one task, and compare what is loaded."""
        self._write(target, self.first)
        before = self.contents(self._load(target))
        self._write(target, self.first, attempt=1)
        assert self.contents(self._load(target)) == before

    @pytest.mark.parametrize("target", ["folder", "branch"], indirect=True)
    def test_an_attempt_that_is_made_again_has_the_same_data_version(self, target: Target) -> None:
        """Write one value twice by one task. Otherwise, downstream assets would become stale.

        In a session, the later attempt replaces what the earlier one has staged.
        """
        assert self._write(target, self.first).data_version == self._write(target, self.first, attempt=1).data_version

    def test_another_value_has_another_data_version(self, target: Target) -> None:
        """Write two values by two tasks."""
        first, second = (
            self._write(target, value, task=task) for value, task in ((self.first, "1"), (self.second, "2"))
        )
        assert first.data_version != second.data_version

    @pytest.mark.parametrize("target", _IN_LAKES, indirect=True)
    def test_nobody_sees_what_is_not_finished(self, target: Target) -> None:
        """Load while a write to a lake is under way."""
        self._write(target, self.first, task="1")
        before = self.contents(self._load(target))
        with target.workspace("2", 0) as workspace:
            self.asset_format.write(_fresh(self.second), self._output()).to(workspace)
            assert self.contents(self._load(target)) == before

    @pytest.mark.parametrize("target", _IN_LAKES, indirect=True)
    def test_a_write_that_is_given_up_leaves_nothing(self, target: Target) -> None:
        """Fail after a write to a lake, and load."""
        self._write(target, self.first, task="1")
        before = self.contents(self._load(target))
        with pytest.raises(Interrupted), target.workspace("2", 0) as workspace:
            self.asset_format.write(_fresh(self.second), self._output()).to(workspace)
            raise Interrupted
        assert self.contents(self._load(target)) == before

    def test_metadata_is_what_orchestrators_can_show(self, target: Target) -> None:
        """Look at the types of the values."""
        written = self._write(target, self.first)
        kinds = (str, int, float, bool, *_DESCRIPTIONS)
        assert {name: value for name, value in written.metadata.items() if not isinstance(value, kinds)} == {}

    def test_what_is_not_there_is_an_error_of_ours(self, target: Target) -> None:
        """Load before anything is written."""
        with pytest.raises((LakeError, LakeOrchError)):
            self._load(target)

    def test_a_setting_without_effect_is_refused(self) -> None:
        """Check metadata that nobody reads."""
        with pytest.raises(InvalidDefinition, match="lake/no_such_setting"):
            self.asset_format.names.check({**self.metadata, "lake/no_such_setting": 1}, "output", "asset x")

    def _output(self) -> AssetOutput:
        return AssetOutput(producer="asset value", asset_key=["value"], metadata=self.metadata)

    def _write(self, target: Target, value: Any, *, task: str = "task", attempt: int = 0) -> Written:
        write = self.asset_format.write(_fresh(value), self._output())
        with target.workspace(task, attempt) as workspace:
            result = write.to(workspace)
        return write.written(result, workspace)

    def _load(self, target: Target) -> Any:
        request = AssetInput(
            subject="input 'value'",
            path=PATH,
            settings={},
            annotation=self.annotation,
            asset_key=["value"],
            producer="value",
            metadata=self.metadata,
            output=self._output(),
        )
        read = self.asset_format.read(request)
        dataset = target.dataset(self.asset_format, read.absent)
        read.start(dataset, None)
        return read.load(dataset, None, self.annotation)


class Target:
    """A folder, the branch main of a lake, or a session of a lake."""

    def __init__(self, root: str, kind: str) -> None:
        self.root, self.kind = root, kind
        self._lake = None if kind == "folder" else Lake.create(root)
        self._session = self._lake.open_session() if self._lake is not None and kind == "session" else None

    def workspace(self, task: str, attempt: int) -> Workspace:
        """Open the workspace of an attempt at a task."""
        session = None if self._session is None else self._session.id
        assignment = Assignment(
            self.root,
            task,
            None if self._lake is None else "main",
            session,
            epoch=1 if self._session is None else self._session.epoch,
            attempt=attempt,
            private_session=f"o-{task}",
            is_retry=attempt > 0,
        )
        return open_workspace(assignment, None, self._open)

    def dataset(self, format: AssetFormat, absent: Callable[[str], LakeError]) -> Any:
        """Return the dataset, or the store of files, as readers see it."""
        state = None if self._lake is None else self._lake.at("main" if self._session is None else self._session.id)
        if not format.is_dataset:
            return open_store(self.root) if state is None else state
        if state is not None:
            if PATH not in state.datasets():
                raise absent(f"nothing at {PATH}")
            return state.open(PATH, format.format)
        dataset = dataset_format(format.format).find(open_store(f"{self.root}/{PATH}"), clock=None)
        if dataset is None:
            raise absent(f"nothing at {PATH}")
        return dataset

    def _open(self) -> Lake:
        assert self._lake is not None
        return self._lake


def _fresh(value: Any) -> Any:
    return value() if callable(value) else value
