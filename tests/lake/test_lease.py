"""Leases: who holds one, and who gives it back."""

from __future__ import annotations

from lake_core.lake.refs.lease import LeaseConfig, is_leased, lease
from lake_core.store import MemoryStore

SLOW = LeaseConfig(stale=0.0)
"""With which every publisher is slower than its lease."""


def test_a_slow_publisher_gives_its_lease_back() -> None:
    store = MemoryStore()
    with lease(store, "main", SLOW):
        assert is_leased(store, "main")
    assert not is_leased(store, "main")


def test_a_slow_publisher_keeps_the_lease_of_who_took_over() -> None:
    store = MemoryStore()
    with lease(store, "main", SLOW):
        taken_over = lease(store, "main", SLOW)
        assert taken_over.__enter__()
    assert is_leased(store, "main")
    taken_over.__exit__(None, None, None)
    assert not is_leased(store, "main")
