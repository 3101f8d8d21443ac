"""The journals of a lake: of its pools, and of each pool's branches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from lake_core.journal import ZED_NAMING, Action, Add, Delete, Entry, Journal, State, StateRecord, Update
from lake_core.journal.entry import EPOCH
from lake_core.journal.errors import CorruptEntry, CorruptSnapshot, JournalDamaged
from lake_core.journal.pointer import read_head
from lake_core.pool.config import BranchConfig, Config, PoolConfig
from lake_core.pool.errors import DamagedLake, InvalidZng, NoSuchBranch
from lake_core.pool.metadata import MAX_METADATA, Record, decode_metadata, named_record, time_of, type_name
from lake_core.pool.types import STRING, UINT64
from lake_core.pool.value import Value
from lake_core.pool.zng.writer import encode_values

if TYPE_CHECKING:
    from lake_core.clock import AwareClock
    from lake_core.store import ObjectStore

_CONFIGS: Final[dict[str, type[PoolConfig] | type[BranchConfig]]] = {
    each.TYPE: each for each in (PoolConfig, BranchConfig)
}
_SNAPSHOT_EVERY: Final = 10
"""How many entries are between cached snapshots. `zed` writes them at the same interval."""


class ConfigCodec:
    """The encoding of entries and snapshots in `zed`: records of configurations.

    The type of a record in an entry names its action.
    """

    __slots__ = ()

    def encode(self, entry: Entry) -> bytes:
        """Return an entry as bytes."""
        return encode_values([_action_value(action) for action in entry.actions])

    def decode(self, number: int, data: bytes) -> Entry:
        """Return the entry that the bytes encode.

        Empty bytes are an entry that changes nothing. Raises CorruptEntry.
        """
        try:
            actions = tuple(_action(value) for value in decode_metadata(data))
            times = [time_of(action.value.ts) for action in actions if not isinstance(action, Delete)]
        except InvalidZng as error:
            raise CorruptEntry(f"entry {number} is not valid: {error}") from None
        return Entry(number, max(times, default=EPOCH), "", actions)

    def owns(self, entry: Entry, data: bytes, stored: bytes) -> bool:
        """Return whether the stored bytes are those of the append.

        All bytes are compared, as entries name no writer.
        """
        return stored == data

    def encode_snapshot(self, state: State) -> bytes:
        """Return a snapshot as bytes: the number of its entry, and the configurations."""
        return encode_values([Value.of(UINT64, state.number), *(config.to_value() for config in state.values())])

    def decode_snapshot(self, data: bytes) -> State:
        """Return the state that a snapshot encodes. Raises CorruptSnapshot."""
        try:
            first, *values = decode_metadata(data)
            number = first.decode()
            if first.type != UINT64 or not isinstance(number, int) or number < 1:
                raise InvalidZng("it does not begin with the number of an entry")
            configs = [_config(value) for value in values]
            time = max((time_of(config.ts) for config in configs), default=EPOCH)
        except (InvalidZng, ValueError) as error:
            raise CorruptSnapshot(f"a snapshot cannot be read: {error}") from None
        return State.of(number, time, {config.name: StateRecord(config, number, time) for config in configs})


def _action(value: Value) -> Action:
    record = Record(value)
    match type_name(value):
        case "journal.Add":
            config = _config(record.field("entry"))
            return Add(config.name, config)
        case "journal.Update":
            config = _config(record.field("entry"))
            return Update(config.name, config)
        case "journal.Delete":
            return Delete(record.text("entry_key"))
    raise InvalidZng(f"a record of the type {type_name(value)!r} is not an action of a journal")


def _config(value: Value) -> Config:
    config = _CONFIGS.get(type_name(value))
    if config is None:
        raise InvalidZng(f"a record of the type {type_name(value)!r} is not a configuration")
    return config.from_value(value)


def _action_value(action: Action) -> Value:
    if isinstance(action, Delete):
        return named_record("journal.Delete", {"entry_key": Value.of(STRING, action.key)})
    return named_record(
        "journal.Add" if isinstance(action, Add) else "journal.Update", {"entry": action.value.to_value()}
    )


def open_journal(store: ObjectStore, folder: str, clock: AwareClock) -> Journal:
    """Return the journal in a folder, in the format of `zed`.

    HEAD is written after each entry, because `zed` does not read entries beyond it.

    Snapshots are not cached in a store that is one of several states.
    """
    return Journal(
        store,
        folder,
        codec=ConfigCodec(),
        naming=ZED_NAMING,
        clock=clock,
        snapshot_every=sys.maxsize if store.versioned else _SNAPSHOT_EVERY,
        head_every=1,
        max_entry_bytes=MAX_METADATA,
        max_snapshot_bytes=MAX_METADATA,
    )


def read_state(journal: Journal) -> State:
    """Return the newest state of a journal.

    Entries beyond HEAD are part of the state: their writer died before it moved HEAD. An entry that HEAD names but that
    does not exist was lost, because entries are written before HEAD.

    Raises:
        DamagedLake: The journal or an entry is missing, or an entry cannot be read.
    """
    key = f"{journal.folder}/{ZED_NAMING.head}"
    head = read_head(journal.store, key)
    try:
        state = journal.state()
    except (CorruptEntry, JournalDamaged) as error:
        raise DamagedLake(str(error), getattr(error, "key", None) or journal.folder) from error
    if journal.store.versioned and state.number:
        return state
    if state.number == 0 and head.etag is None:
        raise DamagedLake(f"the journal {journal.folder} is missing; restore it from a backup", key)
    if head.value is not None and head.value > state.number:
        raise DamagedLake(
            f"{key} refers to entry {head.value}, but the journal ends at entry {state.number}; "
            "restore the missing entries from a backup",
            key,
        )
    return state


def branch_of(state: State, name: str) -> BranchConfig:
    """Return a branch of the state of a pool's branches. Raises NoSuchBranch."""
    branch = state.get(name)
    if not isinstance(branch, BranchConfig):
        raise NoSuchBranch(f"the pool has no branch {name!r}; its branches are {', '.join(state) or 'none'}")
    return branch
