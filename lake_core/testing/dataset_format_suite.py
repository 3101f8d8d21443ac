"""The contract of a dataset format, as tests.

Subclass the suite in a test module, name the format, and define how its handle is written and read:

    class TestNotes(DatasetFormatSuite):
        format = "note"
        merges = False

        def create(self, session: WriteSession, path: str) -> Note:
            return session.create(path, "note", "first draft")

        def write(self, dataset: Note, number: int) -> None:
            dataset.write(f"draft {number}")

        def contents(self, dataset: Note) -> str:
            return dataset.text
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

import pytest

from lake_core.inspection import RowRequest
from lake_core.lake.errors import DatasetNotFound, NothingToApply
from lake_core.lake.lake import Lake
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing.dataset_format_case import PATH, DatasetFormatCase, without_lease
from lake_core.testing.fault_store import FaultStore, StoreDied
from lake_core.testing.manual_clock import ManualClock


class DatasetFormatSuite(DatasetFormatCase):
    """Tests that every dataset format must pass.

    Set `format`, override `write` and `contents`, and override the rest if its default does not fit.
    """

    # Sessions, and main as plain readers see it

    def test_the_format_is_registered_under_its_name(self) -> None:
        """Look the format up as a lake does."""
        assert self._format().format == self.format

    def test_a_session_reads_what_it_wrote(self, lake: Lake) -> None:
        """Read by a second handle of the session, before anything is published."""
        before = self._read(lake)
        session = lake.session()
        self.write(session.open(PATH), 1)
        assert self.contents(session.open(PATH)) != before

    def test_nobody_else_reads_what_is_not_published(self, lake: Lake) -> None:
        """Read main while the write is in a session only."""
        before = self._read(lake)
        session = lake.session()
        self.write(session.open(PATH), 1)
        assert self._read(lake) == before

    def test_a_publish_is_read_at_main(self, lake: Lake) -> None:
        """Try `apply` on a head that has not moved."""
        with lake.session() as session:
            self.write(session.open(PATH), 1)
            written = self.contents(session.open(PATH))
        assert self._read(lake) == written

    def test_a_publish_is_read_by_plain_readers(self, lake: Lake, store: ObjectStore) -> None:
        """Open the folder as clients outside the lake do."""
        self._write(lake, 1)
        assert self._read_checked_out(store) == self._read(lake)

    def test_a_person_can_look_at_a_state(self, lake: Lake) -> None:
        """Ask for what pages show: the definition, versions, partitions and arrays. None of it changes the dataset."""
        before = self._read(lake)
        view = lake.at().dataset(PATH)
        inspection = view.format.inspect(view)
        assert inspection.summary().kind
        assert len(inspection.versions(3)) <= 3
        inspection.partitions()
        assert bool(inspection.nodes()) <= inspection.has_nodes
        if inspection.has_rows:
            assert len(inspection.rows(RowRequest(2)).rows) <= 2
        assert view.format.is_tabular == (inspection.schema() is not None)
        assert self._read(lake) == before

    def test_an_abandoned_session_leaves_main_as_it_was(self, lake: Lake, store: ObjectStore) -> None:
        """Read at main and as a plain reader. Only objects that no state reaches may be left."""
        before = self._read(lake)
        session = lake.session()
        self.write(session.open(PATH), 1)
        session.abandon()
        assert [self._read(lake), self._read_checked_out(store)] == [before, before]

    def test_several_writes_of_a_session_publish_as_one_commit(self, lake: Lake) -> None:
        """Write through two handles: the commit before main has neither write."""
        before = self._read(lake)
        with lake.session() as session:
            self.write(session.open(PATH), 1)
            self.write(session.open(PATH), 2)
        assert self._read(lake, "main~1") == before

    def test_two_sessions_of_one_commit_merge_or_conflict(self, lake: Lake, store: ObjectStore) -> None:
        """Try `apply` on a head that moved: both writes are kept, or the second publish raises Conflict."""
        first, second = lake.session(), lake.session()
        self.write(first.open(PATH), 1)
        self.write(second.open(PATH), 2)
        first.publish()
        after_first = self._read(lake)
        if self.merges:
            second.publish()
            expected = self._written_in_turn(lake, 0, 1, 2)
        else:
            self._assert_conflicts(second.publish)
            expected = after_first
        assert [self._read(lake), self._read_checked_out(store)] == [expected, expected]

    def test_two_sessions_that_contradict_conflict(self, lake: Lake) -> None:
        """Try `apply` with two calls of `contradict`: the second publish raises Conflict."""
        first, second = lake.session(), lake.session()
        self.contradict(first.open(PATH), 1)
        self.contradict(second.open(PATH), 2)
        first.publish()
        after_first = self._read(lake)
        self._assert_conflicts(second.publish)
        assert self._read(lake) == after_first

    # Branches

    def test_a_write_on_a_branch_changes_no_checked_out_file(self, lake: Lake, store: ObjectStore) -> None:
        """Write on a branch: the checked-out log and pointers stay main's."""
        before = self._read(lake)
        lake.create_branch("dev")
        self._write(lake, 1, "dev")
        assert [self._read_checked_out(store), self._read(lake)] == [before, before]

    def test_a_branch_merges_into_one_that_did_not_move(self, lake: Lake, store: ObjectStore) -> None:
        """Try `apply` with all changes of a branch."""
        lake.create_branch("dev")
        self._write(lake, 1, "dev")
        lake.merge("dev")
        expected = self._read(lake, "dev")
        assert [self._read(lake), self._read_checked_out(store)] == [expected, expected]

    def test_branches_that_both_moved_merge_or_conflict(self, lake: Lake, store: ObjectStore) -> None:
        """Try `apply` with both branches' changes: both are kept, or the merge raises Conflict."""
        lake.create_branch("dev")
        self._write(lake, 1)
        self._write(lake, 2, "dev")
        if self.merges:
            lake.merge("dev")
            expected = self._written_in_turn(lake, 0, 1, 2)
        else:
            expected = self._read(lake)
            self._assert_conflicts(lambda: lake.merge("dev"))
        assert [self._read(lake), self._read_checked_out(store)] == [expected, expected]

    def test_branches_that_contradict_conflict(self, lake: Lake) -> None:
        """Try `apply` with a call of `contradict` on each branch: the merge raises Conflict."""
        lake.create_branch("dev")
        for number, branch in enumerate(("main", "dev")):
            with lake.session(branch) as session:
                self.contradict(session.open(PATH), number + 1)
        self._assert_conflicts(lambda: lake.merge("dev"))

    def test_a_merge_is_not_done_twice(self, lake: Lake) -> None:
        """Merge a branch without new commits: NothingToApply."""
        lake.create_branch("dev")
        self._write(lake, 1, "dev")
        lake.merge("dev")
        with pytest.raises(NothingToApply):
            lake.merge("dev")

    def test_a_preview_of_a_merge_writes_nothing(self, lake: Lake, store: ObjectStore) -> None:
        """Compare the store's objects before and after: not even UNIQUE ones are added."""
        lake.create_branch("dev")
        self._write(lake, 1, "dev")
        objects = self._objects(store)
        lake.preview_merge("dev")
        assert self._objects(store) == objects

    def test_a_cherry_picked_commit_is_read_on_its_branch(self, lake: Lake) -> None:
        """Try `apply` with the change of a single commit."""
        lake.create_branch("dev")
        self._write(lake, 1, "dev")
        lake.cherry_pick("dev", onto="main")
        assert self._read(lake) == self._read(lake, "dev")

    # History

    def test_an_older_commit_is_read_as_it_was(self, lake: Lake) -> None:
        """Read a state that is older than the checked-out log."""
        before = self._read(lake)
        self._write(lake, 1)
        assert self._read(lake, "main~1") == before

    def test_a_reverted_commit_is_taken_back(self, lake: Lake, store: ObjectStore) -> None:
        """Try `apply` backward, from a commit to the one before it."""
        before = self._read(lake)
        self._write(lake, 1)
        lake.revert("main")
        assert [self._read(lake), self._read_checked_out(store)] == [before, before]

    def test_a_reverted_commit_can_be_made_again(self, lake: Lake) -> None:
        """Write the same again: the reverted write does not prevent it."""
        self._write(lake, 1)
        written = self._read(lake)
        lake.revert("main")
        self._write(lake, 1)
        assert self._read(lake) == written

    def test_what_differs_between_two_commits_names_the_dataset(self, lake: Lake) -> None:
        """Try `compare`."""
        self._write(lake, 1)
        assert [each.path for each in lake.compare("main~1", "main").datasets] == [PATH]

    # Drop and recreate

    def test_a_dropped_dataset_is_not_found(self, lake: Lake) -> None:
        """Open it at the commit that dropped it."""
        self._drop(lake)
        with pytest.raises(DatasetNotFound):
            lake.at().open(PATH)

    def test_a_dropped_dataset_is_read_at_older_commits(self, lake: Lake) -> None:
        """Read the commit before the drop: its UNIQUE objects are kept."""
        before = self._read(lake)
        self._drop(lake)
        assert self._read(lake, "main~1") == before

    def test_a_dataset_that_is_created_again_has_nothing_of_the_dropped_one(
        self, lake: Lake, store: ObjectStore
    ) -> None:
        """Try `create` where a dataset was dropped."""
        self._drop(lake)
        with lake.session() as session:
            self.write(self.create(session, PATH), 7)
        expected = self._written_in_turn(lake, 7)
        assert [self._read(lake), self._read_checked_out(store)] == [expected, expected]

    # Garbage and verification

    def test_what_a_state_reaches_is_in_the_folder(self, lake: Lake, store: ObjectStore) -> None:
        """Compare `reachable` with the UNIQUE objects in the folder."""
        self._write(lake, 1)
        reachable = set(self._format().reachable(lake.at().dataset(PATH), None))
        assert reachable
        assert reachable <= set(self._unique(store))

    def test_collection_keeps_what_main_and_branches_reach(
        self, lake: Lake, store: ObjectStore, clock: ManualClock
    ) -> None:
        """Collect after the retention of history: what `reachable` lists stays."""
        lake.create_branch("dev")
        self._write(lake, 1)
        self._write(lake, 2, "dev")
        before = [self._read(lake), self._read(lake, "dev")]
        self.pass_days(store, clock, 40)
        lake.maintenance.gc()
        assert [self._read(lake), self._read(lake, "dev")] == before

    def test_collection_keeps_recent_history(self, lake: Lake, store: ObjectStore, clock: ManualClock) -> None:
        """Collect within the retention of history: what only an older commit reaches stays."""
        before = self._read(lake)
        with lake.session() as session:
            self.contradict(session.open(PATH), 1)
        self.pass_days(store, clock, 20)
        lake.maintenance.gc()
        assert self._read(lake, "main~1") == before

    def test_collection_deletes_what_an_abandoned_session_wrote(
        self, lake: Lake, store: ObjectStore, clock: ManualClock
    ) -> None:
        """Try `collectable` with UNIQUE objects that nothing reaches."""
        before = self._unique(store)
        session = lake.session()
        self.write(session.open(PATH), 1)
        session.abandon()
        assert self._unique(store) != before, "`write` wrote no unique object: nothing is tried"
        self.pass_days(store, clock, 40)
        lake.maintenance.gc()
        assert self._unique(store) == before

    def test_a_lake_verifies_after_writes_merges_and_collection(
        self, lake: Lake, store: ObjectStore, clock: ManualClock
    ) -> None:
        """Verify after a merge, a revert and a collection: no problem is found."""
        lake.create_branch("dev")
        self._write(lake, 1, "dev")
        lake.merge("dev")
        lake.revert("main")
        self.pass_days(store, clock, 40)
        lake.maintenance.gc()
        assert lake.maintenance.verify() == []

    def test_verification_names_a_lost_object(self, lake: Lake, store: ObjectStore) -> None:
        """Delete an object that `reachable` lists."""
        lost = f"{PATH}/{min(self._format().reachable(lake.at().dataset(PATH), None))}"
        store.delete([lost])
        assert ("missing", lost) in [(problem.kind, problem.key) for problem in lake.maintenance.verify()]

    # The checked-out log and pointers

    def test_a_checkout_that_is_behind_is_noticed(self, lake: Lake, store: ObjectStore) -> None:
        """Verify a folder whose publisher died before the checkout."""
        self._write_behind(lake, store)
        assert [problem.kind for problem in lake.maintenance.verify()] == ["not checked out"]

    def test_a_checkout_brings_the_log_and_pointers_up_to_date(self, lake: Lake, store: ObjectStore) -> None:
        """Try `log_keys` and `pointer_keys`: a checkout copies what they list."""
        published = self._write_behind(lake, store)
        lake.maintenance.checkout()
        assert self._fixed(store) == published

    # Other writers

    def test_what_another_writer_wrote_is_adopted(self, lake: Lake, store: ObjectStore) -> None:
        """Write to the folder, past the lake, and adopt it into main. For formats with `adopts`."""
        if not self.adopts:
            return
        self.write(self._checked_out(store), 1)
        lake.maintenance.adopt(PATH)
        assert self._read(lake) == self._read_checked_out(store) == self._written_in_turn(lake, 0, 1)

    def test_what_another_writer_wrote_is_published_upon_or_conflicts(self, lake: Lake, store: ObjectStore) -> None:
        """Publish onto a write to the folder: both are kept, or a Conflict is raised. For formats with `adopts`."""
        if not self.adopts:
            return
        session = lake.session()
        self.write(session.open(PATH), 1)
        self.write(self._checked_out(store), 2)
        if self.merges:
            session.publish()
            assert self._read_checked_out(store) == self._written_in_turn(lake, 0, 1, 2)
        else:
            self._assert_conflicts(session.publish)

    def test_a_released_dataset_stays_in_its_folder(self, lake: Lake, store: ObjectStore) -> None:
        """Try `release`: other clients read in the folder what main had."""
        before = self._read(lake)
        lake.maintenance.release(PATH)
        assert self._read_checked_out(store) == before

    def test_a_dataset_in_the_folder_is_brought_in(self, lake: Lake) -> None:
        """Release the dataset, and import it again."""
        before = self._read(lake)
        lake.maintenance.release(PATH)
        with lake.session() as session:
            session.import_dataset(PATH, self.format)
        assert self._read(lake) == before

    # Crashes

    @pytest.mark.parametrize("mode", ["before", "after"])
    def test_death_at_any_operation_leaves_all_or_nothing(self, mode: Literal["before", "after"]) -> None:
        """Let the store die at each operation of a publish, then write again.

        The first write is published or not, the second one is, and the lake verifies.
        """
        clock = ManualClock()
        template = self._new_lake(MemoryStore(clock=clock), clock)
        before, first, second, both = (
            self._written_in_turn(template, 0, *numbers) for numbers in ((), (1,), (2,), (1, 2))
        )
        writes = -1
        for operation in range(1, self.most_operations):
            store = MemoryStore(clock=clock)
            self._new_lake(store, clock)
            dying = FaultStore(store, operation, mode)
            with suppress(StoreDied):
                self._write(without_lease(Lake.open(dying, clock=clock)), 1)
            if not dying.fired:
                assert operation > 5
                return
            if dying.writes == writes:
                continue  # the operation was a read, so the store is as after the last crash
            writes = dying.writes
            lake = without_lease(Lake.open(store, clock=clock))
            survived = self._read(lake)
            assert survived in (before, first), f"operation {operation}"
            self._write(lake, 2)
            assert self._read_checked_out(store) == (second if survived == before else both), f"operation {operation}"
            assert lake.maintenance.verify() == [], f"operation {operation}"
        raise AssertionError(f"a publish takes more than {self.most_operations} operations")
