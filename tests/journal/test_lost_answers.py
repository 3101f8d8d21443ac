"""Appends whose put is answered wrongly, late or never: each counts once or not at all, and no number is left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from lake_core.errors import AccessDenied, AlreadyExists, StoreError, StoreUnavailable
from lake_core.journal import Add, Journal, JsonCodec, Update
from lake_core.journal.clock import AFTER_FAILURE, pause_after_loss
from lake_core.journal.errors import AppendOutcomeUnknown, AppendTimeout
from lake_core.store import MemoryStore, ObjectMeta
from tests.journal.clocks import Clock
from tests.journal.plans import count
from tests.journal.stores import Do, ScriptedStore

FIRST, SECOND, THIRD = (f"refs/{number:020d}.json" for number in (1, 2, 3))
LOST = StoreUnavailable("no answer")


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore(MemoryStore())


def _journal(store: ScriptedStore, clock: Clock | None = None) -> Journal:
    clock = clock or Clock()
    return Journal(store, "refs", clock=clock)


def _answers(*scripts: Callable[[Do], ObjectMeta]) -> Callable[[str, Do], ObjectMeta]:
    """Make the first puts of entries follow the scripts, and all others succeed."""
    left: Iterator[Callable[[Do], ObjectMeta]] = iter(scripts)

    def on_put(key: str, do: Do) -> ObjectMeta:
        return next(left, lambda do: do())(do) if key.endswith(".json") else do()

    return on_put


def _lost_after(error: StoreError) -> Callable[[Do], ObjectMeta]:
    def script(do: Do) -> ObjectMeta:
        do()
        raise error

    return script


def _lost_before(error: StoreError) -> Callable[[Do], ObjectMeta]:
    def script(do: Do) -> ObjectMeta:
        raise error

    return script


def _check(store: ScriptedStore, *values: int) -> None:
    """Check that the journal holds an entry for each count, in order, without gaps."""
    journal = Journal(store.inner, "refs")
    assert [entry.actions[-1].value for entry in journal.entries(1)] == list(values)  # type: ignore[union-attr]
    assert len(list(store.inner.list("refs/0"))) == len(values)


@pytest.mark.parametrize(
    "error", [LOST, AlreadyExists("there"), StoreError("full")], ids=lambda error: type(error).__name__
)
def test_a_put_that_worked_though_it_failed_counts_once(store: ScriptedStore, error: StoreError) -> None:
    journal = _journal(store)
    store.on_put = _answers(_lost_after(error), _lost_after(error))
    assert [entry.number for entry in (journal.append(count), journal.append(count)) if entry] == [1, 2]
    assert journal.state(refresh=False) == {"n": 2}
    _check(store, 1, 2)


@pytest.mark.parametrize("error", [LOST, AlreadyExists("there")], ids=lambda error: type(error).__name__)
def test_a_put_that_did_nothing_is_tried_at_the_same_number(store: ScriptedStore, error: StoreError) -> None:
    journal = _journal(store)
    store.on_put = _answers(_lost_before(error), _lost_before(error))
    assert journal.append(count) is not None
    _check(store, 1)
    puts = [asked for asked in store.asked if asked.startswith("put")]
    assert puts == [f"put {FIRST}"] * 3


@pytest.mark.parametrize("error", [LOST, AlreadyExists("there")], ids=lambda error: type(error).__name__)
def test_another_writers_entry_is_read_before_going_on(store: ScriptedStore, error: StoreError) -> None:
    """The condition is checked again on the state with it."""
    journal = _journal(store)
    journal.state()
    other = Journal(store.inner, "refs")

    def overtaken(do: Do) -> ObjectMeta:
        other.append(count)
        raise error

    store.on_put = _answers(overtaken)
    numbers: list[int] = []
    entry = journal.append(lambda state: numbers.append(state.number) or count(state))  # type: ignore[func-returns-value]
    assert entry is not None
    assert entry.number == 2
    assert numbers == [0, 1]
    _check(store, 1, 2)
    asked = [each for each in store.asked if each.endswith(".json")]
    assert asked.index(f"get {FIRST}") < asked.index(f"put {SECOND}")


def test_a_condition_that_no_longer_holds_is_refused(store: ScriptedStore) -> None:
    journal = _journal(store)
    other = Journal(store.inner, "refs")
    other.append(lambda state: [Add("main", "a")])
    journal.state()
    other.append(lambda state: [Update("main", "b")])

    def move(state: object) -> list[Update]:
        if state["main"] != "a":  # type: ignore[index]
            raise LookupError("main has moved")
        return [Update("main", "mine")]

    with pytest.raises(LookupError, match="moved"):
        journal.append(move)
    assert journal.state() == {"main": "b"}


def test_a_put_that_lands_while_it_is_tried_again_counts_once(store: ScriptedStore) -> None:
    """The first put is still on its way when its absence is read; it lands before the second."""
    journal = _journal(store)
    late: list[Do] = []

    def delayed(do: Do) -> ObjectMeta:
        late.append(do)
        raise LOST

    def landed(do: Do) -> ObjectMeta:
        late.pop()()
        return do()

    store.on_put = _answers(delayed, landed)
    assert journal.append(count) is not None
    _check(store, 1)


def test_a_put_that_lands_after_all_was_given_up_is_found_later(store: ScriptedStore) -> None:
    journal = _journal(store)
    late: list[Do] = []

    def on_put(key: str, do: Do) -> ObjectMeta:
        late.append(do)
        raise LOST

    store.on_put = on_put
    with pytest.raises(AppendOutcomeUnknown, match=f"{FIRST} was appended.*no answer") as raised:
        journal.append(count, deadline=timedelta(seconds=30))
    assert raised.value.number == 1
    late[0]()
    store.on_put = lambda key, do: do()
    assert journal.entry(1).writer == raised.value.writer
    journal.append(count)
    _check(store, 1, 2)


def test_reading_back_is_tried_again(store: ScriptedStore) -> None:
    journal = _journal(store)
    journal.append(count)
    failures = iter([LOST] * 5)

    def on_get(key: str) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure

    store.on_get = on_get
    store.on_put = _answers(_lost_after(LOST))
    assert journal.append(count) is not None
    _check(store, 1, 2)


def test_an_outcome_that_stays_unknown_is_said_so(store: ScriptedStore) -> None:
    clock = Clock()
    journal = _journal(store, clock)
    journal.append(count)

    def on_get(key: str) -> None:
        raise LOST

    store.on_get = on_get
    store.on_put = _answers(_lost_after(LOST))
    with pytest.raises(AppendOutcomeUnknown) as raised:
        journal.append(count, deadline=timedelta(seconds=60))
    assert 60 <= clock.slept < 62
    store.on_get = lambda key: None
    assert journal.entry(raised.value.number).writer == raised.value.writer
    assert journal.append(count) is not None
    _check(store, 1, 2, 3)


def test_an_entry_counts_only_once_tail_was_read(store: ScriptedStore) -> None:
    journal = _journal(store)
    journal.append(count)

    def on_get(key: str) -> None:
        if key == "refs/TAIL":
            raise LOST

    store.on_get = on_get
    with pytest.raises(AppendOutcomeUnknown):
        journal.append(count)
    store.on_get = lambda key: None
    assert journal.append(count) is not None
    _check(store, 1, 2, 3)


def test_a_journal_that_cannot_be_read_is_not_written(store: ScriptedStore) -> None:
    clock = Clock()
    journal = _journal(store, clock)

    def on_get(key: str) -> None:
        raise LOST

    store.on_get = on_get
    with pytest.raises(AppendTimeout, match="nothing was written") as raised:
        journal.append(count)
    assert raised.value.__cause__ is LOST
    assert 60 <= clock.slept < 62
    assert list(store.inner.list()) == []


@pytest.mark.parametrize("error", [AccessDenied("no"), StoreError("full")], ids=lambda error: type(error).__name__)
def test_a_final_refusal_passes_through(store: ScriptedStore, error: StoreError) -> None:
    journal = _journal(store)
    store.on_put = _answers(_lost_before(error))
    with pytest.raises(type(error), match=str(error)):
        journal.append(count)
    assert journal.append(count) is not None
    _check(store, 1)


def test_losing_all_races_ends_at_the_deadline(store: ScriptedStore) -> None:
    clock = Clock()
    journal = _journal(store, clock)
    other = Journal(store.inner, "refs")

    def on_put(key: str, do: Do) -> ObjectMeta:
        other.append(count)
        return do()

    store.on_put = on_put
    with pytest.raises(AppendTimeout, match=r"written by another writer.*Nothing was written"):
        journal.append(count, deadline=timedelta(seconds=1))
    assert 1 <= clock.slept < 2.1
    assert all(entry.writer != journal for entry in other.entries(1))
    assert other.head() == len(list(other.entries(1)))
    lost = other.head()
    with pytest.raises(AppendTimeout):
        journal.append(count, deadline=timedelta(0))
    assert other.head() == lost + 1, "one attempt was made"


@pytest.mark.parametrize("lost", [1, 2, 10, 100, 10_000])
def test_pauses_between_races_are_bounded(lost: int) -> None:
    for seconds in (0.0, 0.01, 0.05, 60.0):
        pauses = [pause_after_loss(lost, seconds) for _ in range(100)]
        assert min(pauses) >= 0
        assert 0 < max(pauses) <= min(1.0, 16 * max(seconds, 0.001))
        assert 0 < AFTER_FAILURE.pause(lost) <= 1.0


def test_a_snapshot_that_fails_does_not_fail_the_append(store: ScriptedStore, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(store, "refs", snapshot_every=2, head_every=1)

    def on_put(key: str, do: Do) -> ObjectMeta:
        if "snapshots" in key or key.endswith("HEAD"):
            raise AccessDenied("no")
        return do()

    store.on_put = on_put
    for _ in range(4):
        assert journal.append(count) is not None
    assert "entry 4 is written" in caplog.text
    _check(store, 1, 2, 3, 4)
    assert Journal(store, "refs").head() == 4


def test_ownership_is_the_codecs_matter(store: ScriptedStore) -> None:
    """Entries without a writer's id are known by all of their bytes."""
    journal = _journal_of_anonymous(store)
    store.on_put = _answers(_lost_after(LOST))
    entry = journal.append(lambda state: [Add("main", "unique")])
    assert entry is not None
    assert entry.writer
    assert journal.entry(1).writer == ""
    other = _journal_of_anonymous(store)
    journal.append(lambda state: [Add("dev", 1)])
    other.append(lambda state: [Add("test", 1)])
    assert other.state() == {"main": "unique", "dev": 1, "test": 1}


class _Anonymous(JsonCodec):
    def encode(self, entry: object) -> bytes:
        from dataclasses import replace

        return super().encode(replace(entry, writer=""))  # type: ignore[type-var]

    def owns(self, entry: object, data: bytes, found: bytes) -> bool:
        return found == data


def _journal_of_anonymous(store: ScriptedStore) -> Journal:
    return Journal(store, "refs", codec=_Anonymous())


def test_slow_puts_of_many_writers(store: ScriptedStore) -> None:
    """Every put takes a while, and every third answer is lost."""
    puts = iter(range(10**9))
    lock = threading.Lock()

    def on_put(key: str, do: Do) -> ObjectMeta:
        with lock:
            number = next(puts)
        time.sleep(0.002)
        if number % 3 == 0:
            raise LOST
        result = do()
        if number % 3 == 1:
            raise LOST
        return result

    store.on_put = on_put
    acknowledged: list[int] = []

    def work() -> None:
        journal = Journal(store, "refs")
        for _ in range(10):
            entry = journal.append(count)
            assert entry is not None
            acknowledged.append(entry.number)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(acknowledged) == list(range(1, 81))
    _check(store, *range(1, 81))
