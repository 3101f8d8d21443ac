"""Zarr's own tests of stores, on the store of a session.

A session stores `zarr.json` documents and the chunks of arrays that exist, as icechunk does. Tests of Zarr that write
other keys or bytes are repeated here with valid ones: `OVERRIDDEN` lists them with the reason.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync
from zarr.testing.stateful import SyncStoreWrapper, ZarrHierarchyStateMachine, ZarrStoreStateMachine
from zarr.testing.store import StoreTests
from zarr.testing.strategies import node_names, np_array_and_chunks
from zarr.testing.utils import assert_bytes_equal

from lake_core.icechunk import IcechunkStore, Repository, Session
from lake_core.icechunk.errors import EmptyChunk, InvalidArrayMetadata, InvalidStoreKey
from lake_core.store import LocalStore, MemoryStore

GROUP = json.dumps({"zarr_format": 3, "node_type": "group"}).encode()
READ_ONLY = "the session is read-only|the store is read-only"

_FREE_KEYS = "keys such as foo or foo/0/0 are no keys of a hierarchy: chunks are written instead"
_NOT_A_DOCUMENT = "a zarr.json of other bytes than a document is refused: documents are written instead"
_NO_ARRAY = "a chunk is stored for an array that exists: the array is created first"
OVERRIDDEN = {
    "test_serializable_store": "a writable session is not pickled, as its changes would be lost: a fork is",
    "test_read_only_store_raises": _FREE_KEYS,
    "test_with_read_only_store": _FREE_KEYS,
    "test_get": _NO_ARRAY,
    "test_get_not_open": _NO_ARRAY,
    "test_get_raises": _NO_ARRAY,
    "test_get_many": _FREE_KEYS,
    "test_getsize": _NO_ARRAY,
    "test_getsize_prefix": _NO_ARRAY,
    "test_set": _NO_ARRAY,
    "test_set_not_open": _NO_ARRAY,
    "test_set_many": _FREE_KEYS,
    "test_get_partial_values": _NO_ARRAY,
    "test_exists": _NOT_A_DOCUMENT,
    "test_delete": _NOT_A_DOCUMENT,
    "test_delete_dir": _NOT_A_DOCUMENT,
    "test_is_empty": _FREE_KEYS,
    "test_clear": _FREE_KEYS,
    "test_list": _NOT_A_DOCUMENT,
    "test_list_prefix": _NOT_A_DOCUMENT,
    "test_list_empty_path": _NOT_A_DOCUMENT,
    "test_list_dir": _NOT_A_DOCUMENT,
    "test_set_if_not_exists": _FREE_KEYS,
    "test_get_bytes": _NOT_A_DOCUMENT,
    "test_get_bytes_sync": _NOT_A_DOCUMENT,
    "test_get_json": _NOT_A_DOCUMENT,
    "test_get_json_sync": _NOT_A_DOCUMENT,
    "test_get_sync": _FREE_KEYS,
    "test_set_sync": _FREE_KEYS,
    "test_delete_sync": _FREE_KEYS,
}


def document(dimensions: int) -> bytes:
    """Return the document of an array of 10 chunks along each dimension."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [1] * dimensions}}
    return json.dumps({"zarr_format": 3, "node_type": "array", "shape": [10] * dimensions, "chunk_grid": grid}).encode()


def buffer(data: bytes) -> Buffer:
    return cpu.Buffer.from_bytes(data)


def create_array_of(session: Session, key: str) -> None:
    """Create the array that a chunk's key belongs to."""
    path, _, coordinates = f"/{key}".rpartition("/c/")
    session.set_metadata(path or "/", document(len(coordinates.split("/"))))


class TestIcechunkStore(StoreTests[IcechunkStore, cpu.Buffer]):
    store_cls = IcechunkStore
    buffer_cls = cpu.Buffer

    async def set(self, store: IcechunkStore, key: str, value: Buffer) -> None:
        session = store.session
        assert isinstance(session, Session)
        if key.endswith("zarr.json"):
            session.set_metadata("/" + key.removesuffix("zarr.json").rstrip("/"), value.to_bytes())
            return
        create_array_of(session, key)
        path, _, coordinates = f"/{key}".rpartition("/c/")
        session.write_chunk(path or "/", tuple(map(int, coordinates.split("/"))), value.to_bytes())

    async def get(self, store: IcechunkStore, key: str) -> Buffer:
        session = store.session
        if key.endswith("zarr.json"):
            node = session.node("/" + key.removesuffix("zarr.json").rstrip("/"))
            assert node is not None
            return buffer(node.user_data)
        path, _, coordinates = f"/{key}".rpartition("/c/")
        reference = session.reference(session.array(path or "/"), tuple(map(int, coordinates.split("/"))))
        assert reference is not None
        return buffer(session.fetch(reference))

    @pytest.fixture(params=["memory", "local"])
    def store_kwargs(self, request: pytest.FixtureRequest, tmp_path: Any) -> dict[str, Any]:
        repository = Repository.create(MemoryStore() if request.param == "memory" else LocalStore(tmp_path))
        return {"session": repository.writable_session("main")}

    def test_store_repr(self, store: IcechunkStore) -> None:
        assert "on branch main" in repr(store)

    def test_store_supports_writes(self, store: IcechunkStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: IcechunkStore) -> None:
        assert store.supports_listing

    async def test_serializable_store(self, store: IcechunkStore) -> None:
        with pytest.raises(ValueError, match="fork"):
            pickle.dumps(store)
        session = store.session
        assert isinstance(session, Session)
        if isinstance(session.assets.store, MemoryStore):
            return
        fork = session.fork().store
        copy = pickle.loads(pickle.dumps(fork))
        assert (copy, copy.read_only) == (fork, fork.read_only)
        await copy.set("zarr.json", buffer(document(1)))
        await copy.set("c/0", buffer(b"\x01\x02\x03\x04"))
        assert_bytes_equal(await copy.get("c/0", default_buffer_prototype()), b"\x01\x02\x03\x04")

    async def test_read_only_store_raises(self, open_kwargs: dict[str, Any]) -> None:
        store = await IcechunkStore.open(**open_kwargs, read_only=True)
        assert store.read_only
        with pytest.raises(ValueError, match=READ_ONLY):
            await store.set("zarr.json", buffer(GROUP))
        with pytest.raises(ValueError, match=READ_ONLY):
            await store.delete("zarr.json")

    async def test_with_read_only_store(self, open_kwargs: dict[str, Any]) -> None:
        store = await IcechunkStore.open(**open_kwargs, read_only=True)
        writer = store.with_read_only(read_only=False)
        assert not writer._is_open
        assert not writer.read_only
        await writer.set("zarr.json", buffer(GROUP))
        await writer.delete("zarr.json")
        for reader in (store, store.with_read_only(read_only=True)):
            assert reader.read_only
            with pytest.raises(ValueError, match=READ_ONLY):
                await reader.set("zarr.json", buffer(GROUP))
            with pytest.raises(ValueError, match=READ_ONLY):
                await reader.delete("zarr.json")

    @pytest.mark.parametrize("key", ["c/0", "foo/c/0/0", "foo/c/0"])
    @pytest.mark.parametrize(
        ("data", "byte_range"),
        [
            (b"\x01\x02\x03\x04", None),
            (b"\x01\x02\x03\x04", RangeByteRequest(1, 4)),
            (b"\x01\x02\x03\x04", OffsetByteRequest(1)),
            (b"\x01\x02\x03\x04", SuffixByteRequest(1)),
            (b"\x00", None),
        ],
    )
    async def test_get(self, store: IcechunkStore, key: str, data: bytes, byte_range: ByteRequest) -> None:
        await super().test_get(store, key, data, byte_range)

    async def test_get_not_open(self, store_not_open: IcechunkStore) -> None:
        await super().test_get_not_open(store_not_open)

    async def test_get_raises(self, store: IcechunkStore) -> None:
        await super().test_get_raises(store)

    async def test_get_many(self, store: IcechunkStore) -> None:
        values = {f"c/{number}": str(number).encode() for number in range(10)}
        for key, value in values.items():
            await self.set(store, key, buffer(value))
        read = await _collect_aiterator(store._get_many((key, default_buffer_prototype(), None) for key in values))
        assert {key: value.to_bytes() for key, value in read if value is not None} == values

    @pytest.mark.parametrize("key", ["c/0", "foo/c/0/0", "foo/c/0"])
    @pytest.mark.parametrize("data", [b"\x01\x02\x03\x04", b"\x00"])
    async def test_getsize(self, store: IcechunkStore, key: str, data: bytes) -> None:
        await super().test_getsize(store, key, data)

    async def test_getsize_prefix(self, store: IcechunkStore) -> None:
        create_array_of(store.session, "c/0/0")  # type: ignore[arg-type]
        await super().test_getsize_prefix(store)

    @pytest.mark.parametrize("key", ["zarr.json", "c/0", "foo/c/0/0", "foo/zarr.json"])
    @pytest.mark.parametrize("data", [b"\x01\x02\x03\x04", b""])
    async def test_set(self, store: IcechunkStore, key: str, data: bytes) -> None:
        if key.endswith("zarr.json"):
            with pytest.raises(InvalidArrayMetadata):
                await store.set(key, buffer(data))
            data = GROUP
        else:
            create_array_of(store.session, key)  # type: ignore[arg-type]
            if not data:
                with pytest.raises(EmptyChunk):
                    await store.set(key, buffer(data))
                return
        await super().test_set(store, key, data)

    async def test_set_not_open(self, store_not_open: IcechunkStore) -> None:
        create_array_of(store_not_open.session, "c/0")  # type: ignore[arg-type]
        await super().test_set_not_open(store_not_open)

    async def test_set_many(self, store: IcechunkStore) -> None:
        values = {"zarr.json": document(1), "c/0": b"c/0", "foo/zarr.json": document(2), "foo/c/0/0": b"foo/c/0/0"}
        for keys in (("zarr.json", "foo/zarr.json"), ("c/0", "foo/c/0/0")):
            await store._set_many([(key, buffer(values[key])) for key in keys])
        for key, value in values.items():
            assert (await self.get(store, key)).to_bytes() == value

    @pytest.mark.parametrize(
        "key_ranges",
        [
            [],
            [("zarr.json", RangeByteRequest(0, 2))],
            [("c/0", RangeByteRequest(0, 2)), ("zarr.json", None)],
            [("c/0/0", RangeByteRequest(0, 2)), ("c/0/1", SuffixByteRequest(2)), ("c/0/2", OffsetByteRequest(2))],
        ],
    )
    async def test_get_partial_values(
        self, store: IcechunkStore, key_ranges: list[tuple[str, ByteRequest | None]]
    ) -> None:
        expected = []
        for key, byte_range in key_ranges:
            value = buffer(document(1) if key == "zarr.json" else key.encode())
            await self.set(store, key, value)
            whole = value.to_bytes()
            if isinstance(byte_range, RangeByteRequest):
                whole = whole[byte_range.start : byte_range.end]
            elif isinstance(byte_range, SuffixByteRequest):
                whole = whole[-byte_range.suffix :]
            elif isinstance(byte_range, OffsetByteRequest):
                whole = whole[byte_range.offset :]
            expected.append(whole)
        read = await store.get_partial_values(default_buffer_prototype(), key_ranges)
        assert [value.to_bytes() for value in read if value is not None] == expected

    async def test_exists(self, store: IcechunkStore) -> None:
        assert not await store.exists("foo")
        await store.set("foo/zarr.json", buffer(GROUP))
        assert await store.exists("foo/zarr.json")

    async def test_delete(self, store: IcechunkStore) -> None:
        await store.set("foo/zarr.json", buffer(GROUP))
        assert await store.exists("foo/zarr.json")
        await store.delete("foo/zarr.json")
        assert not await store.exists("foo/zarr.json")

    async def test_delete_dir(self, store: IcechunkStore) -> None:
        await store.set("zarr.json", buffer(GROUP))
        await store.set("foo-bar/zarr.json", buffer(GROUP))
        await store.set("foo/zarr.json", buffer(document(1)))
        await store.set("foo/c/0", buffer(b"chunk"))
        await store.delete_dir("foo")
        assert sorted(await _collect_aiterator(store.list())) == ["foo-bar/zarr.json", "zarr.json"]
        assert not await store.exists("foo/c/0")

    async def test_is_empty(self, store: IcechunkStore) -> None:
        assert await store.is_empty("")
        await self.set(store, "foo/c/0", buffer(b"something"))
        assert not await store.is_empty("")
        assert await store.is_empty("fo")
        assert not await store.is_empty("foo/")
        assert not await store.is_empty("foo")
        assert await store.is_empty("spam/")

    async def test_clear(self, store: IcechunkStore) -> None:
        await self.set(store, "c/0", buffer(b"something"))
        await store.clear()
        assert await store.is_empty("")

    async def test_list(self, store: IcechunkStore) -> None:
        assert await _collect_aiterator(store.list()) == ()
        await store.set("foo/zarr.json", buffer(document(1)))
        await store._set_many([(f"foo/c/{index}", buffer(b"x")) for index in range(10)])
        assert sorted(await _collect_aiterator(store.list())) == [
            *(f"foo/c/{index}" for index in range(10)),
            "foo/zarr.json",
        ]

    async def test_list_prefix(self, store: IcechunkStore) -> None:
        prefixes = ("", "a/", "a/b/", "a/b/c/")
        keys = [prefix + "zarr.json" for prefix in prefixes]
        await store._set_many([(key, buffer(GROUP)) for key in keys])
        for prefix in prefixes:
            assert sorted(await _collect_aiterator(store.list_prefix(prefix))) == sorted(
                key for key in keys if key.startswith(prefix)
            )

    async def test_list_empty_path(self, store: IcechunkStore) -> None:
        keys = ["foo/bar/c/1", "foo/bar/zarr.json", "foo/baz/c/0", "foo/baz/zarr.json"]
        for key in keys[0], keys[2]:
            await self.set(store, key, buffer(b"x"))
        assert sorted(await _collect_aiterator(store.list())) == keys
        assert sorted(await _collect_aiterator(store.list_prefix(""))) == keys
        assert sorted(await _collect_aiterator(store.list_prefix("foo/bar/"))) == keys[:2]

    async def test_list_dir(self, store: IcechunkStore) -> None:
        assert await _collect_aiterator(store.list_dir("")) == ()
        await self.set(store, "foo/c/1", buffer(b"\x01"))
        await self.set(store, "bar/zarr.json", buffer(GROUP))
        await self.set(store, "bar/second/zarr.json", buffer(GROUP))
        for path, names in {
            "": ["bar", "foo"],
            "foo": ["c", "zarr.json"],
            "foo/c": ["1"],
            "bar": ["second", "zarr.json"],
        }.items():
            assert sorted(await _collect_aiterator(store.list_dir(path))) == names
            assert sorted(await _collect_aiterator(store.list_dir(path + "/"))) == names

    async def test_set_if_not_exists(self, store: IcechunkStore) -> None:
        await self.set(store, "c/0", buffer(b"0000"))
        for key in ("c/0", "c/1"):
            await store.set_if_not_exists(key, buffer(b"1111"))
        assert_bytes_equal(await store.get("c/0", default_buffer_prototype()), b"0000")
        assert_bytes_equal(await store.get("c/1", default_buffer_prototype()), b"1111")

    async def test_get_bytes(self, store: IcechunkStore) -> None:
        await self.set(store, "zarr.json", buffer(GROUP))
        assert await store._get_bytes("zarr.json", prototype=default_buffer_prototype()) == GROUP
        with pytest.raises(FileNotFoundError):
            await store._get_bytes("nonexistent_key", prototype=default_buffer_prototype())

    def test_get_bytes_sync(self, store: IcechunkStore) -> None:
        sync(self.set(store, "zarr.json", buffer(GROUP)))
        assert store._get_bytes_sync("zarr.json", prototype=default_buffer_prototype()) == GROUP

    async def test_get_json(self, store: IcechunkStore) -> None:
        await self.set(store, "zarr.json", buffer(GROUP))
        assert await store._get_json("zarr.json", prototype=default_buffer_prototype()) == json.loads(GROUP)

    def test_get_json_sync(self, store: IcechunkStore) -> None:
        sync(self.set(store, "zarr.json", buffer(GROUP)))
        assert store._get_json_sync("zarr.json", prototype=default_buffer_prototype()) == json.loads(GROUP)

    def test_get_sync(self, store: IcechunkStore) -> None:
        sync(self.set(store, "c/0", buffer(b"\x01\x02")))
        assert_bytes_equal(store.get_sync("c/0"), b"\x01\x02")

    def test_set_sync(self, store: IcechunkStore) -> None:
        create_array_of(store.session, "c/0")  # type: ignore[arg-type]
        store.set_sync("c/0", buffer(b"\x01\x02"))
        assert_bytes_equal(sync(self.get(store, "c/0")), b"\x01\x02")

    def test_delete_sync(self, store: IcechunkStore) -> None:
        create_array_of(store.session, "c/0")  # type: ignore[arg-type]
        store.set_sync("c/0", buffer(b"\x01\x02"))
        store.delete_sync("c/0")
        assert store.get_sync("c/0") is None

    @pytest.mark.parametrize("key", ["foo", "foo/0/0", "foo/c/0.0", ".zarray", "k"])
    async def test_keys_that_the_overridden_tests_would_write_are_refused(self, store: IcechunkStore, key: str) -> None:
        with pytest.raises(InvalidStoreKey):
            await store.set(key, buffer(b"x"))


def test_every_overridden_test_has_a_reason() -> None:
    required = {"test_store_repr", "test_store_supports_writes", "test_store_supports_listing"}
    overridden = {name for name in vars(TestIcechunkStore) if name in dir(StoreTests) and name.startswith("test_")}
    assert overridden - required == set(OVERRIDDEN)


# Histories that Hypothesis makes up


class HierarchyMachine(ZarrHierarchyStateMachine):
    """Arrays and groups in a session that is committed, and opened again, at any time."""

    def __init__(self) -> None:
        self.repository = Repository.create(MemoryStore())
        super().__init__(self.repository.writable_session("main").store)

    @rule(data=st.data(), name=node_names, array_and_chunks=np_array_and_chunks())
    def add_array(self, data: st.DataObject, name: str, array_and_chunks: Any) -> None:
        # Neither this package nor icechunk stores an array whose chunks have no elements.
        assume(0 not in array_and_chunks[1])
        super().add_array(data, name, array_and_chunks)

    @rule()
    def commit(self) -> None:
        session = self.store.session  # type: ignore[attr-defined]
        if session.has_uncommitted_changes:
            session.commit("a step")
            self.store = self.repository.writable_session("main").store


class StoreMachine(ZarrStoreStateMachine):
    """Keys and values in a session that is committed, and opened again, at any time.

    Only the keys are those of hierarchies.
    """

    def __init__(self) -> None:
        self.repository = Repository.create(MemoryStore())
        super().__init__(self.repository.writable_session("main").store)

    @rule(path=st.sampled_from(["", "a/", "b/", "b/a/", "c/"]))
    def add_group(self, path: str) -> None:
        self._put(f"{path}zarr.json", GROUP)

    @rule(
        number=st.integers(0, 9), data=st.binary(min_size=1, max_size=700), path=st.sampled_from(["a/array/", "array/"])
    )
    def set(self, number: int, data: bytes, path: str) -> None:
        if f"{path}zarr.json" not in self.model:
            self._put(f"{path}zarr.json", document(1))
        self._put(f"{path}c/{number}", data)

    def _put(self, key: str, data: bytes) -> None:
        self.store.set(key, buffer(data))
        self.model[key] = buffer(data)

    @precondition(lambda self: bool(self.model))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.store.delete(key)
        # A node goes with all below it.
        begin = key.removesuffix("zarr.json")
        self.model = {other: value for other, value in self.model.items() if not other.startswith(begin)}

    @rule()
    def commit(self) -> None:
        session = self.store.store.session  # type: ignore[attr-defined]
        for path in ("a", "b"):
            if any(key.startswith(f"{path}/") for key in self.model) and f"{path}/zarr.json" not in self.model:
                self._put(f"{path}/zarr.json", GROUP)
        if session.has_uncommitted_changes:
            session.commit("a step")
            self.store = SyncStoreWrapper(self.repository.writable_session("main").store)


@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize("machine", [HierarchyMachine, StoreMachine])
@pytest.mark.parametrize("examples", [5, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_histories_agree_with_a_model(machine: type[RuleBasedStateMachine], examples: int) -> None:
    checks = list(HealthCheck)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=checks,
            derandomize=examples < 100,
        ),
    )
