"""`AlterableTable`: changes of a table's definition, which leave its data files as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.operations import alter
from lake_core.delta.table_commit import CommittingTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lake_core.delta.result import OperationResult
    from lake_core.txn import Txn


class AlterableTable(CommittingTable):
    """A table whose properties, constraints and columns can be changed."""

    def set_properties(self, properties: Mapping[str, str], *, txn: Txn | None = None) -> OperationResult:
        """Set table properties.

        A property that enables a feature, such as `delta.enableChangeDataFeed`, upgrades the protocol if it must.

        Raises:
            InvalidProperty: A property has an invalid value, or cannot be set on a table that exists.
            UnsupportedWriterFeature: The table, or the property, needs a feature that this writer does not support.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.set_properties(snapshot, properties), txn)

    def unset_properties(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Remove table properties.

        Raises:
            InvalidProperty: A property cannot be unset, because files depend on it, or it is a constraint.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.unset_properties(snapshot, names), txn)

    def add_constraint(self, name: str, sql: str, *, txn: Txn | None = None) -> OperationResult:
        """Add a CHECK constraint. It must be true for every existing row; a row for which it is null violates it.

        Raises:
            ConstraintViolation: Rows of the table violate it. Update or delete these first.
            InvalidExpression: The SQL does not parse, names an unknown column, or uses what is not supported.
            InvalidProperty: The table has a constraint of that name already. Choose another name.
            ConcurrentModification: Another writer committed what this operation contradicts. Refresh the table, and run
                it again.
        """
        return self.operate(lambda snapshot, _: alter.add_constraint(snapshot, name, sql), txn)

    def drop_constraint(self, name: str, *, txn: Txn | None = None) -> OperationResult:
        """Drop a CHECK constraint.

        Raises:
            ConstraintNotFound: The table has no such constraint. The message lists those that it has.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.drop_constraint(snapshot, name), txn)

    def add_columns(self, schema: pa.Schema, *, txn: Txn | None = None) -> OperationResult:
        """Add nullable columns. To add fields to a struct, pass a struct of the same name with the new fields.

        Columns that already exist are ignored.

        Raises:
            SchemaMismatch: A column has a rule that the existing rows do not meet, or does not fit the table's schema.
            UnsupportedType: A type has no Delta type, or needs a cast that only you can choose. Cast the column.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.add_columns(snapshot, schema), txn)

    def rename_column(self, column: str, name: str, *, txn: Txn | None = None) -> OperationResult:
        """Rename a column, or a field inside one (by dots).

        Needs `delta.columnMapping.mode`.

        Raises:
            SchemaMismatch: The table has no such column, uses it in a rule, or lacks column mapping.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.rename_column(snapshot, column, name), txn)

    def drop_columns(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Drop columns, or fields inside columns (by dots).

        Needs `delta.columnMapping.mode`.

        Raises:
            SchemaMismatch: The table has no such column, partitions by it, uses it in a rule, or lacks column mapping.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.drop_columns(snapshot, names), txn)

    def widen_column(self, column: str, kind: pa.DataType, *, txn: Txn | None = None) -> OperationResult:
        """Give a column, or a field inside one (by dots), a wider type, such as `pa.int64()` to one of int32.

        Needs `delta.enableTypeWidening`. Data files stay as they are.

        Raises:
            SchemaMismatch: The table has no such column, uses it in a rule, or the type is not a wider one.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.widen_column(snapshot, column, kind), txn)

    def sync_identity(self, column: str, *, txn: Txn | None = None) -> OperationResult:
        """Let an identity column go on after the highest number that rows have (the lowest, if it counts down).

        Needed after rows with numbers of their own were added, which a column takes that is GENERATED BY DEFAULT: it
        would give the same ones again. Reads the whole column. No number that was given comes back.

        Raises:
            SchemaMismatch: The column is not an identity column.
            ConcurrentModification: Another writer changed the table meanwhile. Refresh it, and call it again.
        """
        return self.operate(lambda snapshot, _: alter.sync_identity(snapshot, column), txn)

    def cluster_by(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Cluster the table by up to four columns, or fields inside them (by dots); by none with an empty list.

        `optimize` sorts the rows by them. Files that are sorted by other columns stay until `optimize(full=True)`.

        Raises:
            SchemaMismatch: The table has no such column, has partitions, or the column's values have no order.
            InvalidProperty: A column gets no statistics. Change the properties that choose these first.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.cluster_by(snapshot, names), txn)

    def drop_not_null(self, column: str, *, txn: Txn | None = None) -> OperationResult:
        """Allow nulls in a column, or a field inside one (by dots).

        Raises:
            SchemaMismatch: The table has no such column.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.drop_not_null(snapshot, column), txn)

    def set_comments(self, comments: Mapping[str, str | None], *, txn: Txn | None = None) -> OperationResult:
        """Set the comments of columns, or of fields inside them (by dots); None removes a comment.

        Raises:
            SchemaMismatch: The table has no such column.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.set_comments(snapshot, comments), txn)

    def reorder_columns(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Move these columns to the front, in this order.

        Raises:
            SchemaMismatch: The table has no such column, or one is named twice.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.reorder_columns(snapshot, names), txn)
