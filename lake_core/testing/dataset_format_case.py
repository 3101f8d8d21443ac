"""The base of the tests of a dataset format: the hooks to override, a lake, and its reads and writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from lake_core.dataset import DatasetFormat, KeyClass, dataset_format
from lake_core.lake.errors import Conflict
from lake_core.lake.lake import Lake
from lake_core.lake.refs.lease import LeaseConfig
from lake_core.store import FolderStore, MemoryStore, ObjectStore
from lake_core.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.lake.session.write_session import WriteSession

PATH = "folder/dataset"
"""Where the dataset of the fixture `lake` is."""
_OTHER = "folder/other"


class DatasetFormatCase:
    """A dataset format under test.

    Set `format`, override `write` and `contents`, and override the rest if its default does not fit.
    """

    format: ClassVar[str]
    """The name under which the format is registered."""
    merges: ClassVar[bool] = True
    """Whether two sides that each called `write` merge. If they do not, they must conflict."""
    adopts: ClassVar[bool] = True
    """Whether other clients may write the datasets of `create` past the lake."""
    most_operations: ClassVar[int] = 300
    """The number of store operations of a publish. The crash tests fail at each of them."""

    # Hooks to override

    def create(self, session: WriteSession, path: str) -> Any:
        """Create a dataset in a session and return its handle."""
        return session.create(path, self.format)

    def write(self, dataset: Any, number: int) -> None:
        """Add data to a dataset through its handle.

        Different numbers add different data. At least one UNIQUE object is written.
        """
        raise NotImplementedError("override `write`")

    def contradict(self, dataset: Any, number: int) -> None:
        """Change a dataset so that it conflicts with the change of any other number.

        The default calls `write`, for formats that never merge.
        """
        if self.merges:
            raise NotImplementedError("override `contradict`, or set `merges = False`")
        self.write(dataset, number)

    def contents(self, dataset: Any) -> Any:
        """Return everything that a reader sees, as a value that `==` compares.

        It must not depend on the order of the writes.
        """
        raise NotImplementedError("override `contents`")

    def pass_days(self, store: ObjectStore, clock: ManualClock, days: float) -> None:
        """Advance the lake's clock and the age of its objects by some days. Override it together with `store`."""
        clock.pass_days(days)

    # Fixtures

    @pytest.fixture
    def clock(self) -> ManualClock:
        """Return the lake's clock."""
        return ManualClock()

    @pytest.fixture
    def store(self, clock: ManualClock) -> ObjectStore:
        """Return a new, empty store for the lake."""
        return MemoryStore(clock=clock)

    @pytest.fixture
    def lake(self, store: ObjectStore, clock: ManualClock) -> Lake:
        """Return a lake with one dataset at `PATH`, which was written once, in one commit."""
        return self._new_lake(store, clock)

    # Helpers

    def _format(self) -> DatasetFormat:
        return dataset_format(self.format)

    def _new_lake(self, store: ObjectStore, clock: ManualClock) -> Lake:
        lake = Lake.create(store, clock=clock)
        with lake.session() as session:
            self.write(self.create(session, PATH), 0)
        return lake

    def _read(self, lake: Lake, ref: str = "main") -> Any:
        return self.contents(lake.at(ref).open(PATH))

    def _write(self, lake: Lake, number: int, branch: str = "main") -> None:
        with lake.session(branch) as session:
            self.write(session.open(PATH), number)

    def _drop(self, lake: Lake) -> None:
        with lake.session() as session:
            session.drop(PATH)

    def _checked_out(self, store: ObjectStore) -> Any:
        return self._format().open(FolderStore(store, PATH), clock=None)

    def _read_checked_out(self, store: ObjectStore) -> Any:
        return self.contents(self._checked_out(store))

    def _written_in_turn(self, lake: Lake, *numbers: int) -> Any:
        """Return the contents of a new dataset to which these numbers were written, one after another.

        The dataset is not published.
        """
        session = lake.session()
        dataset = self.create(session, _OTHER)
        for number in numbers:
            self.write(dataset, number)
        contents = self.contents(session.open(_OTHER))
        session.abandon()
        return contents

    def _assert_conflicts(self, publish: Callable[[], object]) -> None:
        with pytest.raises(Conflict) as caught:
            publish()
        assert list(caught.value.kinds) == [PATH]
        assert PATH in str(caught.value)

    def _objects(self, store: ObjectStore) -> list[str]:
        return [meta.key for meta in store.list() if not meta.key.startswith("_lake/refs")]

    def _unique(self, store: ObjectStore) -> list[str]:
        return self._keys(store, KeyClass.UNIQUE)

    def _fixed(self, store: ObjectStore) -> dict[str, bytes]:
        folder = FolderStore(store, PATH)
        return {key: bytes(folder.get(key)) for key in self._keys(store, KeyClass.LOG, KeyClass.POINTER)}

    def _keys(self, store: ObjectStore, *classes: KeyClass) -> list[str]:
        """List the keys of these classes in the dataset's folder."""
        format = self._format()
        return [meta.key for meta in FolderStore(store, PATH).list() if format.key_class(meta.key) in classes]

    def _write_behind(self, lake: Lake, store: ObjectStore) -> dict[str, bytes]:
        """Publish a write, then restore the folder as if the publisher had died before the checkout.

        Return the files that the checkout had written.
        """
        before = self._fixed(store)
        self._write(lake, 1)
        published = self._fixed(store)
        folder = FolderStore(store, PATH)
        folder.delete([key for key in published if key not in before])
        for key, data in before.items():
            folder.put(key, data)
        return published


def without_lease(lake: Lake) -> Lake:
    """Make the publishers of a lake not wait for one that died."""
    return Lake(replace(lake.repository, lease_config=LeaseConfig(stale=0.0)))
