"""Entries decoded many at once are those decoded one by one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.graveler import AddressType, CorruptTable, Entry
from lake_core.graveler.entry_columns import EntryColumns, entry_columns, relative_addresses
from lake_core.graveler.record import join_value
from lake_core.graveler.wire import put_number, put_text

_ENTRIES = st.builds(
    Entry,
    address=st.text(max_size=150) | st.sampled_from(["a" * 127, "ü" * 64, "a" * 200]),
    size=st.integers(0, 2**62) | st.integers(0, 300),
    etag=st.text(max_size=40) | st.just("e" * 200),
    last_modified=st.integers(0, 10**19) | st.just(0),
    metadata=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2) | st.just({}),
    content_type=st.just("") | st.text(max_size=20),
    address_type=st.sampled_from(AddressType),
)


def one_by_one(entries: list[Entry]) -> EntryColumns:
    return EntryColumns(
        [entry.size for entry in entries],
        [entry.etag for entry in entries],
        [entry.last_modified // 1000 for entry in entries],
    )


@settings(max_examples=30)
@given(st.lists(_ENTRIES, max_size=6))
def test_they_are_as_decoded_one_by_one(entries: list[Entry]) -> None:
    assert entry_columns([join_value(entry.identity, entry.encode()) for entry in entries]) == one_by_one(entries)


@settings(max_examples=30)
@given(st.lists(_ENTRIES, max_size=6))
def test_addresses_are_as_decoded_one_by_one(entries: list[Entry]) -> None:
    addresses = relative_addresses([join_value(entry.identity, entry.encode()) for entry in entries])
    pairs = [(entry, address) for entry, address in zip(entries, addresses, strict=True) if address is not None]
    assert all(entry.address == address for entry, address in pairs)
    assert all(entry.address_type is AddressType.RELATIVE and not entry.metadata for entry, _ in pairs)


def test_addresses_of_usual_entries_are_not_left_out() -> None:
    entries = [Entry(f"data/{number}", number, f"etag-{number}", 10**18) for number in range(50)]
    values = [join_value(entry.identity, entry.encode()) for entry in entries]
    assert relative_addresses(values) == [entry.address for entry in entries]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.binary(max_size=60), _ENTRIES), max_size=4))
def test_identities_of_any_length(pairs: list[tuple[bytes, Entry]]) -> None:
    values = [join_value(identity, entry.encode()) for identity, entry in pairs]
    assert entry_columns(values) == one_by_one([entry for _, entry in pairs])


@pytest.mark.parametrize("usual", [0, 50])
def test_fields_in_another_order(usual: int) -> None:
    entries = [Entry(f"data/{number}", number, f"etag-{number}", 10**18) for number in range(usual)]
    values = [join_value(entry.identity, entry.encode()) for entry in entries]
    values.append(join_value(bytes(32), put_text(4, "etag") + put_number(3, 7) + put_text(1, "address")))
    assert entry_columns(values) == one_by_one([*entries, Entry("address", 7, "etag")])


@given(st.binary(max_size=120))
def test_damage_is_an_error_of_ours(data: bytes) -> None:
    with suppress(CorruptTable):
        assert len(entry_columns([join_value(bytes(32), data)]).sizes) == 1


def test_a_value_that_is_cut_short() -> None:
    value = join_value(bytes(32), Entry("data/1", 5, "etag", 10**18).encode())
    for length in range(len(value)):
        with pytest.raises(CorruptTable):
            entry_columns([value[:length]])
