"""Checks that a store does what a lake requires, and that the properties of its tables have an effect."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lake_core.cli.permissions import NEEDED_BY, permission
from lake_core.errors import AccessDenied, AlreadyExists, LakeError, NotFound, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lake_core.cli.permissions import Verb
    from lake_core.lake import Lake
    from lake_core.store import ObjectStore

_RACERS = 16
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    ok: bool
    detail: str


def examine(store: ObjectStore) -> list[Finding]:
    """Check a store in a folder of its own, which is deleted afterwards if deleting is allowed."""
    folder = f"_lake/doctor/{uuid.uuid4().hex}"
    checks: list[tuple[str, Callable[[ObjectStore, str], str]]] = [
        ("put if absent", _if_absent),
        ("put if absent, raced", _if_absent_raced),
        ("put if match", _if_match),
        ("put if match, raced", _if_match_raced),
        ("read after write", _read_after_write),
        ("listing in order", _listing),
        ("clock", _clock),
    ]
    try:
        permissions = [_permitted(verb, store, f"{folder}/x") for verb in NEEDED_BY]
        if not all(each.ok for each in permissions):
            return [*permissions, Finding("conditional puts", False, "not tried, because of the above")]
        return [
            *permissions,
            *(_run(name, check, store, f"{folder}/{number}") for number, (name, check) in enumerate(checks)),
        ]
    finally:
        with suppress(AccessDenied):
            store.delete([meta.key for meta in store.list(f"{folder}/")])


def examine_datasets(lake: Lake) -> Iterator[Finding]:
    """Yield what is wrong with the datasets of main, for settings that other writers may set to any value."""
    state = lake.at()
    for path in state.datasets():
        try:
            dataset = state.dataset(path)
            yield from (Finding(path, False, problem) for problem in dataset.format.setting_problems(dataset))
        except LakeError as error:
            yield Finding(path, False, str(error))


def _permitted(verb: Verb, store: ObjectStore, key: str) -> Finding:
    try:
        match verb:
            case "put":
                store.put(key, b"")
            case "get":
                with suppress(NotFound):
                    store.get(key)
            case "list":
                next(iter(store.list(f"{key.rpartition('/')[0]}/")), None)
            case "delete":
                store.delete([key])
    except AccessDenied:
        return Finding(verb, False, f"denied. The policy must allow {permission(store.url(), verb)}: {NEEDED_BY[verb]}")
    except LakeError as error:
        return Finding(verb, False, str(error))
    return Finding(verb, True, "allowed")


def _run(name: str, check: Callable[[ObjectStore, str], str], store: ObjectStore, folder: str) -> Finding:
    try:
        return Finding(name, True, check(store, folder))
    except (LakeError, AssertionError) as error:
        return Finding(name, False, str(error))


def _if_absent(store: ObjectStore, folder: str) -> str:
    store.put(f"{folder}/x", b"1", if_absent=True)
    try:
        store.put(f"{folder}/x", b"2", if_absent=True)
    except AlreadyExists:
        pass
    else:
        raise AssertionError(
            "a second put if absent was accepted: two writers could take the same version. Do not use this store"
        )
    assert bytes(store.get(f"{folder}/x")) == b"1", "a refused put changed the object"
    return "the second one is refused"


def _if_absent_raced(store: ObjectStore, folder: str) -> str:
    for number in range(_ROUNDS):
        key = f"{folder}/{number}"
        winners = list(_race(lambda racer, key=key: store.put(key, b"%d" % racer, if_absent=True)))  # type: ignore[misc]
        assert len(winners) == 1, (
            f"the store accepted the puts of {len(winners)} of {_RACERS} racing writers instead of one"
        )
        assert bytes(store.get(key)) == b"%d" % winners[0], "the object is not the winner's"
    return f"one winner among {_RACERS}, {_ROUNDS} times"


def _if_match(store: ObjectStore, folder: str) -> str:
    first = store.put(f"{folder}/x", b"1")
    store.put(f"{folder}/x", b"2", if_match=first.etag)
    try:
        store.put(f"{folder}/x", b"3", if_match=first.etag)
    except PreconditionFailed:
        return "a stale one is refused"
    raise AssertionError("a put over another object than the expected one was accepted")


def _if_match_raced(store: ObjectStore, folder: str) -> str:
    for number in range(_ROUNDS):
        key = f"{folder}/{number}"
        etag = store.put(key, b"first").etag
        winners = list(_race(lambda racer, key=key, etag=etag: store.put(key, b"%d" % racer, if_match=etag)))  # type: ignore[misc]
        assert len(winners) == 1, (
            f"the store accepted the puts of {len(winners)} of {_RACERS} racing writers instead of one"
        )
    return f"one winner among {_RACERS}, {_ROUNDS} times"


def _race(put: Callable[[int], object]) -> Iterator[int]:
    def tried(racer: int) -> bool:
        try:
            put(racer)
        except (AlreadyExists, PreconditionFailed):
            return False
        return True

    with ThreadPoolExecutor(_RACERS) as pool:
        yield from (racer for racer, won in enumerate(pool.map(tried, range(_RACERS))) if won)


def _read_after_write(store: ObjectStore, folder: str) -> str:
    for number in range(_ROUNDS):
        key = f"{folder}/{number}"
        store.put(key, b"%d" % number)
        assert bytes(store.get(key)) == b"%d" % number, "a read did not return what was written before"
        store.delete([key])
        try:
            store.get(key)
        except NotFound:
            continue
        raise AssertionError("an object could be read after it was deleted")
    return "writes and deletions are visible at once"


def _listing(store: ObjectStore, folder: str) -> str:
    keys = sorted(f"{folder}/{name}" for name in ("a", "a/b", "a-b", "B", "é", "z"))
    keys = [key for key in keys if key != f"{folder}/a"]
    for key in keys:
        store.put(key, b"")
    assert [meta.key for meta in store.list(f"{folder}/")] == keys, "keys are not listed in the order of their bytes"
    return f"{len(keys)} keys"


def _clock(store: ObjectStore, folder: str) -> str:
    store.put(f"{folder}/x", b"")
    skew = abs((store.head(f"{folder}/x").last_modified - datetime.now(UTC)).total_seconds())
    assert skew < 300, (
        f"the store's clock and this machine's differ by {skew:.0f} s, so sessions would expire at wrong "
        "times: synchronize this machine's clock"
    )
    return f"{skew:.1f} s apart from this machine's"
