"""Leases: publishers of one branch wait for each other, so that fewer of them apply their changes in vain.

A publisher that met no other one last time tries without, unless somebody holds the lease. Leases are advisory. The
refs journal ensures correctness: a publisher without a lease, or slower than its lease, can only fail to move the
branch and try again.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.backoff import Backoff
from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.store import ObjectStore

_LEASES = "_lake/leases"


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """The times that publishers wait for one another, in seconds."""

    stale: float = 5.0
    """The time after which an unchanged lease is taken over, because its holder is dead or too slow."""
    patience: float = 120.0
    """The time after which a publisher continues without the lease."""
    polling: Backoff = field(default_factory=lambda: Backoff(0.02, 0.25, factor=1.5))


def is_leased(store: ObjectStore, name: str) -> bool:
    """Return whether somebody holds the lease of `name`, or did when they died."""
    try:
        store.head(f"{_LEASES}/{name}")
    except NotFound:
        return False
    except StoreError:
        return True
    return True


@contextmanager
def lease(store: ObjectStore, name: str, config: LeaseConfig) -> Iterator[bool]:
    """Hold the lease of `name` for the block, with at most two writes. Continue without it if it cannot be had.

    The block gets whether it had to wait.
    """
    key = f"{_LEASES}/{name}"
    body = json.dumps({"owner": runtime.uuid4().hex}).encode()
    held, waited = _take(store, key, body, config)
    since = runtime.monotonic()
    try:
        yield waited
    finally:
        with suppress(StoreError):
            # After that time another publisher may hold it.
            if held and (runtime.monotonic() - since < config.stale or bytes(store.get(key)) == body):
                store.delete([key])


def _take(store: ObjectStore, key: str, body: bytes, config: LeaseConfig) -> tuple[bool, bool]:
    """Return whether the lease is held, and whether it had to be waited for."""
    start = runtime.monotonic()
    free, last_etag, since, polls = True, "", start, 0
    while True:
        now = runtime.monotonic()
        try:
            if free or now - since > config.stale:
                store.put(key, body, if_absent=free, if_match=None if free else last_etag)
                return True, polls > 0
        except (AlreadyExists, PreconditionFailed):
            pass
        except StoreError:
            return False, True
        if now - start > config.patience:
            return False, True
        polls += 1
        config.polling.wait(polls)
        try:
            etag = store.head(key).etag
            free = False
        except NotFound:
            free = True
            continue
        except StoreError:
            return False, True
        if etag != last_etag:
            last_etag, since = etag, runtime.monotonic()
