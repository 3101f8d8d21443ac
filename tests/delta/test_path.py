"""Many paths of a log become the keys that each of them becomes by itself."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta.errors import PathOutsideTable
from lake_core.delta.path import data_key, data_keys, locate_all
from lake_core.store import MemoryStore
from tests.examples import examples

STORE = MemoryStore()
PATHS = st.lists(
    st.text("a./%4:\n\x7f", max_size=4) | st.sampled_from(["a/b", "p=é/x.parquet", "./a", "a//b", "a/../b", "../a"]),
    max_size=4,
)


def _keys_one_by_one(paths: list[str]) -> list[str] | None:
    """Return the keys, or None if a path is refused."""
    try:
        return [data_key(path, STORE) for path in paths]
    except PathOutsideTable:
        return None


def _keys_together(paths: pa.ChunkedArray) -> list[str] | None:
    try:
        keys: list[str] = data_keys(paths, STORE).to_pylist()
        assert locate_all(paths, (STORE,)) == (keys, {})
        return keys
    except PathOutsideTable:
        return None


@settings(max_examples=examples(2000))
@given(PATHS, PATHS, st.integers(0, 3))
def test_many_paths_are_located_as_each_is(first: list[str], second: list[str], start: int) -> None:
    chunks = [pa.array(paths, pa.string()).slice(start) for paths in (first, second)]
    paths = [*first[start:], *second[start:]]
    assert _keys_together(pa.chunked_array(chunks)) == _keys_one_by_one(paths)
