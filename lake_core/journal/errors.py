"""The errors of journals. One meaning each; every one is a LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError


class JournalError(LakeError):
    """The base class of all errors of journals."""


class CorruptEntry(JournalError):
    """An object is not a valid entry, or contradicts the entries before it. `key` names the object."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class CorruptSnapshot(JournalError):
    """A cached snapshot is incomplete or damaged. Journals skip such snapshots: only callers of a codec see this."""


class JournalDamaged(JournalError):
    """The journal's state cannot be rebuilt: an entry, its TAIL or the snapshot of purged entries is gone."""


class NoSuchEntry(JournalError):
    """The journal has no entry of that number yet."""


class HistoryPurged(JournalError):
    """The requested entries have been purged. `first` is the number of the first one retained."""

    def __init__(self, message: str, *, first: int) -> None:
        super().__init__(message)
        self.first = first


class InvalidAction(JournalError):
    """An action cannot be stored in a journal: its key is not a string, or the codec cannot write its value.

    Nothing was written.
    """


class EntryTooLarge(JournalError):
    """An entry would be larger than readers of the journal accept. Nothing was written."""


class KeyExists(JournalError):
    """An Add names a key that the newest state already has. Nothing was written. `key` is that of the state."""

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class KeyMissing(JournalError):
    """An Update or Delete names a key that the newest state does not have.

    Nothing was written. `key` is that of the state.
    """

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class AppendTimeout(JournalError):
    """An append lost to other writers, or could not read the journal, until its deadline passed.

    Nothing was written.
    """


class AppendOutcomeUnknown(JournalError):
    """It is not known whether an entry was appended.

    The store stopped responding while it was put, or the process was suspended for days. Check later: the append
    succeeded if and only if the entry `number` has the id `writer`. While there is no such entry, it may still arrive.
    """

    def __init__(self, message: str, *, number: int, writer: str) -> None:
        super().__init__(message)
        self.number = number
        self.writer = writer


class PurgeUnsupported(JournalError):
    """The journal's naming keeps a single snapshot under a fixed name, which cannot replace purged entries."""
