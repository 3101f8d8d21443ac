"""A store whose answer is lost though the entry landed: publishing again, or flushing again, does nothing twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lake_core import Lake
from lake_core.errors import StoreUnavailable
from lake_core.journal.errors import AppendOutcomeUnknown
from lake_core.lake.errors import RefExists
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import ids, plain, rows


def _losing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the next append of the refs journal land, and raise. Returns what makes it well again."""
    journal = lake.repository.journal
    original = type(journal).append

    def append(self: object, plan: object, **options: object) -> object:
        before = journal.state().number
        result = original(self, plan, **options)  # type: ignore[call-overload]
        after = journal.state().number
        if self is journal and after > before:
            raise AppendOutcomeUnknown("the store stopped answering", number=after, writer="unknown")
        return result

    monkeypatch.setattr(type(journal), "append", append)
    return lambda: monkeypatch.setattr(type(journal), "append", original)


def test_publishing_a_private_session_again(lake: Lake, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lake.session(message="once")
    session.delta("t/orders").append(rows([50]))
    session.delta("t/orders").delete("id = 3")
    session.put("x", b"1")
    mend = _losing(lake, monkeypatch)
    with pytest.raises(AppendOutcomeUnknown):
        session.publish()
    mend()
    with lake.session() as s:
        s.delta("t/orders").append(rows([60]))
    result = session.publish()
    assert result.versions == {"t/orders": 1}
    assert [commit.message for commit in lake.log(limit=2)] == ["", "once"]
    assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == [0, 1, 2, *range(4, 10), 50, 60]


def test_flushing_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = lake.open_session()
    part = opened.join()
    part.delta("t/orders").append(rows([50]))
    part.delta("t/orders").delete("id = 3")
    mend = _losing(lake, monkeypatch)
    with pytest.raises(AppendOutcomeUnknown):
        part.flush()
    mend()
    part.flush()
    part.delta("t/orders").append(rows([51]))
    part.flush()
    assert len(lake.list_sessions()[0].batches) == 2
    opened.publish()
    assert ids(lake.delta("t/orders")) == [0, 1, 2, *range(4, 10), 50, 51]


def test_publishing_a_shared_session_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = lake.open_session()
    with opened.join() as part:
        part.delta("t/orders").delete("id = 3")
    mend = _losing(lake, monkeypatch)
    with pytest.raises(AppendOutcomeUnknown):
        opened.publish()
    mend()
    assert opened.publish().versions == {"t/orders": 1}
    assert lake.delta("t/orders").version == 1


def test_a_checkout_that_fails_does_not_fail_the_publish(
    lake: Lake, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = MemoryStore._put

    def put(self: MemoryStore, key: str, *args: object) -> object:
        if key.startswith("t/orders/_delta_log/"):
            raise StoreUnavailable("no answer", key=key)
        return original(self, key, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryStore, "_put", put)
    session = lake.session()
    session.delta("t/orders").append(rows([50]))
    assert not session.publish().is_checked_out
    assert ids(lake.delta("t/orders")) == [*range(10), 50]
    assert ids(plain(store, "t/orders")) == list(range(10))
    monkeypatch.undo()
    assert lake.maintenance.checkout().objects == 1
    assert ids(plain(store, "t/orders")) == [*range(10), 50]


def test_a_sessions_id_is_no_branchs(lake: Lake, time: ManualClock) -> None:
    with pytest.raises(RefExists):
        lake.open_session(id="main")
