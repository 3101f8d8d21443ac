"""A register: a set of lines, some with an attachment, kept as a log of numbered text files.

entries/00000001.json   {"added": {line: attachment or null, …}, "removed": [line, …]}   one version each
attachments/<uuid>      what lines have attached; immutable
index/00000001.txt      all lines as of a version, derived
HEAD                    the number of the newest entry
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from lake_core import runtime
from lake_core.dataset import (
    NOTHING,
    Applied,
    ApplyContext,
    DatasetConflict,
    DatasetFormat,
    KeyClass,
    ObjectsInspection,
)
from lake_core.errors import NotFound
from lake_core.store import ObjectStore

HEAD = "HEAD"
_CLASSES = (
    (re.compile(r"entries/\d{8}\.json"), KeyClass.LOG),
    (re.compile(r"attachments/[0-9a-f-]{36}"), KeyClass.UNIQUE),
    (re.compile(r"index/\d{8}\.txt"), KeyClass.DERIVED),
    (re.compile(HEAD), KeyClass.POINTER),
)


def entry_key(version: int) -> str:
    return f"entries/{version:08}.json"


@dataclass(frozen=True, slots=True)
class Register:
    """A register in any object store: a folder of its own, or a state of a lake."""

    store: ObjectStore

    @classmethod
    def create(cls, store: ObjectStore) -> Register:
        store.put(entry_key(0), _encode({}, ()), if_absent=True)
        store.put(HEAD, b"0", if_absent=True)
        return cls(store)

    @property
    def version(self) -> int:
        version = int(self.store.get(HEAD))
        while version and not self.store.exists(entry_key(version)):  # a log that is looked at without its end
            version -= 1
        while self.store.exists(entry_key(version + 1)):  # written, and HEAD not moved yet
            version += 1
        return version

    def lines(self, version: int | None = None) -> dict[str, str | None]:
        """Return the lines of a version, with the keys of their attachments."""
        lines: dict[str, str | None] = {}
        for number in range((self.version if version is None else version) + 1):
            entry = json.loads(self.store.get(entry_key(number)))
            lines = {line: key for line, key in lines.items() if line not in entry["removed"]} | entry["added"]
        return lines

    def add(self, line: str, attachment: bytes | None = None) -> None:
        key = None if attachment is None else f"attachments/{runtime.uuid4()}"
        if key is not None and attachment is not None:
            self.store.put(key, attachment, unique=True)
        self._append({line: key}, ())

    def remove(self, line: str) -> None:
        self._append({}, [line])

    def _append(self, added: dict[str, str | None], removed: Sequence[str]) -> None:
        version = self.version + 1
        self.store.put(entry_key(version), _encode(added, removed), if_absent=True)
        self.store.put(HEAD, str(version).encode())


class RegisterInspection(ObjectsInspection):
    """The lines of a register, as SQL reads them."""

    def schema(self) -> pa.Schema:
        return pa.schema([("line", pa.string())])

    def batches(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.RecordBatchReader:
        return pa.table([pa.array(Register(self.store).lines())], self.schema()).to_reader()


class RegisterFormat(DatasetFormat):
    """What a lake must know of registers."""

    format = "register"
    description = "a register of lines"
    derived_prefix = "index/"
    is_tabular = True

    def inspect(self, store: ObjectStore) -> RegisterInspection:
        return RegisterInspection(self, store)

    def key_class(self, key: str) -> KeyClass | None:
        return next((kind for pattern, kind in _CLASSES if pattern.fullmatch(key)), None)

    def exists(self, store: ObjectStore) -> bool:
        return store.exists(HEAD)

    def open(self, store: ObjectStore, *, clock: Callable[[], datetime] | None, **options: Any) -> Register:
        return Register(store)

    def create(self, store: ObjectStore, *args: Any, clock: Callable[[], datetime] | None, **options: Any) -> Register:
        return Register.create(store)

    def version(self, store: ObjectStore) -> int | None:
        return Register(store).version if self.exists(store) else None

    def log_keys(self, store: ObjectStore, version: int) -> Sequence[str]:
        return [entry_key(version)]

    def pointer_keys(self, store: ObjectStore) -> Sequence[str]:
        return [HEAD] if self.exists(store) else []

    def is_behind(self, pointer: str, store: ObjectStore, other: ObjectStore) -> bool:
        return int(store.get(pointer)) < int(other.get(pointer))

    def apply(
        self, base: ObjectStore | None, incoming: ObjectStore | None, target: ObjectStore | None, context: ApplyContext
    ) -> Applied:
        before, after, head = ({} if store is None else Register(store).lines() for store in (base, incoming, target))
        added = {line: key for line, key in after.items() if line not in before}
        removed = [line for line in before if line not in after]
        for line in added:
            if line in head:
                raise DatasetConflict(f"{line!r} was added on {context.onto} too", kind="SameLine")
        for line in removed:
            if line not in head:
                raise DatasetConflict(f"{line!r} was removed on {context.onto} too", kind="SameLine")
        version = 0 if target is None else Register(target).version + 1
        if target is not None and not added and not removed:
            return Applied({}, version - 1, NOTHING)
        puts = {entry_key(version): _encode(added, removed), HEAD: str(version).encode()}
        references = [key for key in added.values() if key is not None]
        return Applied(puts, version, "EDIT", {"lines_added": len(added), "lines_removed": len(removed)}, references)

    def reachable(self, state: ObjectStore, since: int | None) -> Iterable[str]:
        register = Register(state)
        newest = register.version
        for version in range(newest if since is None else since, newest + 1):
            yield from (key for key in register.lines(version).values() if key is not None)

    def collectable(self, key: str) -> bool:
        return True

    def derived_from(self, key: str) -> str | None:
        return entry_key(int(key[-12:-4]))

    def write_derived(self, state: ObjectStore, derived_root: ObjectStore, now: datetime, *, due: bool = False) -> None:
        register = Register(state)
        derived_root.put(f"index/{register.version:08}.txt", "\n".join(sorted(register.lines())).encode())


def read_index(store: ObjectStore, version: int) -> str | None:
    """Return the derived index of a version, if it is there."""
    try:
        return store.get(f"index/{version:08}.txt").decode()
    except NotFound:
        return None


def _encode(added: dict[str, str | None], removed: Iterable[str]) -> bytes:
    return json.dumps({"added": added, "removed": list(removed)}).encode()
