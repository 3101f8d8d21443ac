"""The errors of Delta tables. All derive from LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError, ObjectMissing


class DeltaError(LakeError):
    """The base class of all errors of Delta tables."""


class TableNotFound(DeltaError):
    """No Delta log exists at the location. Check it, or create the table."""


class TableAlreadyExists(DeltaError):
    """A table exists at the location of a new table. Open it, or pass `exist_ok=True`."""


class FolderNotEmpty(DeltaError):
    """The folder of a new table holds other files. Choose another one, or convert its Parquet files."""


class VersionNotFound(DeltaError):
    """The table has no such version, or its log no longer has the files that reading this version needs."""


class LogGap(DeltaError):
    """A commit between the checkpoint (or version 0) and the version to read is missing from the log."""


class CorruptCommit(DeltaError):
    """A commit file is not lines of JSON actions."""


class CorruptCheckpoint(DeltaError):
    """A checkpoint cannot be read, and no other checkpoint or commits cover its range."""


class CheckpointRace(DeltaError):
    """Another process writes the same parts of a checkpoint. The table is as it was."""


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
    """The table needs a feature that this reader does not support: it would return wrong rows. `feature` names it."""

    def __init__(self, message: str, *, feature: str) -> None:
        super().__init__(message)
        self.feature = feature


class UnsupportedWriterFeature(DeltaError):
    """The table needs a feature that this writer does not support: it could damage the table. `feature` names it."""

    def __init__(self, message: str, *, feature: str) -> None:
        super().__init__(message)
        self.feature = feature


class FeatureInUse(DeltaError):
    """A table feature cannot be dropped: the table, or its history, uses it. The message says what to do first."""


class ManagedTable(UnsupportedWriterFeature):
    """A table of a lake was to be written past the lake, so that its log and the lake's history would differ."""


class MixedRearrangement(DeltaError):
    """One session both rearranges a table (optimize, Z-order) and changes its rows. Use two sessions."""


class UnsupportedType(DeltaError):
    """A type cannot be in a Delta schema, or needs a cast that only the caller can choose."""


class NaiveTimestamp(UnsupportedType):
    """A column has timestamps without a zone, which the table does not enable. `column` names it."""

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
    """The table's property `delta.appendOnly` forbids deleting and changing rows."""


class InvalidPredicate(DeltaError):
    """The operation cannot use this `where`, such as one on rows where it works on whole partitions."""


class UnsafeRetention(DeltaError):
    """A vacuum would delete files that readers and writers of the table may still need. Pass a longer retention."""


class ConstraintNotFound(DeltaError):
    """The table has no CHECK constraint of that name."""


class ConvertFailed(DeltaError):
    """A folder of Parquet files cannot be converted to a table as it is. Nothing was written."""


class InvalidMerge(DeltaError):
    """The clauses of a merge contradict each other, or do not fit its source."""


class UncomputedKey(DeltaError):
    """An executor finds a row for which an expression in ON fails. The merge is repeated without that expression."""


class MultipleSourceRows(DeltaError):
    """Several source rows of a merge match one target row, so that its new values are ambiguous."""


class DuplicateKeys(MultipleSourceRows):
    """Several rows of a merge by keys have the same key. Nothing was changed."""


class NullKeys(DeltaError):
    """Rows of a merge by keys have a null key. Nothing was changed."""


class RowsOutsidePredicate(DeltaError):
    """An overwrite was given rows that its own `where` does not cover. Nothing became visible."""


class PathOutsideTable(DeltaError):
    """The log names a data file outside the table's root."""


class DataFileMissing(DeltaError, ObjectMissing):
    """A data file of the snapshot is missing. Most likely it was vacuumed while it was read: refresh the table."""


class ChangeDataFeedDisabled(DeltaError):
    """Changes were requested for a version for which the table did not record them."""


class IncompatibleSchema(DeltaError):
    """The schema changed within the range of versions, so that earlier rows do not fit the later columns."""


class CorruptDataFile(DeltaError):
    """A data file is not valid Parquet, or does not match its entry in the log."""


class CorruptDeletionVector(DeltaError):
    """The list of a data file's deleted rows cannot be read, so it is unknown which of its rows exist."""


class DeletionVectorMissing(CorruptDeletionVector, ObjectMissing):
    """The file of a deletion vector is missing. Most likely it was vacuumed while it was read: refresh the table."""


class InvalidProperty(DeltaError):
    """A table property has an invalid value."""


class InvalidTransaction(DeltaError):
    """A `txn` is not a pair of an application id and a version."""


class ConcurrentModification(DeltaError):
    """Another writer committed first, and this operation cannot be replayed on top of it.

    `version` is the version of the other commit. No change of this operation is visible: refresh the table and run it
    again.
    """

    def __init__(self, reason: str, *, version: int) -> None:
        super().__init__(f"{reason}. Nothing was committed: refresh the table and run the operation again")
        self.reason = reason
        """The reason, for callers that add another remedy."""
        self.version = version


class ConcurrentAppend(ConcurrentModification):
    """The other commit added files that this operation would have had to read."""


class ConcurrentDeleteRead(ConcurrentModification):
    """The other commit removed files that this operation has read."""


class ConcurrentDeleteDelete(ConcurrentModification):
    """The other commit removed files that this operation removes too."""


class MetadataChanged(ConcurrentModification):
    """The other commit changed the table's schema, partitioning or properties."""


class ProtocolChanged(ConcurrentModification):
    """The other commit changed the table's protocol."""


class ConcurrentTransaction(ConcurrentModification):
    """The other commit recorded an older version of the same application id as this operation's `txn`."""


class CommitTimeout(DeltaError):
    """Other writers committed first at every try until the deadline. Nothing is visible: run it again."""


class CommitOutcomeUnknown(DeltaError):
    """The store stopped answering during a commit, so it is unknown whether the commit exists.

    Repeat the operation with the same `txn`: it does nothing if the commit exists. Never delete its files.
    """
