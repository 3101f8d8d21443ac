"""Formats of others: two that register themselves by an entry point, and become datasets with no change elsewhere."""

from __future__ import annotations

import sys

import pytest

from lake_core import Lake
from lake_core import dataset as formats
from lake_core.errors import InvalidKey
from lake_core.lake.errors import Conflict, Diverged
from lake_core.lake.session.importing import convert_dataset
from lake_core.store import FolderStore, MemoryStore
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import StoreDied
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import TOY_FORMATS, opened

sys.path.insert(0, str(TOY_FORMATS))
from toy_note import Note
from toy_register import Register, RegisterFormat, entry_key, read_index

pytestmark = pytest.mark.usefixtures("toy_formats")


@pytest.fixture
def lake(empty: Lake) -> Lake:
    with empty.session() as s:
        register = s.create("names", "register")
        register.add("Ada", b"a portrait")
        register.add("Grace")
        s.create("note", "note", "first")
    return empty


def plain_register(store: MemoryStore) -> Register:
    return Register(FolderStore(store, "names"))


def plain_note(store: MemoryStore) -> Note:
    return Note(FolderStore(store, "note"))


def test_a_format_is_known_by_its_entry_point() -> None:
    assert isinstance(formats.dataset_format("register"), RegisterFormat)


# Sessions, and main as plain readers see it


def test_what_a_session_writes_is_one_version(lake: Lake) -> None:
    assert lake.at().open("names").version == 0


def test_attachments_are_in_the_folder(lake: Lake, store: MemoryStore) -> None:
    key = plain_register(store).lines()["Ada"]
    assert key is not None
    assert bytes(store.get(f"names/{key}")) == b"a portrait"


def test_a_checked_out_pointer_moves_on(lake: Lake, store: MemoryStore) -> None:
    with lake.session() as s:
        s.open("names").add("Edsger")
        s.open("note").write("second")
    assert (bytes(store.get("names/HEAD")), plain_note(store).text) == (b"1", "second")


def test_derived_objects_are_written_for_main(lake: Lake, store: MemoryStore) -> None:
    assert read_index(FolderStore(store, "names"), 0) == "Ada\nGrace"


def test_a_branch_has_its_own_derived_objects(lake: Lake, store: MemoryStore) -> None:
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        with lake.session(branch) as s:
            s.open("names").add(f"of {branch}")
    indexes = [read_index(lake.at(branch).dataset("names"), 1) for branch in ("main", "dev")]
    assert indexes == ["Ada\nGrace\nof main", "Ada\nGrace\nof dev"]
    assert read_index(FolderStore(store, "names"), 1) == "Ada\nGrace\nof main"


# Merge and revert


def test_both_sides_of_a_merge_are_kept(lake: Lake, store: MemoryStore) -> None:
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        with lake.session(branch) as s:
            s.open("names").add(f"of {branch}")
    lake.merge("dev")
    assert sorted(plain_register(store).lines()) == ["Ada", "Grace", "of dev", "of main"]


def test_what_contradicts_is_a_conflict_of_the_formats_own_kind(lake: Lake) -> None:
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        with lake.session(branch) as s:
            s.open("names").add("Edsger")
            s.open("note").write(branch)
    with pytest.raises(Conflict) as caught:
        lake.merge("dev")
    assert caught.value.kinds == {"names": "SameLine", "note": "Rewritten"}


def test_a_commit_is_taken_back_as_a_new_version(lake: Lake, store: MemoryStore) -> None:
    with lake.session() as s:
        s.open("names").remove("Ada")
        s.open("note").write("second")
    lake.revert("main")
    assert (
        plain_register(store).version,
        sorted(plain_register(store).lines()),
        plain_note(store).text,
    ) == (
        2,
        ["Ada", "Grace"],
        "first",
    )


def test_two_states_are_compared_by_what_they_reach(lake: Lake) -> None:
    with lake.session() as s:
        s.open("names").add("Edsger", b"a photograph")
    (comparison,) = [each for each in lake.compare("main~1", "main").datasets if each.path == "names"]
    assert (comparison.comparison.before, comparison.comparison.after, comparison.comparison.files_added) == (0, 1, 1)


# Garbage collection and verification


def _attachments(store: MemoryStore) -> int:
    return len(list(store.list("names/attachments/")))


def test_logs_that_part_and_then_have_the_same_entry_are_told_apart(
    lake: Lake, store: MemoryStore, time: ManualClock
) -> None:
    lake.create_branch("dev")
    for branch in ("dev", "main"):
        with lake.session(branch) as s:
            s.open("names").add(branch, b"a portrait")
        with lake.session(branch) as s:
            s.open("names").remove("Grace")
    with lake.session() as s:
        s.open("names").add("Edsger")
    time.pass_days(20)
    lake.maintenance.gc()
    portrait = lake.at("dev").open("names").lines()["dev"]
    assert store.exists(f"names/{portrait}")


def test_what_no_retained_state_reaches_is_collected(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    with lake.session() as s:
        s.open("names").remove("Ada")
    abandoned = lake.session()
    abandoned.open("note").write("never published")
    abandoned.abandon()
    time.pass_days(20)
    lake.maintenance.gc()
    assert (_attachments(store), len(list(store.list("note/drafts/")))) == (1, 1), "history is kept for 30 days"
    time.pass_days(20)
    lake.maintenance.gc()
    assert (_attachments(store), plain_note(store).text) == (0, "first")


def test_what_a_branch_reaches_is_kept(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    lake.create_branch("dev")
    with lake.session() as s:
        s.open("names").remove("Ada")
    with lake.session("dev") as s:
        s.open("note").write("of dev")
    time.pass_days(40)
    lake.maintenance.gc()
    assert (_attachments(store), lake.at("dev").open("note").text) == (1, "of dev")


def test_a_pointer_that_is_behind_is_not_checked_out(lake: Lake, store: MemoryStore) -> None:
    before = bytes(store.get("note/CURRENT"))
    with lake.session() as s:
        s.open("note").write("second")
    store.put("note/CURRENT", before)
    assert [problem.kind for problem in lake.maintenance.verify()] == ["not checked out"]
    lake.maintenance.checkout()
    assert plain_note(store).text == "second"


# Other writers


def test_what_another_writer_appended_is_adopted(lake: Lake, store: MemoryStore) -> None:
    plain_register(store).add("Edsger")
    lake.maintenance.adopt("names")
    assert sorted(lake.at().open("names").lines()) == ["Ada", "Edsger", "Grace"]


def test_what_another_writer_put_where_the_lake_has_published_is_kept_beside_it(lake: Lake, store: MemoryStore) -> None:
    with lake.session() as s:
        s.open("names").add("Barbara")
    store.delete([f"names/{entry_key(1)}"])
    store.put("names/HEAD", b"0")
    plain_register(store).add("Edsger")
    lake.maintenance.adopt("names")
    assert sorted(plain_register(store).lines()) == ["Ada", "Barbara", "Edsger", "Grace"]


def test_where_another_writer_moved_a_pointer_is_adopted(lake: Lake, store: MemoryStore) -> None:
    plain_note(store).write("by another")
    lake.maintenance.adopt("note")
    assert lake.at().open("note").text == "by another"


def test_a_publish_takes_in_what_another_writer_appended(lake: Lake, store: MemoryStore) -> None:
    plain_register(store).add("Edsger")
    with lake.session() as s:
        s.open("names").add("Barbara")
    assert sorted(plain_register(store).lines()) == ["Ada", "Barbara", "Edsger", "Grace"]


def test_a_pointer_that_leads_elsewhere_is_refused_by_name(lake: Lake, store: MemoryStore) -> None:
    Note(FolderStore(store, "elsewhere")).write("other")
    draft = FolderStore(store, "elsewhere").get("CURRENT").decode()
    store.put(f"note/drafts/{draft}", store.get(f"elsewhere/drafts/{draft}"))
    store.put("note/CURRENT", draft.encode())
    with pytest.raises((Conflict, Diverged), match="note"), lake.session() as s:
        s.open("note").write("second")


def test_files_that_a_format_cannot_convert_are_refused_with_what_to_do_instead(empty: Lake) -> None:
    with empty.session() as s, pytest.raises(formats.NotConvertible, match=r"session\.create\(path, 'note'\)"):
        convert_dataset(s, "texts", "note")


def test_a_refused_conversion_leaves_no_dataset(empty: Lake) -> None:
    with empty.session() as s:
        with pytest.raises(formats.NotConvertible):
            convert_dataset(s, "texts", "note")
        assert s.datasets() == {}


def test_a_dataset_that_stands_in_the_folder_is_brought_in(empty: Lake, store: MemoryStore) -> None:
    for line in ("Ada", "Grace"):
        (plain_register(store) if store.exists("names/HEAD") else Register.create(FolderStore(store, "names"))).add(
            line
        )
    with empty.session() as s:
        s.import_dataset("names", "register")
    assert sorted(empty.at().open("names").lines()) == ["Ada", "Grace"]


# Crashes


@pytest.mark.parametrize("mode", [pytest.param("before", marks=pytest.mark.exhaustive), "after"])
def test_death_at_any_operation_leaves_all_or_nothing(mode: str, store: MemoryStore, time: ManualClock) -> None:
    writes = -1
    for operation in range(1, 200):
        fresh = MemoryStore(clock=time)
        initial = Lake.create(fresh, clock=time)
        with initial.session() as s:
            s.create("names", "register").add("Ada")
            s.create("note", "note", "first")
        dying = FaultStore(fresh, operation, mode)  # type: ignore[arg-type]
        try:
            with opened(dying, time).session() as s:
                s.open("names").add("Grace")
                s.open("note").write("second")
        except StoreDied:
            pass
        else:
            assert operation > 10
            return
        if dying.writes == writes:
            continue  # the operation read: the store is as the death before left it
        writes = dying.writes
        again = opened(fresh, time)
        state = (len(again.at().open("names").lines()), again.at().open("note").text)
        assert state in [(1, "first"), (2, "second")]
        with again.session() as s:
            s.open("names").add("Barbara")
        assert (len(plain_register(fresh).lines()), plain_note(fresh).text) == (state[0] + 1, state[1])
        assert again.maintenance.verify() == []
    raise AssertionError("the publish has more operations than were tried")


def test_an_entry_that_is_lost_from_the_folder_is_put_there_again(lake: Lake, store: MemoryStore) -> None:
    store.delete([f"names/{entry_key(0)}"])
    lake.maintenance.checkout()
    assert sorted(plain_register(store).lines()) == ["Ada", "Grace"]


def test_an_object_that_the_format_has_no_place_for_is_refused(lake: Lake) -> None:
    with lake.session() as s, pytest.raises(InvalidKey, match="no place for names/other"):
        s.put("names/other", b"")
