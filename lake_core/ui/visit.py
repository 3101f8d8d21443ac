"""A visit: one request, with the lake as it was at its start."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from lake_core.lake.errors import LakeNotFound
from lake_core.lake.lake_format import FORMAT_KEY
from lake_core.lake.refs.revision import resolve
from lake_core.lake.refs.session_record import SessionRecord
from lake_core.lake.session.shared_session import SharedSession
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.upkeep_memory import UpkeepMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from lake_core.graveler import Commit
    from lake_core.inspection import Inspection
    from lake_core.lake import Lake
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.state.state_store import StateStore
    from lake_core.ui.settings import PageSettings

_T = TypeVar("_T")
_LARGEST_PAGE = 1_000
_FULL_ID = re.compile(r"\b[0-9a-f]{64}\b")


class Memory:
    """The latest answers about what never changes, such as the difference of two commits. Shared by threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], _T], keep: Callable[[_T], bool] = lambda answer: True) -> _T:
        """Return the answer to a question, which is computed if it is not known, and kept if `keep` says so."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                known: _T = self._answers[key]
                return known
        answer = compute()
        if not keep(answer):
            return answer
        with self._lock:
            self._answers[key] = answer
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        return answer


@dataclass(frozen=True, slots=True)
class Site:
    """The lake, and what the pages keep in memory."""

    lake: Lake
    """What pages look at. Nothing is written to it."""
    written: Lake
    """The same lake, for forms that act on it."""
    settings: PageSettings
    form_token: str
    """What a form must hold to be from a page of this server."""
    changes: Memory = field(default_factory=lambda: Memory(256))
    """By two commits, and a dataset."""
    rows: Memory = field(default_factory=lambda: Memory(6))
    """Differences of rows: few, as they may be large."""
    counts: Memory = field(default_factory=lambda: Memory(4096))
    upkeep: UpkeepMemory = field(default_factory=UpkeepMemory)
    queries: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(2))
    """Held while a query runs, so that few do at the same time."""
    waiting: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(6))
    """Held while a query runs or waits."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A ref as a page shows it: pinned to a commit, or to the tree of a session."""

    text: str
    """As the visitor wrote it."""
    state: StateStore
    commit: Commit
    """The commit, or that on which the session is based."""
    session: SessionRecord | None = None

    @property
    def pin(self) -> str:
        """Return what always names the same state: the commit's id. A session has none, and is named by itself."""
        return self.commit.id if self.session is None else self.session.id

    @property
    def tree(self) -> str:
        """Return the name of the tree, which never changes."""
        return self.commit.metarange_id if self.session is None else self.session.tree

    @property
    def label(self) -> str:
        """Return the name for people."""
        if self.session is not None:
            return f"session {self.session.id}"
        if self.commit.id.startswith(self.text):
            return self.commit.id[:12]
        return _FULL_ID.sub(lambda match: match[0][:12], self.text)  # also in `<id>~1`


class Visit:
    """One request. All that it shows is of the refs at its start."""

    def __init__(
        self, site: Site, query: Mapping[str, str], path: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> None:
        self.site, self.query, self.path = site, query, path
        self.form = form or {}
        self.is_order = form is not None
        """Whether the request is a form that was sent, and not only looks at something."""
        self.lake = site.written if self.is_order else site.lake
        self.settings = site.settings
        self._refs: RefsState | None = None

    def begin(self) -> None:
        """Read the refs.

        Raises LakeNotFound if the lake is gone: a folder that is not mounted any more has no newer refs, either.
        """
        repository = self.lake.repository
        exists, refs = repository.root.gather(lambda: repository.root.exists(FORMAT_KEY), repository.refs)
        if not exists:
            raise LakeNotFound(f"there is no lake at {repository.root.url()} any more")
        self._refs = refs

    @property
    def refs(self) -> RefsState:
        """Return the refs at the start of the visit."""
        if self._refs is None:
            self.begin()
        assert self._refs is not None
        return self._refs

    def get(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        return self.query.get(name, default).strip()

    def number(self, name: str, default: int, least: int = 0, most: int = _LARGEST_PAGE) -> int:
        """Return a parameter that is a whole number. Raises InvalidRequest."""
        text = self.get(name)
        if not text:
            return default
        if not text.isascii() or not text.removeprefix("-").isdigit() or not least <= int(text) <= most:
            raise InvalidRequest(f"{name} must be a whole number from {least} to {most}, not {text!r}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Return whether a parameter is set."""
        return self.get(name) not in ("", "0", "no", "false")

    def revision(self, text: str) -> Revision:
        """Resolve a ref. Raises RefNotFound, InvalidRef."""
        repository = self.lake.repository
        resolved = resolve(self.refs, repository.journal, text)
        if isinstance(resolved, SessionRecord):
            state = SharedSession(repository, resolved)
            return Revision(text, state, self.refs.commit(resolved.base), resolved)
        return Revision(text, repository.commit_state(resolved, text), resolved)

    def at(self, name: str = "at", default: str = "main") -> Revision:
        """Resolve the ref that a parameter names."""
        return self.revision(self.get(name) or default)

    def inspect(self, revision: Revision, path: str) -> Inspection[Any]:
        """Return what can be looked at in a dataset. Raises DatasetNotFound."""
        view = revision.state.dataset(path)
        return view.format.inspect(view)
