"""Leases: publishers of one branch wait for one another instead of racing, so that few of them apply in vain.

Advisory only. Correctness stays with the refs journal: a publisher without a lease, or slower than its lease, loses a race at most.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lake_core import runtime
from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed, StoreError
from lake_core.store import ObjectStore

_LEASES = "_lake/leases"
STALE = 5.0
"""Seconds after which a lease that did not change is taken over: its holder is dead, or as slow as if he were."""
_PATIENCE = 120.0
_POLL = 0.02
_LONGEST_POLL = 0.25


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """How long to wait, and by which clock; replaceable in tests."""

    stale: float = STALE
    patience: float = _PATIENCE
    sleep: Callable[[float], None] = runtime.sleep
    monotonic: Callable[[], float] = runtime.monotonic
    uniform: Callable[[float, float], float] = runtime.uniform


@contextmanager
def lease(store: ObjectStore, name: str, config: LeaseConfig) -> Iterator[None]:
    """Hold the lease of `name` for the block: at most two writes. Never fail for want of it."""
    key = f"{_LEASES}/{name}"
    owner = runtime.uuid4().hex
    held = _take(store, key, owner, config)
    since = config.monotonic()
    try:
        yield
    finally:
        # Past that time it may be another's already.
        if held and config.monotonic() - since < config.stale:
            with suppress(StoreError):
                store.delete([key])


def _take(store: ObjectStore, key: str, owner: str, config: LeaseConfig) -> bool:
    body = json.dumps({"owner": owner}).encode()
    start = config.monotonic()
    free, seen, since, pause = True, "", start, _POLL
    while True:
        now = config.monotonic()
        try:
            if free or now - since > config.stale:
                store.put(key, body, if_absent=free, if_match=None if free else seen)
                return True
        except (AlreadyExists, PreconditionFailed):
            pass
        except StoreError:
            return False
        if now - start > config.patience:
            return False
        config.sleep(config.uniform(pause / 2, pause))
        pause = min(_LONGEST_POLL, pause * 1.5)
        try:
            etag = store.head(key).etag
            free = False
        except NotFound:
            free = True
            continue
        except StoreError:
            return False
        if etag != seen:
            seen, since = etag, config.monotonic()
