"""Datasets of ids, whose operations tests do in any format."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from lake_core import Lake
from lake_core.lake.session.write_session import WriteSession
from lake_core.pool.key_range import KeyRange
from tests.lake.arrays import chunk_values, create_array, set_chunk

SCHEMA = pa.schema([("id", pa.int64())])
PATH = "data"
Marker = tuple[str, int]


def table_of(ids: tuple[int, ...]) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


class Table:
    """A Delta table of ids."""

    def create(self, session: WriteSession) -> None:
        session.create_delta(PATH, SCHEMA, exist_ok=True)

    def add(self, session: WriteSession, *ids: int, txn: Marker | None = None) -> None:
        session.delta(PATH).append(table_of(ids), txn=txn)

    def replace(self, session: WriteSession, *ids: int) -> None:
        session.delta(PATH).overwrite(table_of(ids))

    def delete(self, session: WriteSession, id: int) -> None:
        session.delta(PATH).delete(f"id = {id}")

    def compact(self, session: WriteSession) -> None:
        session.delta(PATH).optimize()

    def vacuum(self, session: WriteSession) -> None:
        session.delta(PATH).vacuum(timedelta(0), allow_unsafe=True)

    def ids(self, lake: Lake, ref: str = "main") -> list[int]:
        return sorted(lake.delta(PATH, ref=ref).to_arrow()["id"].to_pylist())


class Pool:
    """A pool of ids."""

    def create(self, session: WriteSession) -> None:
        session.create_pool(PATH, key="id", exist_ok=True)

    def add(self, session: WriteSession, *ids: int, txn: Marker | None = None) -> None:
        session.pool(PATH).load(table_of(ids), txn=txn)

    def replace(self, session: WriteSession, *ids: int) -> None:
        pool = session.pool(PATH)
        pool.replace(pool.write_objects(table_of(ids)), [KeyRange()])

    def delete(self, session: WriteSession, id: int) -> None:
        session.pool(PATH).delete(f"id = {id}")

    def compact(self, session: WriteSession) -> None:
        session.pool(PATH).compact()

    def vacuum(self, session: WriteSession) -> None:
        session.pool(PATH).vacuum(timedelta(0))

    def ids(self, lake: Lake, ref: str = "main") -> list[int]:
        return sorted(record["id"] for record in lake.pool(PATH, ref=ref).scan().records())


class Array:
    """An array, whose written chunks are the ids."""

    def create(self, session: WriteSession) -> None:
        create_array(session.create_icechunk(PATH, exist_ok=True).store)

    def add(self, session: WriteSession, *ids: int, txn: Marker | None = None) -> None:
        repository = session.icechunk(PATH)
        writable = repository.session
        for id in ids:
            set_chunk(writable.store, id, id)
        writable.commit("add", txn=txn)

    def delete(self, session: WriteSession, id: int) -> None:
        set_chunk(session.icechunk(PATH).store, id, -1)

    def ids(self, lake: Lake, ref: str = "main") -> list[int]:
        return sorted(value for value in chunk_values(lake.icechunk(PATH, ref=ref).store) if value >= 0)


Dataset = Table | Pool | Array
