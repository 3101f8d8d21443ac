"""The errors of journals. One meaning each; every one is a LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError


class JournalError(LakeError):
    """Every error of a journal is one of these."""


class CorruptEntry(JournalError):
    """An object at the place of an entry is none, or contradicts what came before it. `key` names the object."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class CorruptSnapshot(JournalError):
    """A cached snapshot is torn or altered. Journals skip such snapshots: only a codec's own callers see this."""


class JournalDamaged(JournalError):
    """The journal's state cannot be rebuilt: an entry, its TAIL or the snapshot of purged entries is gone."""


class NoSuchEntry(JournalError):
    """The journal has no entry of that number yet."""


class HistoryPurged(JournalError):
    """The entries that were asked for are purged. `first` is the number of the first one retained."""

    def __init__(self, message: str, *, first: int) -> None:
        super().__init__(message)
        self.first = first


class InvalidAction(JournalError):
    """An action has no place in a journal: its key is no text, or its value is none that the codec can write.

    Nothing was written.
    """


class EntryTooLarge(JournalError):
    """An entry would be larger than readers of the journal take. Nothing was written."""


class KeyExists(JournalError):
    """An Add names a key that the newest state has already. Nothing was written. `key` is that of the state."""

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
    """Nobody can say yet whether an entry landed.

    The store stopped answering while it was put, or the process slept for days. Look later: the append happened if and
    only if the entry `number` carries the id `writer`. While there is no such entry, it may still arrive.
    """

    def __init__(self, message: str, *, number: int, writer: str) -> None:
        super().__init__(message)
        self.number = number
        self.writer = writer


class PurgeUnsupported(JournalError):
    """The journal's naming keeps one snapshot under one name, so nothing could stand in for purged entries."""
