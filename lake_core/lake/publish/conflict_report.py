"""Collection of the conflicts of a change with its target, raised as one error.

`apply` finds the conflicts of plain files. The formats find those of datasets, through `apply_dataset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lake.errors import READ_CHANGED, Conflict, Contradiction
from lake_core.readable import count_of

if TYPE_CHECKING:
    from lake_core.dataset import DatasetConflict
    from lake_core.lake.publish.tree_update import Strategy

_NAMED = 20
"""The most datasets and keys that an error names."""

_EXPLANATIONS = {
    "BothCreated": "it was created on both sides",
    "BothChanged": "it was changed on both sides",
    "DeletedHereChangedThere": "it is deleted here, and was changed there",
    "ChangedHereDeletedThere": "it is changed here, and was deleted there",
    "InsideDataset": "it lies in a folder that is, or was, a dataset there",
    READ_CHANGED: "it was read here, and changed there",
}


class ConflictReport:
    """Collects conflicts with the target, to raise one error that names all of them."""

    def __init__(self, commit: str, onto: str, strategy: Strategy | None = None) -> None:
        self._commit, self._onto = commit, onto
        self.strategy = strategy
        self.resolved: dict[str, str] = {}
        """The kinds of the conflicts that the strategy resolved instead, by dataset or key."""
        self._kinds: dict[str, str] = {}
        self._datasets: dict[str, str] = {}
        self._keys: list[str] = []
        self._explanations: dict[str, str] = {}

    def add_key(self, key: str, kind: str, explanation: str = "") -> None:
        """Report a conflict of a plain file. Only its first conflict is kept."""
        if key not in self._kinds:
            self._keys.append(key)
            self._kinds[key] = kind
            self._explanations[key] = explanation or _EXPLANATIONS.get(kind, kind)

    def add_dataset(self, path: str, error: DatasetConflict) -> None:
        """Report a conflict of a dataset."""
        self._kinds[path] = error.kind
        self._datasets[path] = self._explanations[path] = str(error)

    def check(self) -> None:
        """Raise Conflict if anything was reported."""
        if not self._kinds:
            return
        named = [*self._datasets, *self._keys][:_NAMED]
        contradictions = [Contradiction(path, self._kinds[path], self._explanations[path]) for path in named]
        raise Conflict(
            f"{self._onto} (commit {self._commit[:12]}) conflicts with these changes in "
            f"{count_of(len(self._kinds), 'place')}",
            contradictions=contradictions,
            datasets=list(self._datasets),
            keys=self._keys,
            kinds=self._kinds,
            commit=self._commit,
        )
