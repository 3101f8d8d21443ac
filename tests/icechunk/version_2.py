"""Repositories of version 2 of the specification, as tests make them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import zarr

from lake_core.icechunk import (
    Repository,
)
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.store import MemoryStore, ObjectStore
from tests.icechunk.operations import create_base

ROOT = encode_id(INITIAL_SNAPSHOT)


def new_repository(**options: Any) -> Repository:
    return Repository.create(MemoryStore(), spec_version=2, **options)


def with_arrays(repository: Repository) -> str:
    session = repository.writable_session("main")
    create_base(session)
    return session.commit("base")


def write(repository: Repository, number: int, branch: str = "main") -> str:
    session = repository.writable_session(branch)
    zarr.create_group(session.store, path=f"n{number}")
    return session.commit(f"n{number}", {"number": number})


def kinds(repository: Repository) -> list[str]:
    return [type(update.kind).__name__ for update in repository.ops_log()]


def backups(store: ObjectStore) -> set[str]:
    return {meta.key.removeprefix("overwritten/") for meta in store.list("overwritten/")}


def aged(store: ObjectStore, count: int) -> tuple[Repository, list[str], datetime]:
    """Return a repository of commits that are an hour apart, and the time of the first."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    now = [start]
    repository = Repository.create(store, spec_version=2, clock=lambda: now[0])
    ids = []
    for number in range(count):
        now[0] += timedelta(hours=1)
        ids.append(write(repository, number))
    now[0] += timedelta(hours=1)
    return repository, ids, start
