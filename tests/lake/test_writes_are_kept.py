"""What is published is what was written: no write is left out, comes twice or comes back, in any format.

Each test is a situation in which a lake once concluded too much, from a marker, from one merge base of several or from
a dataset that both sides created. It ends with all that was written, or with a conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.pool.key_range import KeyRange
from lake_core.store import MemoryStore
from tests.lake.id_datasets import PATH, SCHEMA, Array, Dataset, Pool, Table, table_of


@pytest.fixture(params=[Table, Pool, Array], ids=["table", "pool", "array"])
def dataset(request: pytest.FixtureRequest) -> Dataset:
    dataset: Dataset = request.param()
    return dataset


@pytest.fixture(params=[Table, Pool], ids=["table", "pool"])
def records(request: pytest.FixtureRequest) -> Table | Pool:
    records: Table | Pool = request.param()
    return records


@pytest.fixture
def lake() -> Lake:
    return Lake.create(MemoryStore())


def _created(lake: Lake, dataset: Dataset, *ids: int) -> None:
    with lake.session() as session:
        dataset.create(session)
    for id in ids:
        with lake.session() as session:
            dataset.add(session, id)


def _put(lake: Lake, branch: str, key: str) -> None:
    with lake.session(branch) as session:
        session.put(key, b"1")


def test_unmarked_writes_beside_a_marked_one_that_is_there(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    sessions = [lake.session(), lake.session()]
    for number, session in enumerate(sessions):
        dataset.add(session, 1, txn=("load", 1))
        dataset.add(session, 2 + number)
    sessions[0].publish()
    try:
        sessions[1].publish()
    except Conflict:
        assert dataset.ids(lake) == [1, 2]
    else:
        assert dataset.ids(lake) == [1, 2, 3]


def test_a_session_whose_writes_can_be_told_apart_publishes_those_that_are_lacking(
    lake: Lake, records: Table | Pool
) -> None:
    _created(lake, records)
    sessions = [lake.session(), lake.session()]
    for number, session in enumerate(sessions):
        records.add(session, 1, txn=("load", 1))
        records.add(session, 2 + number)
    sessions[0].publish()
    skipped = sessions[1].publish().skipped
    assert [(write.path, write.application, write.version) for write in skipped] == [(PATH, "load", 1)]
    assert records.ids(lake) == [1, 2, 3]


def test_a_run_with_several_marked_writes_is_skipped_when_it_is_repeated(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    sessions = [lake.session(), lake.session()]
    for session in sessions:
        for id in (1, 2):
            dataset.add(session, id, txn=(f"run-{id}", 1))
    for session in sessions:
        session.publish()
    assert dataset.ids(lake) == [1, 2]


def test_a_marked_write_of_one_commit_with_others_in_a_merge(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        dataset.add(session, 1, txn=("load", 1))
        dataset.add(session, 2)
    with lake.session() as session:
        dataset.add(session, 1, txn=("load", 1))
    try:
        lake.merge("dev")
    except Conflict:
        assert dataset.ids(lake) == [1]
    else:
        assert dataset.ids(lake) == [1, 2]


@pytest.mark.parametrize("by", ["merge", "squash", "pick"])
@pytest.mark.parametrize("is_created", [True, False], ids=["of a new dataset", "of one that is there"])
def test_a_commit_brings_its_writes_beside_the_appends_that_are_there(
    lake: Lake, records: Table | Pool, by: str, is_created: bool
) -> None:
    if not is_created:
        _created(lake, records)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        records.create(session)
        records.add(session, 1, txn=("one", 1))
        records.add(session, 2, txn=("two", 1))
        records.add(session, 3)
    with lake.session() as session:
        records.create(session)
        records.add(session, 2, txn=("two", 1))
    if by == "pick":
        skipped = lake.cherry_pick("dev", onto="main").skipped
    else:
        skipped = lake.merge("dev", squash=by == "squash").skipped
    assert [(write.application, write.version) for write in skipped] == [("two", 1)]
    assert records.ids(lake) == [1, 2, 3]
    assert lake.maintenance.verify() == []


def test_a_pick_of_a_merge_brings_what_that_merge_left_out(lake: Lake, records: Table | Pool) -> None:
    _created(lake, records)
    for name in ("dev", "other"):
        lake.create_branch(name)
    with lake.session("dev") as session:
        for number, application in enumerate(("one", "two", "three", "four"), 1):
            records.add(session, number, txn=(application, 1))
    with lake.session() as session:
        records.add(session, 2, txn=("two", 1))
    lake.merge("dev")
    with lake.session("other") as session:
        records.add(session, 3, txn=("three", 1))
    skipped = lake.cherry_pick("main", onto="other").skipped
    assert [write.application for write in skipped] == ["three"]
    assert records.ids(lake, "other") == [1, 2, 3, 4]


@pytest.mark.parametrize("by", ["merge", "squash", "session"])
@pytest.mark.parametrize("is_one_commit", [True, False], ids=["of one commit", "of several"])
def test_each_version_of_an_application_counts_by_itself(
    lake: Lake, records: Table | Pool, by: str, is_one_commit: bool
) -> None:
    _created(lake, records)
    lake.create_branch("dev")
    late = lake.session()
    if by == "session":
        sources = [late]
    else:
        sources = [lake.session("dev")] * 3 if is_one_commit else [lake.session("dev") for _ in range(3)]
    for number, txn in enumerate([("load", 1), ("load", 2), None]):
        session = sources[number % len(sources)]
        if session is not sources[0]:
            sources[number - 1].publish()
            session = sources[number] = lake.session("dev")
        records.add(session, number + 1, txn=txn)
    if by != "session":
        sources[-1].publish()
    for number in (1, 2):
        with lake.session() as session:
            records.add(session, number, txn=("load", number))
    skipped = late.publish().skipped if by == "session" else lake.merge("dev", squash=by == "squash").skipped
    assert [(write.application, write.version) for write in skipped] == [("load", 1), ("load", 2)]
    assert records.ids(lake) == [1, 2, 3]


def test_a_later_version_comes_where_an_earlier_one_is_there(lake: Lake, records: Table | Pool) -> None:
    _created(lake, records)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        for number in (1, 2):
            records.add(session, number, txn=("load", number))
    with lake.session() as session:
        records.add(session, 1, txn=("load", 1))
    assert [write.version for write in lake.merge("dev").skipped] == [1]
    assert records.ids(lake) == [1, 2]
    with lake.session() as session:
        records.add(session, 2, txn=("load", 2))
    assert records.ids(lake) == [1, 2]


def test_a_revert_elsewhere_of_a_merge_that_left_something_out_undoes_all(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        dataset.add(session, 1, txn=("load", 1))
    _put(lake, "dev", "note")
    with lake.session() as session:
        dataset.add(session, 1, txn=("load", 1))
    merged = lake.merge("dev").commit
    lake.revert(merged, branch="dev")
    assert dataset.ids(lake, "dev") == []


def test_a_revert_of_a_merge_that_left_something_out_says_so_where_that_is(lake: Lake, records: Table | Pool) -> None:
    _created(lake, records)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        records.add(session, 1, txn=("load", 1))
        records.add(session, 2)
    with lake.session() as session:
        records.add(session, 1, txn=("load", 1))
    merged = lake.merge("dev").commit
    with pytest.raises(Conflict, match=r'left out writes that .main. had already .*"load",1'):
        lake.revert(merged)
    assert records.ids(lake) == [1, 2]


@pytest.mark.parametrize("by", ["merge", "squash", "pick"])
def test_an_undone_batch_does_not_come_again_below_a_later_one(lake: Lake, records: Table | Pool, by: str) -> None:
    _created(lake, records)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        for number in (1, 2):
            records.add(session, number, txn=("load", number))
    with lake.session() as session:
        records.add(session, 1, txn=("load", 1))
    lake.revert("main")
    _put(lake, "main", "note")
    with pytest.raises(Conflict, match="undone"):
        if by == "pick":
            lake.cherry_pick("dev", onto="main")
        else:
            lake.merge("dev", squash=by == "squash")
    assert records.ids(lake) == []


def test_a_session_that_is_published_again_gives_the_same_result(lake: Lake, records: Table | Pool) -> None:
    _created(lake, records, 7, 8)
    lake.open_session(id="run")
    with lake.get_session("run").join() as writer:
        records.add(writer, 1, txn=("load", 1))
        records.add(writer, 2)
        records.delete(writer, 7)
    with lake.session() as session:
        records.add(session, 1, txn=("load", 1))
    with lake.session() as session:
        records.compact(session)
    first = lake.get_session("run").publish()
    assert len(first.skipped) == len(first.undone) == 1
    assert lake.get_session("run").publish() == first


@pytest.mark.parametrize("feature", ["plain", "deletion vectors"])
def test_the_change_feed_of_what_came_beside_a_left_out_append(lake: Lake, feature: str) -> None:
    table = Table()
    properties = {"delta.enableChangeDataFeed": "true"}
    if feature != "plain":
        properties["delta.enableDeletionVectors"] = "true"
    with lake.session() as session:
        session.create_delta(PATH, SCHEMA, properties=properties).append(table_of((7, 8, 9)))
    lake.create_branch("dev")
    with lake.session("dev") as session:
        table.add(session, 1, txn=("load", 1))
        table.delete(session, 7)
        table.add(session, 2)
    with lake.session() as session:
        table.add(session, 1, txn=("load", 1))
    version = lake.merge("dev").versions[PATH]
    feed = lake.delta(PATH).changes(version, version).read_all()
    changes = zip(feed["_change_type"].to_pylist(), feed["id"].to_pylist(), strict=True)
    assert sorted(changes) == [("delete", 7), ("insert", 2)]


def test_an_append_whose_rows_the_same_commit_changed_is_not_left_out(lake: Lake, records: Table | Pool) -> None:
    _created(lake, records)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        records.add(session, 1, 2, txn=("load", 1))
        records.delete(session, 1)
    with lake.session() as session:
        records.add(session, 1, 2, txn=("load", 1))
    with pytest.raises(Conflict):
        lake.merge("dev")
    assert records.ids(lake) == [1, 2]


def test_a_batch_that_was_reverted_beside_the_next_one(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    for number in (1, 2):
        with lake.session() as session:
            dataset.add(session, number, txn=("load", number))
    lake.create_branch("fix")
    lake.revert("fix", branch="fix")
    with lake.session() as session:
        dataset.add(session, 3, txn=("load", 3))
    try:
        lake.merge("fix")
    except Conflict:
        assert dataset.ids(lake) == [1, 2, 3]
    else:
        assert dataset.ids(lake) == [1, 3]


def test_a_batch_that_was_reverted_on_one_branch_does_not_come_by_another(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        with lake.session(branch) as session:
            dataset.add(session, 1, txn=("load", 1))
    lake.revert("main")
    with suppress(Conflict):
        lake.merge("dev")
    assert dataset.ids(lake) == []


def test_a_deletion_that_main_reverted_is_not_made_again_by_crossed_merges(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset, 1, 2)
    lake.create_branch("dev")
    _put(lake, "main", "a")
    with lake.session("dev") as session:
        dataset.delete(session, 1)
    main, dev = lake.list_branches()["main"], lake.list_branches()["dev"]
    crossed = lake.merge(dev).commit
    lake.merge(main, into="dev")
    lake.revert(crossed)
    _put(lake, "dev", "c")
    with suppress(Conflict):
        lake.merge("dev")
    assert dataset.ids(lake) == [1, 2]


def test_a_deletion_that_main_reverted_is_not_made_again_by_a_branch_with_both_features(
    lake: Lake, dataset: Dataset
) -> None:
    _created(lake, dataset, 1, 2)
    for name in ("one", "two", "dev"):
        lake.create_branch(name)
    with lake.session("one") as session:
        dataset.delete(session, 1)
    _put(lake, "two", "a")
    first = lake.merge("one").commit
    lake.merge("two")
    for name in ("one", "two"):
        lake.merge(name, into="dev")
    lake.revert(first)
    _put(lake, "dev", "c")
    with suppress(Conflict):
        lake.merge("dev")
    assert dataset.ids(lake) == [1, 2]


def test_a_file_that_main_restored_stays_after_crossed_merges(lake: Lake) -> None:
    _put(lake, "main", "kept")
    lake.create_branch("dev")
    _put(lake, "main", "a")
    with lake.session("dev") as session:
        session.delete(["kept"])
    main, dev = lake.list_branches()["main"], lake.list_branches()["dev"]
    crossed = lake.merge(dev).commit
    lake.merge(main, into="dev")
    lake.revert(crossed)
    _put(lake, "dev", "c")
    with suppress(Conflict):
        lake.merge("dev")
    assert lake.at().exists("kept")


def test_a_marker_that_came_another_way_proves_no_other_write(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    for name in ("one", "two"):
        lake.create_branch(name)
    _put(lake, "main", "meanwhile")
    for branch, id, txn in (("main", 1, ("job-1", 1)), ("two", 2, ("job-2", 1)), ("main", 3, None)):
        if id == 2:
            lake.merge("main", into="one")
        with lake.session(branch) as session:
            dataset.add(session, id, txn=txn)
    lake.merge("two", into="one")
    lake.merge("main", into="two")
    lake.merge("two", into="one")
    assert dataset.ids(lake, "one") == dataset.ids(lake, "two") == [1, 2, 3]


@pytest.mark.parametrize("bring", [lambda lake, id: lake.cherry_pick(id, onto="main"), lambda lake, id: None])
def test_a_picked_or_squashed_batch_does_not_keep_its_branch_apart(
    lake: Lake, dataset: Dataset, bring: Callable[[Lake, str], object]
) -> None:
    _created(lake, dataset)
    lake.create_branch("dev")
    for number in (1, 2):
        with lake.session("dev") as session:
            dataset.add(session, number, txn=(f"job-{number}", 1))
        if number == 1:
            _put(lake, "main", "meanwhile")
            if bring(lake, "dev") is None:
                lake.merge("dev", squash=True)
    lake.merge("dev")
    assert dataset.ids(lake) == [1, 2]


def test_the_next_batch_comes_where_both_branches_made_the_one_before(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    lake.create_branch("dev")
    for branch, number in (("main", 1), ("dev", 1), ("dev", 2)):
        with lake.session(branch) as session:
            dataset.add(session, number, txn=("job", number))
    lake.merge("dev")
    assert dataset.ids(lake) == [1, 2]


def test_a_chunk_that_both_set_keeps_the_value_of_the_one_that_is_not_reverted(lake: Lake) -> None:
    array = Array()
    _created(lake, array)
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        with lake.session(branch) as session:
            array.add(session, 1)
    own = lake.list_branches()["main"]
    with suppress(Conflict):
        lake.merge("dev")
        lake.revert(own)
    assert array.ids(lake) == [1]


@pytest.mark.parametrize("by", ["sessions", "branches"])
def test_a_dataset_that_is_made_again_takes_in_nothing_of_the_one_before(lake: Lake, dataset: Dataset, by: str) -> None:
    _created(lake, dataset, 1)
    lake.create_branch("dev")
    adding, again = lake.session(), lake.session("dev" if by == "branches" else "main")
    dataset.add(adding, 2)
    again.drop(PATH)
    dataset.create(again)
    dataset.add(again, 3)
    adding.publish()
    with pytest.raises(Conflict):
        again.publish()
        lake.merge("dev")
    assert dataset.ids(lake) == [1, 2]


def test_a_fork_of_what_was_published_and_reverted_is_refused(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    session = lake.open_session()
    with session.join() as writer:
        dataset.add(writer, 1)
    fork = session.fork()
    session.publish()
    lake.revert("main")
    with pytest.raises(Conflict):
        fork.publish()
    assert dataset.ids(lake) == []


def test_what_was_picked_and_reverted_stays_away(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        dataset.add(session, 1)
    lake.cherry_pick("dev", onto="main")
    lake.revert("main")
    with suppress(NothingToApply):
        lake.merge("dev")
    assert dataset.ids(lake) == []


@pytest.mark.parametrize("by", ["sessions", "branches"])
def test_what_both_create_and_replace_is_there_once(lake: Lake, records: Table | Pool, by: str) -> None:
    lake.create_branch("dev")
    sessions = [lake.session(), lake.session("dev" if by == "branches" else "main")]
    for session in sessions:
        records.create(session)
        records.replace(session, 1, 2)
    sessions[0].publish()
    with pytest.raises(Conflict):
        sessions[1].publish()
        lake.merge("dev")
    assert records.ids(lake) == [1, 2]


def test_what_both_create_and_append_is_there_together(lake: Lake, records: Table | Pool) -> None:
    sessions = [lake.session(), lake.session()]
    for number, session in enumerate(sessions):
        records.create(session)
        records.add(session, number)
    for session in sessions:
        session.publish()
    assert records.ids(lake) == [0, 1]


def test_other_slices_of_what_both_create_are_replaced_together(lake: Lake) -> None:
    sessions = [lake.session(), lake.session()]
    for number, session in enumerate(sessions):
        pool = session.create_pool(PATH, key="id")
        keys = [KeyRange.of(10 * number, 10 * number + 10)]
        pool.replace(pool.write_objects(table_of((10 * number,)), keys), keys)
    for session in sessions:
        session.publish()
    assert Pool().ids(lake) == [0, 10]


def test_a_restore_beside_an_ingestion_takes_effect_or_conflicts(lake: Lake) -> None:
    table = Table()
    _created(lake, table)
    for number in (1, 2):
        with lake.session() as session:
            table.add(session, number, txn=("load", number))
    restoring = lake.session()
    restoring.delta(PATH).restore(version=1)
    with lake.session() as session:
        table.add(session, 3, txn=("load", 3))
    with pytest.raises(Conflict):
        restoring.publish()


def test_a_compaction_gives_way_to_a_merge_and_says_so(lake: Lake) -> None:
    table = Table()
    _created(lake, table, 1, 2)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        table.delete(session, 1)
    with lake.session(message="optimize") as session:
        table.compact(session)
    compaction = lake.list_branches()["main"]
    assert list(lake.merge("dev").undone) == [compaction]
    assert table.ids(lake) == [2]


def test_a_batch_whose_revert_was_reverted_merges_again(lake: Lake, dataset: Dataset) -> None:
    _created(lake, dataset)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        dataset.add(session, 1, txn=("load", 1))
    lake.merge("dev")
    lake.revert("dev", branch="dev")
    lake.merge("dev")
    assert dataset.ids(lake) == []
    lake.revert("dev", branch="dev")
    lake.merge("dev")
    assert dataset.ids(lake) == [1]


def test_a_branch_that_is_only_ahead_is_taken_as_it_is(lake: Lake) -> None:
    table = Table()
    _created(lake, table, 1)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.delta(PATH).add_columns(pa.schema([("note", pa.string())]))
    column = lake.list_branches()["dev"]
    with lake.session("dev") as session:
        table.add(session, 2)
    lake.revert(column, branch="dev")
    lake.merge("dev")
    assert table.ids(lake) == [1, 2]


def test_equal_files_of_both_sides_are_reverted_one_after_the_other(lake: Lake) -> None:
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        _put(lake, branch, "equal")
    commits = [lake.list_branches()[branch] for branch in ("main", "dev")]
    lake.merge("dev")
    lake.revert(commits[0])
    assert lake.at().exists("equal")
    lake.revert(commits[1])
    assert not lake.at().exists("equal")


def test_a_merge_that_refused_one_side_is_not_picked(lake: Lake) -> None:
    _put(lake, "main", "first")
    for branch in ("dev", "feature"):
        lake.create_branch(branch)
        with lake.session(branch) as session:
            session.put("file", branch.encode())
            session.put(f"own/{branch}", b"1")
    lake.merge("feature", into="dev", strategy="ours")
    with pytest.raises(Conflict):
        lake.cherry_pick("dev", onto="main")
    lake.merge("feature")
    assert bytes(lake.at().get("file")) == b"feature"
