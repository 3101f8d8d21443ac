"""A note: one text, of which a pointer names the newest draft. It counts no versions.

drafts/<uuid>   {"text": …, "parent": the draft before it, or null}; immutable
CURRENT         the id of the newest draft
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lake_core import runtime
from lake_core.dataset import NOTHING, Applied, ApplyContext, DatasetConflict, DatasetFormat, KeyClass
from lake_core.store import ObjectStore

CURRENT = "CURRENT"


@dataclass(frozen=True, slots=True)
class Note:
    """A note in any object store."""

    store: ObjectStore

    @property
    def text(self) -> str:
        return str(json.loads(self.store.get(f"drafts/{self.store.get(CURRENT).decode()}"))["text"])

    def write(self, text: str) -> None:
        parent = self.store.get(CURRENT).decode() if self.store.exists(CURRENT) else None
        self.store.put(CURRENT, _draft(self.store, text, parent).encode())

    def drafts(self) -> Iterator[str]:
        """Yield the ids of its drafts, newest first."""
        draft: str | None = self.store.get(CURRENT).decode()
        while draft is not None:
            yield draft
            draft = json.loads(self.store.get(f"drafts/{draft}"))["parent"]


class NoteFormat(DatasetFormat):
    """What a lake must know of notes."""

    format = "note"

    def key_class(self, key: str) -> KeyClass | None:
        return KeyClass.POINTER if key == CURRENT else KeyClass.UNIQUE if key.startswith("drafts/") else None

    def exists(self, store: ObjectStore) -> bool:
        return store.exists(CURRENT)

    def open(self, store: ObjectStore, *, clock: Callable[[], datetime] | None, **options: Any) -> Note:
        return Note(store)

    def create(self, store: ObjectStore, *args: Any, clock: Callable[[], datetime] | None, **options: Any) -> Note:
        note = Note(store)
        note.write(*args)
        return note

    def head(
        self, store: ObjectStore, count: int, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        return ["text"], [{"text": Note(store).text}][:count]

    def version(self, store: ObjectStore) -> int | None:
        return None

    def pointer_keys(self, store: ObjectStore) -> Sequence[str]:
        return [CURRENT] if self.exists(store) else []

    def is_behind(self, pointer: str, store: ObjectStore, other: ObjectStore) -> bool:
        return store.get(pointer).decode() in Note(other).drafts()

    def apply(
        self, base: ObjectStore | None, incoming: ObjectStore | None, target: ObjectStore | None, context: ApplyContext
    ) -> Applied:
        before = None if base is None else base.get(CURRENT)
        head = None if target is None else target.get(CURRENT)
        if incoming is None:
            if before != head:
                raise DatasetConflict(f"it was dropped here but rewritten on {context.onto}", kind="Rewritten")
            return Applied({}, None, "DROP")
        after = incoming.get(CURRENT)
        if target is None or head is None:
            return Applied({CURRENT: after}, None, "WRITE")
        if after in (head, before):
            return Applied({}, None, NOTHING)
        if head != before and not context.recreated:
            raise DatasetConflict(f"it was rewritten on {context.onto} too", kind="Rewritten")
        if self.is_behind(CURRENT, target, incoming):
            return Applied({CURRENT: after}, None, "WRITE")
        # Taking an older text, or one that was created where a note was dropped, is writing it anew, so that the
        # pointer only moves on.
        draft = _draft(context.data_root, Note(incoming).text, head.decode())
        return Applied({CURRENT: draft.encode()}, None, "WRITE", references=[f"drafts/{draft}"])

    def reachable(self, state: ObjectStore, since: int | None) -> Iterable[str]:
        return (f"drafts/{draft}" for draft in Note(state).drafts())

    def collectable(self, key: str) -> bool:
        return True


def _draft(store: ObjectStore, text: str, parent: str | None) -> str:
    draft = str(runtime.uuid4())
    store.put(f"drafts/{draft}", json.dumps({"text": text, "parent": parent}).encode(), unique=True)
    return draft
