"""`Workspace`, the datasets and files that an attempt reads and writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from lake_core.store import ObjectStore

PUBLISHED, STAGED = "published", "staged"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of writes."""

    state: str = PUBLISHED
    """`published` or `staged`."""
    branch: str | None = None
    commit: str | None = None
    session: str | None = None
    epoch: int | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    """The final version of each dataset by path; empty for what is staged, and without a lake."""
    skipped: bool = False
    """Whether all this had been published before, or staged by the same attempt."""


class Workspace(ABC):
    """Datasets and files as an attempt sees and writes them.

    Leaving its `with` block finishes it, or discards it on an error.
    """

    receipt: Receipt | None = None
    """Once it is finished."""
    is_staged = False
    """Whether what is written here becomes visible only with the rest of a shared session."""
    is_repeated = False
    """Whether all this was published before, or staged by the same attempt: what is written now is left out."""

    def __init__(self, root: str, task_id: str) -> None:
        self._root = root.rstrip("/")
        self.task_id = task_id
        """The application id of the task's transaction identifiers. All attempts at the task have it."""

    @abstractmethod
    def find(self, path: str, format: str) -> Any | None:
        """Return the dataset at a path as its format's handle, as it is here. None if there is none.

        Raises DatasetExists where a dataset of another format is there.
        """

    @abstractmethod
    def create(self, path: str, format: str, *args: Any, **options: Any) -> Any:
        """Create a dataset, and return its format's handle; one that another process has just created is opened.

        Takes and raises what the format's own `create` does.
        """

    @abstractmethod
    def after(self, path: str, format: str) -> Any:
        """Open a dataset as it is once the workspace is finished. Raises DatasetNotFound."""

    @property
    @abstractmethod
    def store(self) -> ObjectStore:
        """Return everything, by key below the lake's root."""

    def url(self, path: str) -> str:
        """Return the URL at which plain readers find a table or file."""
        return f"{self._root}/{path}"

    def flush(self) -> None:
        """Put what was written so far into effect, for steps with writes that take effect one by one."""
        return

    @abstractmethod
    def finish(self) -> Receipt:
        """Put all writes into effect. Raises Conflict."""

    def discard(self) -> None:
        """Remove everything that was written, as far as possible."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.receipt = self.finish()
        else:
            self.discard()
