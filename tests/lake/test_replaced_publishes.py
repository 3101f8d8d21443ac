"""A later generation of a session replaces what tasks had published with an earlier one, and that alone."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from lake_core import Lake
from lake_core.journal import Delete
from lake_core.lake.errors import BatchesGone, Conflict, StaleAttempt
from lake_core.lake.publish.published import Published
from lake_core.lake.session.shared_session import SharedSession
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.id_datasets import Array, Pool, Table

Dataset = Table | Pool | Array


@pytest.fixture(params=[Table, Pool, Array], ids=["table", "pool", "array"])
def dataset(request: pytest.FixtureRequest) -> Dataset:
    dataset: Dataset = request.param()
    return dataset


def opened(lake: Lake) -> SharedSession:
    return lake.open_session(id="run", renew=True, expires_in=timedelta(days=7))


def write(session: SharedSession, dataset: Dataset, task: str, *ids: int, attempt: int = 1) -> None:
    with session.join(task=task, attempt=attempt) as writer:
        if "data" not in writer.datasets():
            dataset.create(writer)
        dataset.add(writer, *ids, txn=(task, 1))
        writer.put(f"files/{task}", str(ids).encode())


def published(lake: Lake, dataset: Dataset) -> Published:
    """Publish rows of the tasks `a` and `b`, by a first generation."""
    session = opened(lake)
    write(session, dataset, "a", 1)
    write(session, dataset, "b", 2)
    return session.publish()


@pytest.fixture
def there(empty: Lake, dataset: Dataset) -> Lake:
    """A lake in which the dataset exists."""
    with empty.session() as session:
        dataset.create(session)
        dataset.add(session, 8)
    return empty


def test_what_a_task_published_is_replaced_once(there: Lake, dataset: Dataset) -> None:
    first = published(there, dataset)
    session = opened(there)
    assert session.replace_published(first.commit, ["a", "nobody"]) == ["a"]
    assert session.replace_published(first.commit, ["a"]) == [], "a repeated call does nothing"
    write(session, dataset, "a", 3)
    write(session, dataset, "a", 4, attempt=2)
    assert dataset.ids(there) == [1, 2, 8], "readers see the first until the publish"
    session.publish()
    assert dataset.ids(there) == [2, 4, 8]
    assert there.at().get("files/a") == b"(4,)"


@pytest.fixture
def of_table(empty: Lake) -> Lake:
    """A lake in which there is a table."""
    with empty.session() as session:
        Table().create(session)
    return empty


def test_what_is_not_written_anew_is_gone(there: Lake, dataset: Dataset) -> None:
    first = published(there, dataset)
    session = opened(there)
    session.replace_published(first.commit, ["b"])
    session.publish()
    assert dataset.ids(there) == [1, 8]
    assert [meta.key for meta in there.at().list("files/")] == ["files/a"]


def test_a_dataset_that_the_tasks_created_and_others_wrote_to_stays(empty: Lake, dataset: Dataset) -> None:
    first = published(empty, dataset)
    record = empty.at().datasets()["data"]
    with empty.session() as other:
        dataset.add(other, 7)
    session = opened(empty)
    session.replace_published(first.commit, ["a", "b"])
    assert dataset.ids(empty, session.id) == [7]
    write(session, dataset, "a", 3)
    session.publish()
    assert dataset.ids(empty) == [3, 7]
    assert empty.at().datasets()["data"].id == record.id


@pytest.mark.parametrize("tasks", [["a"], ["b"], ["a", "b"]], ids="+".join)
@pytest.mark.parametrize("dataset", [Table, Pool], indirect=True)
def test_what_was_published_into_a_dataset_that_another_session_created_as_well_is_replaced(
    empty: Lake, dataset: Dataset, tasks: list[str]
) -> None:
    session = opened(empty)
    with empty.session() as other:
        write(session, dataset, "a", 1)
        write(session, dataset, "b", 2)
        dataset.create(other)
        dataset.add(other, 8)
    first = session.publish()
    assert dataset.ids(empty) == [1, 2, 8]
    again = opened(empty)
    assert again.replace_published(first.commit, tasks) == tasks
    for task in tasks:
        write(again, dataset, task, 3 if task == "a" else 4)
    again.publish()
    assert dataset.ids(empty) == sorted([8, 3 if "a" in tasks else 1, 4 if "b" in tasks else 2])


@pytest.mark.parametrize("dataset", [Table, Pool], indirect=True)
def test_compactions_since_then_give_way(there: Lake, dataset: Table | Pool) -> None:
    first = published(there, dataset)
    with there.session() as other:
        dataset.add(other, 7)
    with there.session() as other:
        dataset.compact(other)
    session = opened(there)
    session.replace_published(first.commit, ["a"])
    write(session, dataset, "a", 3)
    session.publish()
    assert dataset.ids(there) == [2, 3, 7, 8]


def test_what_others_rewrote_is_refused(of_table: Lake) -> None:
    table = Table()
    first = published(of_table, table)
    with of_table.session() as other:
        table.replace(other, 5)
    session = opened(of_table)
    with pytest.raises(Conflict, match="'a' published"):
        session.replace_published(first.commit, ["a"])
    assert table.ids(of_table, session.id) == [5], "nothing of the session has changed"


def test_what_was_reverted_since_is_gone_already(there: Lake, dataset: Dataset) -> None:
    first = published(there, dataset)
    there.revert(first.commit)
    session = opened(there)
    assert session.replace_published(first.commit, ["a"]) == []
    write(session, dataset, "a", 3)
    session.publish()
    assert dataset.ids(there) == [3, 8]


def test_a_third_generation_knows_what_the_second_replaced(there: Lake, dataset: Dataset) -> None:
    first = published(there, dataset)
    session = opened(there)
    session.replace_published(first.commit, ["a"])
    write(session, dataset, "a", 3)
    second = session.publish()
    tasks = {
        commit: sorted({batch.task or "" for batch in batches})
        for commit, batches in there.published_batches("run").items()
    }
    assert tasks == {first.commit: ["b"], second.commit: ["a"]}
    third = opened(there)
    for commit, names in tasks.items():
        assert third.replace_published(commit, names) == names
    third.publish()
    assert dataset.ids(there) == [8]


def test_it_needs_a_session_that_is_renewed(of_table: Lake) -> None:
    table = Table()
    session = of_table.open_session(id="run")
    write(session, table, "a", 1)
    first = session.publish()
    with pytest.raises(BatchesGone):
        opened(of_table).replace_published(first.commit, ["a"])


def test_a_collection_keeps_what_can_be_replaced_for_two_weeks(
    there: Lake, dataset: Dataset, time: ManualClock, store: MemoryStore
) -> None:
    first = published(there, dataset)
    with there.session() as other:
        dataset.add(other, 7)
    time.pass_days(15)
    there.maintenance.gc()
    session = opened(there)
    session.replace_published(first.commit, ["a"])
    write(session, dataset, "a", 3)
    session.publish()
    assert dataset.ids(there) == [2, 3, 7, 8]


def test_after_that_it_says_so(of_table: Lake, time: ManualClock) -> None:
    first = published(of_table, Table())
    time.pass_days(17)
    of_table.maintenance.gc()
    session = opened(of_table)
    assert session.id == "run.2", "the generation is known as long as its commit"
    with pytest.raises(BatchesGone):
        session.replace_published(first.commit, ["a"])
    with pytest.raises(BatchesGone):
        of_table.published_batches("run")


def test_batches_that_another_version_removed_are_missed(of_table: Lake) -> None:
    first = published(of_table, Table())
    journal = of_table.repository.journal
    journal.append(lambda state: [Delete(key) for key in state.under("batch/run/")[:1]])
    with pytest.raises(BatchesGone):
        opened(of_table).replace_published(first.commit, ["a"])


def test_a_lake_of_an_earlier_version(dataset: Dataset) -> None:
    store = MemoryStore()
    Lake.create(store)
    body = json.loads(store.get("_lake/format.json")) | {"version": 2}
    store.put("_lake/format.json", json.dumps(body).encode())
    lake = Lake.open(store)
    first = published(lake, dataset)
    session = opened(lake)
    assert session.replace_published(first.commit, ["a"]) == ["a"]
    assert session.replace_published(first.commit, ["a"]) == []
    write(session, dataset, "a", 3)
    session.publish()
    assert dataset.ids(lake) == [2, 3]


def test_processes_of_one_owner_do_not_fence_each_other(empty: Lake) -> None:
    first = empty.open_session(id="run", owner="orchestrator/run")
    assert empty.open_session(id="run", owner="orchestrator/run").epoch == first.epoch
    assert empty.open_session(id="run", owner="orchestrator/another").epoch == first.epoch + 1
    assert empty.get_session("run").record.owner == "orchestrator/another"


def test_a_failed_session_is_resumed_at_a_new_epoch_by_its_owner(empty: Lake) -> None:
    session = empty.open_session(id="run", owner="run")
    session.fail("a task failed")
    assert empty.open_session(id="run", owner="run").epoch == session.epoch + 1


def test_a_session_that_conflicts_is_followed_by_the_next_generation(of_table: Lake) -> None:
    table = Table()
    session = opened(of_table)
    with session.join(task="a") as writer:
        table.replace(writer, 1)
    with of_table.session() as other:
        table.replace(other, 2)
    with pytest.raises(Conflict):
        session.publish()
    assert opened(of_table).id == "run.2"
    assert table.ids(of_table, "run") == [1], "it stays readable"


def test_the_task_that_created_a_dataset_is_discarded_alone(empty: Lake, dataset: Dataset) -> None:
    session = empty.open_session(id="run")
    write(session, dataset, "a", 1)
    write(session, dataset, "b", 2)
    session.discard(["a"])
    assert dataset.ids(empty, "run") == [2]
    write(session, dataset, "a", 3, attempt=2)
    session.publish()
    assert dataset.ids(empty) == [2, 3]


def test_what_a_later_generation_replaced_and_a_revert_brought_back_is_replaced_again(
    there: Lake, dataset: Dataset
) -> None:
    first = published(there, dataset)
    session = opened(there)
    session.replace_published(first.commit, ["a"])
    write(session, dataset, "a", 3)
    second = session.publish()
    there.revert(second.commit)
    assert dataset.ids(there) == [1, 2, 8]
    assert list(there.published_batches("run")) == [first.commit]
    third = opened(there)
    assert third.replace_published(first.commit, ["a"]) == ["a"]
    third.publish()
    assert dataset.ids(there) == [2, 8]


def test_files_beside_a_compaction_that_gives_way_stay(of_table: Lake) -> None:
    table = Table()
    first = published(of_table, table)
    with of_table.session() as other:
        table.compact(other)
        other.put("notes.txt", b"mine")
    session = opened(of_table)
    session.replace_published(first.commit, ["a"])
    session.publish()
    assert table.ids(of_table) == [2]
    assert of_table.at().get("notes.txt") == b"mine"


def test_a_generation_at_work_keeps_the_batches_of_the_one_before(
    there: Lake, dataset: Dataset, time: ManualClock
) -> None:
    first = published(there, dataset)
    time.pass_days(15)
    session = opened(there)
    session.replace_published(first.commit, ["a"])
    time.pass_days(2)
    there.maintenance.gc()
    assert session.replace_published(first.commit, ["b"]) == ["b"]
    session.publish()
    assert dataset.ids(there) == [8]


def test_it_counts_from_the_publish(of_table: Lake, time: ManualClock) -> None:
    table = Table()
    session = opened(of_table)
    write(session, table, "a", 1)
    time.pass_days(6)
    first = session.publish()
    time.pass_days(13)
    of_table.maintenance.gc()
    assert opened(of_table).replace_published(first.commit, ["a"]) == ["a"]


def test_a_session_that_began_before_the_commit_is_refused(of_table: Lake) -> None:
    earlier = of_table.open_session(id="another")
    first = published(of_table, Table())
    with pytest.raises(Conflict, match="not in the past"):
        earlier.replace_published(first.commit, ["a"])


def test_a_branch_that_got_the_commit_by_a_merge_knows_it(of_table: Lake) -> None:
    table = Table()
    of_table.create_branch("dev")
    session = of_table.open_session("dev", id="run", renew=True)
    write(session, table, "a", 1)
    first = session.publish()
    with of_table.session() as other:
        table.add(other, 7)
    of_table.merge("dev")
    of_table.delete_branch("dev")
    of_table.create_branch("dev")
    again = of_table.open_session("dev", id="run", renew=True)
    assert again.replace_published(first.commit, ["a"]) == ["a"]
    again.publish()
    assert table.ids(of_table, "dev") == [7]


def test_an_attempt_that_is_not_to_replace_another_is_refused(of_table: Lake) -> None:
    session = of_table.open_session(id="run")
    write(session, Table(), "a", 1)
    with pytest.raises(StaleAttempt, match="discard that first"):
        session.join(task="a", attempt=2, replace=False)
    session.discard(["a"])
    assert not session.join(task="a", attempt=2, replace=False).is_complete


def test_what_others_rewrote_may_stay_and_the_rest_of_it_is_taken_out(of_table: Lake) -> None:
    table = Table()
    first = published(of_table, table)
    with of_table.session() as other:
        table.replace(other, 5, 6)
    session, stayed = opened(of_table), set[str]()
    assert session.replace_published(first.commit, ["a"], may_stay=["a"], stayed=stayed) == ["a"]
    assert session.replace_published(first.commit, ["a"], may_stay=["a"]) == [], "it is not tried again"
    session.publish()
    assert (stayed, table.ids(of_table)) == ({"data"}, [5, 6])
    assert [meta.key for meta in of_table.at().list("files/")] == ["files/b"]


def test_what_others_rewrote_is_a_conflict_for_those_that_must_be_taken_out(of_table: Lake) -> None:
    table = Table()
    first = published(of_table, table)
    with of_table.session() as other:
        table.replace(other, 5, 6)
    with pytest.raises(Conflict, match="others build on it"):
        opened(of_table).replace_published(first.commit, ["a", "b"], may_stay=["a"])
