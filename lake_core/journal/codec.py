"""The content of a journal's objects: a protocol of codecs, and the codec for JSON."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from lake_core.errors import InvalidKey
from lake_core.journal.archive import NO_ARCHIVE, Archive, Segment
from lake_core.journal.entry import EPOCH, Action, Add, Delete, Entry, Update
from lake_core.journal.errors import CorruptEntry, CorruptSnapshot, InvalidAction
from lake_core.journal.record import StateRecord
from lake_core.journal.state import State
from lake_core.store.key import check_key

_DEEPEST = 64
"""The deepest nesting of lists and objects in a value.

A deeper value could be written from a shallow stack, but not be read from a deep one.
"""
_LONGEST_KEY = 4096
_MICROSECOND = timedelta(microseconds=1)


class Codec(Protocol):
    """Turns entries and snapshots into bytes and back. Picklable, without state, safe to use from many threads.

    The bytes to decode are not trusted, but their length is bounded. Decoding raises only the errors named here.
    """

    def encode(self, entry: Entry) -> bytes:
        """Encode an entry. Raises InvalidAction for values that cannot be written."""
        ...

    def decode(self, number: int, data: bytes) -> Entry:
        """Decode the entry of that number. Raises CorruptEntry."""
        ...

    def owns(self, entry: Entry, data: bytes, stored: bytes) -> bool:
        """Return whether the bytes of a stored entry come from the append that tried to put `data`.

        `data` is the encoded `entry`. If entries carry the id of their writer, only the ids are compared. Otherwise all
        bytes are compared, and they must contain something unique to the append.
        """
        ...

    def encode_snapshot(self, state: State) -> bytes:
        """Encode a snapshot, with data to detect an incomplete one."""
        ...

    def decode_snapshot(self, data: bytes) -> State:
        """Decode the state of a snapshot. Raises CorruptSnapshot."""
        ...


class JsonCodec:
    """Entries as one JSON object; snapshots as a line with the checksum of the next one, which holds all the rest.

    Values are JSON values, at most 64 levels deep. Tuples come back as lists.
    """

    __slots__ = ()

    def encode(self, entry: Entry) -> bytes:
        """See `Codec.encode`."""
        actions = [_action_to_json(action) for action in entry.actions]
        body = {
            "format": 1,
            "number": entry.number,
            "time": _to_text(entry.time),
            "writer": entry.writer,
            "actions": actions,
        }
        return _dump(body)

    def decode(self, number: int, data: bytes) -> Entry:
        """See `Codec.decode`. Unknown fields are ignored; unknown formats and actions are refused."""
        try:
            body = _load(data)
            if not isinstance(body, dict):
                raise ValueError("it is not a JSON object")
            if body.get("format") != 1:
                raise ValueError(f"its format is {str(body.get('format'))[:20]!r}, but this version supports only 1")
            if type(body.get("number")) is not int or body["number"] != number:
                raise ValueError(f"it says that its number is {str(body.get('number'))[:20]!r}")
            if not isinstance(body.get("writer"), str):
                raise ValueError("it has no writer")
            if not isinstance(body.get("actions"), list):
                raise ValueError("it has no actions")
            return Entry(
                number,
                _to_time(body.get("time")),
                body["writer"],
                tuple(_action_from_json(each) for each in body["actions"]),
            )
        except (ValueError, RecursionError, OverflowError) as error:
            raise CorruptEntry(f"entry {number} is not valid: {str(error)[:200]}") from None

    def owns(self, entry: Entry, data: bytes, stored: bytes) -> bool:
        """See `Codec.owns`: compares the writer's id."""
        return stored == data or self.decode(entry.number, stored).writer == entry.writer

    def encode_snapshot(self, state: State) -> bytes:
        """See `Codec.encode_snapshot`."""
        records = [
            [key, record.value, record.number, _to_microseconds(record.time)] for key, record in state.loaded_records()
        ]
        fields: dict[str, Any] = {"number": state.number, "time": _to_text(state.time), "records": records}
        if state.archive:
            fields["archive"] = _archive_to_json(state.current_archive)
        body = _dump(fields)
        return _dump({"format": 2 if state.archive else 1, "sha256": hashlib.sha256(body).hexdigest()}) + b"\n" + body

    def decode_snapshot(self, data: bytes) -> State:
        """See `Codec.decode_snapshot`."""
        try:
            line, _, text = data.partition(b"\n")
            header = _load(line)
            if not isinstance(header, dict) or header.get("format") not in (1, 2):
                raise ValueError("it does not have a header that this version supports")
            if header.get("sha256") != hashlib.sha256(text).hexdigest():
                raise ValueError("its checksum does not match")
            body = _load(text)
            if type(body["number"]) is not int or body["number"] < 1:
                raise ValueError("it has no number")
            records = {
                key: StateRecord(value, number, EPOCH + micros * _MICROSECOND)
                for key, value, number, micros in body["records"]
            }
            archive = _archive_from_json(body["archive"]) if header["format"] == 2 else NO_ARCHIVE
            return State.of(body["number"], _to_time(body["time"]), records, archive)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError, InvalidKey) as error:
            raise CorruptSnapshot(f"a snapshot cannot be read: {str(error)[:200]}") from None


def _archive_to_json(archive: Archive) -> dict[str, Any]:
    return {
        "prefix": archive.prefix,
        "segments": [[segment.name, segment.count, segment.sha256] for segment in archive.segments],
        "removed": sorted(archive.removed),
    }


def _archive_from_json(body: Any) -> Archive:
    segments = tuple(Segment(name, count, sha256) for name, count, sha256 in body["segments"])
    if not segments or not isinstance(body["prefix"], str):
        raise ValueError("its archive is empty")
    for segment in segments:
        check_key(segment.name)
        if type(segment.count) is not int or not isinstance(segment.sha256, str):
            raise ValueError("its archive names a segment without a count or checksum")
    return Archive(body["prefix"], segments, frozenset(body["removed"]))


def _dump(body: object) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise InvalidAction(
            "a string contains half of a surrogate pair, which is not valid Unicode; remove it"
        ) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidAction(f"an action cannot be written as JSON: {error}") from None


def _load(data: bytes) -> Any:
    return json.loads(data.decode(), parse_constant=_no_constant, parse_float=_finite)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _action_to_json(action: Action) -> dict[str, Any]:
    if not isinstance(action, (Add, Update, Delete)):
        raise InvalidAction(f"a plan must return Add, Update and Delete actions, not {type(action).__name__}")
    key = action.key
    if not isinstance(key, str) or len(key) > _LONGEST_KEY:
        raise InvalidAction(f"a key must be a string of at most {_LONGEST_KEY} characters, not {str(key)[:80]!r}")
    if isinstance(action, Delete):
        return {"delete": key}
    _check_value(action.value, key, 0)
    return {"add" if isinstance(action, Add) else "update": key, "value": action.value}


def _action_from_json(body: Any) -> Action:
    if isinstance(body, dict):
        for name, kind in (("add", Add), ("update", Update)):
            if isinstance(key := body.get(name), str) and "value" in body:
                _check_depth(body["value"], 0)
                return kind(_checked_key(key), body["value"])
        if isinstance(key := body.get("delete"), str):
            return Delete(_checked_key(key))
    raise ValueError(f"{str(body)[:80]!r} is not an action")


def _checked_key(key: str) -> str:
    if len(key) > _LONGEST_KEY:
        raise ValueError(f"a key is longer than {_LONGEST_KEY} characters")
    key.encode()
    return key


def _check_value(value: object, key: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise InvalidAction(f"the value of {key!r} is nested more than {_DEEPEST} levels deep")
    if isinstance(value, dict):
        for name, each in value.items():
            # json.dumps would silently turn numbers into strings.
            if not isinstance(name, str):
                raise InvalidAction(f"the value of {key!r} has the field {name!r}, but field names must be strings")
            _check_value(each, key, depth + 1)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _check_value(each, key, depth + 1)


def _check_depth(value: object, depth: int) -> None:
    """Raise ValueError for a value that could not be written again, into a snapshot."""
    if isinstance(value, (dict, list)):
        if depth >= _DEEPEST + 1:
            raise ValueError(f"a value is nested more than {_DEEPEST} levels deep")
        if isinstance(value, dict):
            "".join(value).encode()
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, depth + 1)
    elif isinstance(value, str):
        value.encode()


def _to_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _to_time(text: object) -> datetime:
    if not isinstance(text, str):
        raise ValueError("it has no time")
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("its time has no time zone")
    return time.astimezone(UTC)


def _to_microseconds(time: datetime) -> int:
    return (time - EPOCH) // _MICROSECOND
