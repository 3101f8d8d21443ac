"""The ledger of files and their batches: a journal beside the lake.

With it, no file lands twice when a sensor's cursor is reset. It belongs to one folder of files. What has landed, each
dataset says for itself, on each of its branches: the ledger only remembers it for datasets that may forget.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from lake_core.journal import Action, Add, Append, Journal, State, Update
from lake_core.store import ObjectStore
from lake_orch.assets.landing.zone import FoundFile, LandingZone
from lake_orch.errors import InvalidDefinition, LandingForgotten

if TYPE_CHECKING:
    from lake_orch.assets.asset_format import AssetLanding

FOLDER = "_landing"
_LANDED, _BEGUN = "landed/", "begun/"
_ID = "id"
_URL = "url"
_USER = re.compile(r"(?<=://)[^/@]*@")
"""The user and password of a URL, which are never stored."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A dataset in which batches land, on one branch."""

    path: str
    branch: str = ""
    """The branch of the lake; nothing in a folder of plain tables."""
    id: str = ""
    """The identity of the dataset. One that is created again at its path has another."""

    @property
    def key(self) -> str:
        """Return its key. Those of one dataset begin alike."""
        return json.dumps([self.path, self.id, self.branch])

    @property
    def dataset(self) -> str:
        """Return the beginning of the keys of the dataset, on whatever branch."""
        return json.dumps([self.path, self.id, ""]).removesuffix('""]')


@dataclass(frozen=True, slots=True)
class Landed:
    """What has landed in a dataset."""

    last: int = 0
    """The number of the last batch."""
    may_forget: Destination | None = None
    """The dataset, if it may forget that."""


@dataclass(frozen=True, slots=True)
class _Note:
    """A batch that was begun for a destination, or that was seen there."""

    number: int
    begun_at: str | None
    """When it was begun, so that it did not land before; None if nobody has noted that."""

    def may_be_forgotten(self, now: datetime, retention: timedelta) -> bool:
        """Return whether a dataset may no longer record it, which it does for this time after it landed."""
        return self.begun_at is None or now - datetime.fromisoformat(self.begun_at) >= retention


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A file in a batch."""

    key: str
    size: int
    fingerprint: str
    """The fingerprint when the batch last read the file, or when the batch was made."""
    late: bool = False
    """True if its name sorts before that of a file in an earlier batch."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch: files that are committed together, under one number."""

    number: int
    """The version of the transaction identifier, from 1 without gaps."""
    files: Sequence[LandedFile]


@dataclass(frozen=True, slots=True)
class LandingDiff:
    """The difference between a listing and the ledger."""

    new: Sequence[FoundFile] = ()
    rewritten: Sequence[FoundFile] = ()
    """Files that were rewritten after their batch landed. The table has the rows of the first version."""
    gone: Sequence[str] = ()
    """Missing files of batches that have not landed."""


@dataclass(frozen=True)
class Ledger:
    """The batches of one landing zone."""

    zone: LandingZone
    journal: Journal = field(repr=False)

    @classmethod
    def of(cls, zone: LandingZone, store: ObjectStore) -> Ledger:
        """Open the ledger of a zone, kept in a store: the lake's root."""
        return cls(zone, Journal(store, f"{FOLDER}/{zone.name}"))

    def batches(self, after: int = 0) -> list[BatchRecord]:
        """List the batches with numbers above this one, in order."""
        state = self._state()
        return [
            record for number in range(after + 1, _last(state) + 1) if (record := _batch(state, number)) is not None
        ]

    def batch(self, number: int) -> BatchRecord | None:
        """Return a batch by its number."""
        return _batch(self._state(), number)

    @property
    def landed(self) -> int:
        """Return the last batch of which a run or a sensor has seen that it is in some dataset."""
        return max((note.number for note in _notes(self._state(), _LANDED).values()), default=0)

    def landed_in(self, landing: AssetLanding[Any], dataset: Any, branch: str = "") -> Landed:
        """Return what has landed in a dataset, as it is on a branch, and remember it.

        Raises:
            LandingForgotten: Batches were begun so long ago that the dataset may have forgotten that they landed.
        """
        destination, retention = (
            Destination(landing.path, branch, landing.identity(dataset)),
            landing.retention(dataset),
        )
        last = self._last_batch(destination, landing.last_batch(dataset, self.zone.app_id), retention)
        return Landed(last, None if retention is None else destination)

    def _last_batch(self, destination: Destination, recorded: int | None, retention: timedelta | None) -> int:
        """Return the last batch in a dataset, by what it records itself, and for how long it does that."""
        if recorded is not None:
            self.journal.append(partial(self._with_seen, destination, recorded))
            return recorded
        if retention is None:
            return 0
        state, now, assumed = self._state(), datetime.now(UTC), self.zone.assume_landed
        seen = _notes(state, _LANDED)
        own = seen.get(destination.key)
        # What landed later, the dataset would still record: it was reverted, or the branch was set back.
        last = own.number if own is not None and own.may_be_forgotten(now, retention) else 0
        if assumed is not None:
            return max(last, assumed)
        if any(
            key.startswith(destination.dataset) and note.number > last and note.may_be_forgotten(now, retention)
            for key, note in (*seen.items(), *_notes(state, _BEGUN).items())
        ):
            raise LandingForgotten(
                f"{destination.path} may have forgotten which batches of landing zone {self.zone.name!r} it has, as "
                "its transaction identifiers expire. Look which files of the zone's ledger it has, and set "
                "assume_landed= of the zone to the number of their last batch, or to 0"
            )
        return last

    def _with_seen(self, destination: Destination, number: int, state: State) -> Sequence[Action]:
        """Record that a batch was seen in a dataset, unless that is known."""
        self._check_place(state)
        key = f"{_LANDED}{destination.key}"
        stored, beginning = state.get(key), state.get(f"{_BEGUN}{destination.key}")
        if stored is not None and stored[0] == number:
            return ()
        begun_at = beginning[1] if beginning is not None and beginning[0] == number else None
        return [_set(state, key, [number, begun_at])]

    def note_begun(self, destination: Destination, number: int) -> None:
        """Record that a run is about to land a batch in a dataset that may forget it."""
        key, value = f"{_BEGUN}{destination.key}", [number, datetime.now(UTC).isoformat()]
        self.journal.append(lambda state: [_set(state, key, value)])

    @property
    def id(self) -> str:
        """Return the id of the ledger, or "" before the first batch.

        An earlier lake at the same location had a ledger with another id.
        """
        return str(self.journal.state().get(_ID, ""))

    def diff(self, listed: Iterable[FoundFile], landed: int) -> LandingDiff:
        """Compare a listing with the ledger."""
        state = self._state()
        new: list[FoundFile] = []
        rewritten: list[FoundFile] = []
        present = set()
        for file in listed:
            present.add(file.key)
            stored = state.get(f"file/{file.key}")
            if stored is None:
                new.append(file)
            elif file.fingerprint not in (stored["fingerprint"], stored.get("reported")) and stored["batch"] <= landed:
                rewritten.append(file)
        waiting = (file.key for batch in self.batches(landed) for file in batch.files)
        return LandingDiff(new, rewritten, [key for key in waiting if key not in present])

    def make_batch(self, files: Sequence[FoundFile]) -> BatchRecord | None:
        """Put files into the next batch, up to its limits. Return None if all of them are already in a batch.

        Concurrent calls do not put a file into two batches.
        """

        def plan(state: State) -> Append[BatchRecord | None]:
            self._check_place(state)
            chosen = _chosen([file for file in files if f"file/{file.key}" not in state], self.zone)
            if not chosen:
                return Append((), None)
            number, newest = _last(state) + 1, str(state.get("newest", ""))
            record = BatchRecord(
                number, [LandedFile(file.key, file.size, file.fingerprint, file.key < newest) for file in chosen]
            )
            actions: list[Action] = [Add(f"batch/{number:012}", {"files": [_file_json(file) for file in record.files]})]
            actions += [
                Add(f"file/{file.key}", {"batch": number, "fingerprint": file.fingerprint}) for file in record.files
            ]
            if _ID not in state:
                actions.append(Add(_ID, uuid.uuid4().hex))
            if (url := self._url()) != state.get(_URL):
                actions.append(_set(state, _URL, url))
            latest = max(newest, *(file.key for file in record.files))
            actions += [_set(state, "newest", latest), _set(state, "last", number)]
            return Append(actions, record)

        return self.journal.append(plan)

    def _state(self) -> State:
        state = self.journal.state()
        self._check_place(state)
        return state

    def _check_place(self, state: State) -> None:
        """Check that the batches are of this folder, or of the one from which it has moved."""
        known, zone = state.get(_URL), self.zone
        if known not in (None, self._url(), *([] if zone.moved_from is None else [_place(zone.moved_from)])):
            raise InvalidDefinition(
                f"landing zone {zone.name!r} has landed files of {known}, and not of {self._url()}: give each folder a "
                f"name of its own. If this is the same folder in a new place, set moved_from={known!r}"
            )

    def _url(self) -> str:
        return _place(self.zone.url)

    def note_read(self, files: Sequence[FoundFile]) -> None:
        """Record the files as a run reads them.

        A file that was replaced before its batch landed is read in its current version.
        """
        self._note(files, "fingerprint")

    def note_reported(self, files: Sequence[FoundFile]) -> None:
        """Record that these files were reported as rewritten, so that they are reported once."""
        self._note(files, "reported")

    def _note(self, files: Sequence[FoundFile], field_name: str) -> None:
        def plan(state: State) -> Sequence[Action]:
            actions: list[Action] = []
            for file in files:
                stored = state.get(f"file/{file.key}")
                if stored is not None and stored.get(field_name) != file.fingerprint:
                    actions.append(Update(f"file/{file.key}", {**stored, field_name: file.fingerprint}))
            return actions

        self.journal.append(plan)


def _notes(state: State, kind: str) -> dict[str, _Note]:
    """Return the notes of a kind, by the keys of their destinations."""
    return {key.removeprefix(kind): _Note(*state[key]) for key in state.under(kind)}


def _set(state: State, key: str, value: Any) -> Action:
    return Update(key, value) if key in state else Add(key, value)


def _place(url: str) -> str:
    return _USER.sub("", url.rstrip("/"))


def _chosen(files: Sequence[FoundFile], zone: LandingZone) -> list[FoundFile]:
    chosen: list[FoundFile] = []
    size = 0
    for file in files[: zone.max_files]:
        size += file.size
        if chosen and size > zone.max_bytes:
            break
        chosen.append(file)
    return chosen


def _last(state: State) -> int:
    return int(state.get("last", 0))


def _batch(state: State, number: int) -> BatchRecord | None:
    batch = state.get(f"batch/{number:012}")
    return None if batch is None else BatchRecord(number, [_file(value) for value in batch["files"]])


def _file_json(file: LandedFile) -> dict[str, Any]:
    return {"key": file.key, "size": file.size, "fingerprint": file.fingerprint, "late": file.late}


def _file(value: Mapping[str, Any]) -> LandedFile:
    return LandedFile(value["key"], value["size"], value["fingerprint"], value.get("late", False))
