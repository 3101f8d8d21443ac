"""The errors of the Delta transaction log. One meaning each; every one is a LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError


class DeltaError(LakeError):
    """Every error of a Delta table is one of these."""


class TableNotFound(DeltaError):
    """No Delta log exists at the location."""


class TableAlreadyExists(DeltaError):
    """A table exists at the location of a new table."""


class FolderNotEmpty(DeltaError):
    """The folder of a new table holds other files."""


class VersionNotFound(DeltaError):
    """The table has no such version, or the log no longer holds what it needs to rebuild it."""


class LogGap(DeltaError):
    """A commit between the chosen checkpoint (or version 0) and the wanted version is missing from the log."""


class CorruptCommit(DeltaError):
    """A commit file is not lines of JSON actions."""


class CorruptCheckpoint(DeltaError):
    """A checkpoint cannot be read, and no other checkpoint or commits cover its range."""


class CheckpointGone(CorruptCheckpoint):
    """A file of a checkpoint was deleted, and no other checkpoint or commits cover its range."""


class MissingProtocol(DeltaError):
    """The whole log does not contain a protocol action."""


class MissingMetadata(DeltaError):
    """The whole log does not contain a metaData action."""


class MalformedProtocol(DeltaError):
    """The protocol action contradicts itself, such as reader version 3 without a feature list."""


class MalformedMetadata(DeltaError):
    """The metaData action, or the schema inside it, does not follow the protocol."""


class MalformedAction(DeltaError):
    """An add, remove or other action lacks a required field, or holds a value that its type does not allow."""


class UnsupportedReaderFeature(DeltaError):
    """The table needs a feature that this reader lacks; reading on would give wrong rows. `feature` names it."""

    def __init__(self, message: str, *, feature: str) -> None:
        super().__init__(message)
        self.feature = feature


class UnsupportedWriterFeature(DeltaError):
    """The table needs a feature that this writer lacks; writing would break it for others. `feature` names it."""

    def __init__(self, message: str, *, feature: str) -> None:
        super().__init__(message)
        self.feature = feature


class ManagedTable(UnsupportedWriterFeature):
    """A lake's own table was to be written past the lake, which would tear it from its history."""


class MixedRearrangement(DeltaError):
    """One session both rearranges a table (optimize, Z-order) and changes its rows."""


class UnsupportedType(DeltaError):
    """A type has no place in a Delta schema, or needs a cast that only the caller can decide on."""


class NaiveTimestamp(UnsupportedType):
    """A column has timestamps without a zone, and the table did not ask for such. `column` names it."""

    def __init__(self, message: str, *, column: str) -> None:
        super().__init__(message)
        self.column = column


class SchemaMismatch(DeltaError):
    """The data, or a requested schema, does not fit the table's schema. Nothing was written."""


class ConstraintViolation(DeltaError):
    """Rows break a rule of the table, such as NOT NULL. Nothing became visible."""


class UnsupportedExpression(DeltaError):
    """A rule in the table's metadata (CHECK, invariant, generation) uses SQL that this writer does not evaluate."""


class AppendOnlyTable(DeltaError):
    """The table's property `delta.appendOnly` forbids to delete or change rows."""


class InvalidPredicate(DeltaError):
    """A `where` cannot serve the operation that it was given to."""


class UnsafeRetention(DeltaError):
    """A vacuum would delete files that readers and writers of the table may still need."""


class ConstraintNotFound(DeltaError):
    """The table has no CHECK constraint of that name."""


class ConvertFailed(DeltaError):
    """A folder of Parquet files cannot become a table as it is. Nothing was written."""


class InvalidMerge(DeltaError):
    """A merge's clauses make no sense together, or with its source."""


class MultipleSourceRows(DeltaError):
    """Several source rows of a merge match one target row, so that its new values are ambiguous."""


class DuplicateKeys(MultipleSourceRows):
    """Rows of a merge by keys share their key with one another. Nothing was changed."""


class NullKeys(DeltaError):
    """Rows of a merge by keys have no key. Nothing was changed."""


class RowsOutsidePredicate(DeltaError):
    """An overwrite was given rows that its own `where` does not cover. Nothing became visible."""


class PathOutsideTable(DeltaError):
    """The log names a data file outside the table's root."""


class DataFileMissing(DeltaError):
    """A data file that the snapshot names is gone, most likely vacuumed while it was being read."""


class ChangeDataFeedDisabled(DeltaError):
    """Changes are requested for a version for which the table did not record them."""


class IncompatibleSchema(DeltaError):
    """A range of versions spans a change of schema after which the earlier rows no longer fit the later columns."""


class CorruptDataFile(DeltaError):
    """A data file is not the Parquet that the log promises."""


class CorruptDeletionVector(DeltaError):
    """The list of a data file's deleted rows cannot be read, so it is unknown which of its rows exist."""


class InvalidProperty(DeltaError):
    """A table property has a value that its meaning does not allow."""


class InvalidTransaction(DeltaError):
    """A `txn` marker is not an (application id, version) pair."""


class ConcurrentModification(DeltaError):
    """Another writer committed first, and this operation cannot be replayed on top of it.

    `version` is the commit that won. Nothing of this operation is visible: refresh the table and run it again.
    """

    def __init__(self, reason: str, *, version: int) -> None:
        super().__init__(f"{reason}. Nothing was committed: refresh the table and run the operation again")
        self.reason = reason
        """The reason, for callers that add another remedy."""
        self.version = version


class ConcurrentAppend(ConcurrentModification):
    """The winner added files that this operation would have had to read."""


class ConcurrentDeleteRead(ConcurrentModification):
    """The winner removed files that this operation has read."""


class ConcurrentDeleteDelete(ConcurrentModification):
    """The winner removed files that this operation removes too."""


class MetadataChanged(ConcurrentModification):
    """The winner changed the table's schema, partitioning or properties."""


class ProtocolChanged(ConcurrentModification):
    """The winner changed the table's protocol."""


class ConcurrentTransaction(ConcurrentModification):
    """The winner recorded an older version of this operation's own (application id, version) marker."""


class CommitTimeout(DeltaError):
    """The commit lost to other writers until its deadline passed. Nothing of it is visible."""


class CommitOutcomeUnknown(DeltaError):
    """The store stopped answering while a commit was under way, so nobody can say yet whether it landed.

    Repeat the operation with the same `txn` marker: it does nothing if the commit landed. Never delete its files.
    """
