"""Resolution of `lake://` paths: to a lake, a state of it, and a key in the state."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lake_core.errors import AccessDenied, InvalidKey, InvalidUrl, NotFound
from lake_core.lake.errors import InvalidRef, LakeNotFound, RefNotFound
from lake_core.lake.filesystem.files import LakeMissing, OpenState, RefMissing
from lake_core.lake.lake import Lake
from lake_core.lake.refs.revision import resolve
from lake_core.lake.refs.session_record import OPEN, SessionRecord
from lake_core.lake.session.shared_session import SharedSession
from lake_core.store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_NOT_IN_NAMES = re.compile("[^A-Za-z0-9]")

Pins = dict[tuple[str, str], str | int]
"""By lake and ref: the commit's id, or the epoch of a shared session."""


class Paths:
    """The lakes that a file system has opened, and the states that it reads."""

    def __init__(self, lakes: Mapping[str, str], options: Mapping[str, Any] | None) -> None:
        self._lakes, self._options = dict(lakes), options
        self._opened: dict[str, Lake] = {}
        self._open_states: dict[tuple[str, str], OpenState] = {}
        self._pins: Pins = {}
        self._lock = threading.RLock()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Paths):
            return NotImplemented
        return (self._lakes, self._options, self.pins()) == (other._lakes, other._options, other.pins())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"lakes={self._lakes!r}, pinned {self.pins()!r}"  # not the options: they hold secrets

    def pins(self) -> Pins:
        """Return the pins of the states that are read, for another process."""
        with self._lock:
            return self._pins | {at: each.pin for at, each in self._open_states.items() if each.pin is not None}

    def pin(self, pins: Pins) -> None:
        """Read the same states as another process."""
        self._pins.update(pins)

    def forget(self) -> None:
        """Forget the resolved states, so that they are looked up again."""
        with self._lock:
            self._open_states.clear()
            self._pins.clear()

    def find(self, path: str) -> tuple[OpenState | None, str, str]:
        """Return the state of a path (None: above refs), the key in it, and the prefix of all paths in this state.

        Raises LakeMissing, RefMissing.
        """
        if not path:
            return None, "", ""
        lake = self._lake_of(path)
        inner = path[len(lake) :].lstrip("/")
        if not inner:
            return None, "", lake
        ref, _, key = inner.partition("/")
        front = path[: len(path) - len(inner) + len(ref)] + "/"
        return self._open_state(lake, unquote(ref)), key.lstrip("/"), front

    def names(self, lake: str) -> list[str]:
        """List the branches, tags and open sessions of a lake, or without a lake the names of lakes."""
        if not lake:
            return sorted(self._lakes)
        opened = self._opened[lake]
        sessions = (record.id for record in opened.list_sessions() if record.state == OPEN)
        return sorted({*opened.list_branches(), *opened.list_tags(), *sessions})

    def _lake_of(self, path: str) -> str:
        """Find the prefix of a path that names its lake, and open the lake."""
        with self._lock:
            for location in self._opened:
                if path == location or path.startswith(f"{location}/"):
                    return location
            name = path.split("/", 1)[0]
            url = self._url(name)
            if url is not None:
                self._open(name, url)
                return name
            match = _SCHEME.match(path)
            scheme = "" if match is None else match[0]
            location = path[len(scheme) :]
            for end in (index for index, char in enumerate(f"{location}/") if char == "/" and index):
                if self._is_lake(scheme + location[:end]):
                    self._open(scheme + location[:end], scheme + location[:end])
                    return scheme + location[:end]
        raise LakeMissing(
            f"{path!r} is in no known lake: write a path as <lake>/<ref>/<path>, where <lake> is a location, "
            f"a name of the option lakes= ({', '.join(sorted(self._lakes)) or 'none'} given), or a <NAME> "
            "for which the environment has LAKE_URL_<NAME>"
        )

    def _url(self, name: str) -> str | None:
        """Find the location that the first part of a path stands for, if it does."""
        if not name:
            return None
        url = self._lakes.get(name) or os.environ.get(f"LAKE_URL_{_NOT_IN_NAMES.sub('_', name).upper()}")
        return url or (unquote(name) if "/" in unquote(name) else None)

    def _is_lake(self, url: str) -> bool:
        try:
            return Lake.exists(url, storage_options=self._options)
        except (NotFound, AccessDenied, InvalidUrl, InvalidKey):
            return False  # a beginning only: what follows may be one

    def _open(self, text: str, url: str) -> None:
        try:
            # Read only: whether the store is fit for writing is asked when something is written.
            self._opened[text] = Lake.open(open_store(url, storage_options=self._options, read_only=True))
        except LakeNotFound as error:
            raise LakeMissing(str(error)) from None

    def _open_state(self, name: str, ref: str) -> OpenState:
        with self._lock:
            opened = self._open_states.get((name, ref))
            if opened is None:
                opened = self._open_states[name, ref] = _look(self._opened[name], ref, self._pins.get((name, ref)))
            return opened


def _look(lake: Lake, ref: str, pin: str | int | None) -> OpenState:
    repository = lake.repository
    try:
        revision = resolve(repository.refs(), repository.journal, pin if isinstance(pin, str) else ref)
    except (RefNotFound, InvalidRef) as error:
        raise RefMissing(str(error)) from None
    if not isinstance(revision, SessionRecord):
        return OpenState(repository.commit_state(revision, ref), revision.id)
    session = SharedSession(repository, revision, epoch=pin if isinstance(pin, int) else None)
    return OpenState(session, session.epoch, session.join)
