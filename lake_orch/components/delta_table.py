"""The component of a Delta table: the source of its rows, the write mode, and the checks."""

# No `from __future__ import annotations` here: components' fields are read as objects.

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import dagster as dg
import pyarrow as pa
from pydantic import Field, model_validator

from lake_orch.assets.tables.data import TypeHandler, to_rows, type_handlers
from lake_orch.assets.tables.settings import NAMES, PREVIEW_ROWS, TableSettings
from lake_orch.components.dataset import DatasetComponent, DatasetInput
from lake_orch.components.references import described, load_function
from lake_orch.components.row_checks import RowCheck, evaluate
from lake_orch.components.scaffolding import scaffolds
from lake_orch.components.sql_engine import input_type, partition_parameters, run_query
from lake_orch.components.sql_query import Query, parse_query
from lake_orch.dagster.metadata import plain_metadata
from lake_orch.dagster.step.type_handlers import handlers_of_step
from lake_orch.errors import InvalidDefinition
from lake_orch.spark.type_name import arrow_type_of


class TableColumn(dg.Model, dg.Resolvable):
    """A column of the declared schema."""

    name: Annotated[str, described("The column's name.")]
    type: Annotated[str, described("Its type, as Spark SQL spells it: bigint, string, decimal(10,2), timestamp, …")]
    description: Annotated[str | None, described("Its comment.")] = None
    nullable: Annotated[bool, described("Whether it may be null.")] = True

    def field(self, subject: str) -> pa.Field:
        """Return the Arrow field that rows are cast to. Raises InvalidDefinition for an unknown type name."""
        try:
            return pa.field(self.name, arrow_type_of(self.type), self.nullable)
        except ValueError as error:
            raise InvalidDefinition(f"column {self.name!r} of {subject}: {error}") from None


@dg.scaffold_with(
    scaffolds(
        """
        asset:
          key: NAME
          description: What a row of it is.
          group_name: tables
        engine: duckdb        # or spark, for tables of any size
        # Tables are named as their assets are: `raw.orders` is the asset raw/orders, and a dependency.
        sql: |
          SELECT 1 AS id, 10.5 AS amount
        mode: overwrite       # append, merge, replace_where, overwrite_partitions, error, ignore
        checks:
          - name: amount_is_positive
            expression: amount >= 0
            blocking: true
        """
    )
)
class DeltaTableComponent(DatasetComponent):
    """An asset whose rows are written to a Delta table of the lake exactly once.

    The rows come from a query over other tables, or from a Python function.
    """

    sql: Annotated[
        str | None,
        described(
            "One SELECT in the engine's SQL. Tables are named by asset keys, parts joined by dots, and become "
            "dependencies. Parameters: partition_key, partition_start, partition_end (:name in Spark, $name in DuckDB)."
        ),
    ] = None
    sql_file: Annotated[str | None, described("A file with the query, relative to defs.yaml.")] = None
    engine: Annotated[
        Literal["spark", "duckdb"],
        described(
            "The engine that runs the query. DuckDB runs in the step's process, for tables that fit into its memory."
        ),
    ] = "spark"
    function: Annotated[
        str | None,
        described("module:function that returns the rows; its parameters are the assets that it reads, and resources."),
    ] = None
    mode: Annotated[
        Literal["overwrite", "append", "merge", "replace_where", "overwrite_partitions", "error", "ignore"] | None,
        described(
            "How rows are written; by default merge or replace_where if these are given, "
            "else the mode of the IO manager."
        ),
    ] = None
    merge: Annotated[Any, described("The keys, or a mapping of keys or on, and clauses.")] = None
    replace_where: Annotated[str | None, described("Spark SQL that selects the rows to replace.")] = None
    schema_mode: Annotated[
        Literal["none", "fill", "merge", "overwrite"] | None, described("How new and missing columns are handled.")
    ] = None
    partition_by: Annotated[
        list[str] | None, described("The table's partition columns; by default those of partition_expr.")
    ] = None
    cluster_by: Annotated[list[str] | None, described("The columns by which maintenance sorts files.")] = None
    columns: Annotated[list[TableColumn] | None, described("The columns, with types and comments; rows are cast.")] = (
        None
    )
    constraints: Annotated[dict[str, str] | None, described("CHECK constraints of the table: Spark SQL by name.")] = (
        None
    )
    generated: Annotated[dict[str, str] | None, described("Generated columns: Spark SQL by column.")] = None
    properties: Annotated[dict[str, str] | None, described("The table's properties.")] = None
    checks: Annotated[list[RowCheck], described("Asset checks on the rows, evaluated before they are written.")] = (
        Field(default_factory=list)
    )

    @model_validator(mode="after")
    def _check_source(self) -> "DeltaTableComponent":
        sources = [name for name in ("sql", "sql_file", "function") if getattr(self, name) is not None]
        if len(sources) != 1:
            raise ValueError(
                f"give one of sql, sql_file and function; this has {' and '.join(sources) or 'none of them'}"
            )
        return self

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions.

        Raises InvalidDefinition for invalid SQL or settings, or if the function does not exist.
        """
        asset = self._of_query(context) if self.function is None else self._checked_function(self.function, context)
        return dg.Definitions(assets=[asset])

    # Both

    def _metadata(self) -> dict[str, Any]:
        columns = None
        if self.columns is not None:
            declared = [
                dg.TableColumn(
                    column.name, column.type, column.description, dg.TableColumnConstraints(nullable=column.nullable)
                )
                for column in self.columns
            ]
            columns = dg.TableSchema(columns=declared)
        return {
            "lake/mode": self.mode,
            "lake/merge": self.merge,
            "lake/replace_where": self.replace_where,
            "lake/schema_mode": self.schema_mode,
            "lake/partition_by": self.partition_by,
            "lake/cluster_by": self.cluster_by,
            "dagster/column_schema": columns,
            "lake/schema": None
            if self.columns is None
            else pa.schema([column.field(self._subject) for column in self.columns]),
            "lake/constraints": self.constraints,
            "lake/generated": self.generated,
            "lake/properties": self.properties,
        }

    def _check(self, metadata: Mapping[str, Any]) -> None:
        if self.asset.skippable and (self.function is None or self.checks):
            reason = "with checks the rows are always written" if self.checks else "a query always has rows"
            raise InvalidDefinition(
                f"{self._subject} is skippable, which has no effect here, because {reason}: leave it out"
            )
        NAMES.check(metadata, "output", self._subject)
        TableSettings.parse(self.asset.key.path, plain_metadata(metadata), self._subject)
        if self.asset.partitions_def is not None and "partition_expr" not in metadata:
            raise InvalidDefinition(
                f"{self._subject} is partitioned: give partition_expr, the column that the partitions stand for"
            )

    def _options(self, kinds: Sequence[str]) -> dict[str, Any]:
        checks = [check.spec(self.asset.key, self.asset.partitions_def) for check in self.checks]
        return {**super()._options(kinds), "check_specs": checks}

    # From a query

    def _of_query(self, context: dg.ComponentLoadContext) -> dg.AssetsDefinition:
        query = parse_query(self._text(context), self.engine, self._subject)
        unused = sorted(self.inputs.keys() - set(query.tables))
        if unused:
            raise InvalidDefinition(
                f"{self._subject} has the input {unused[0]!r}, "
                f"and its SQL reads {', '.join(query.tables) or 'no table'}"
            )
        for name, component_input in self.inputs.items():
            for setting, format in component_input.of_other_formats().items():
                raise InvalidDefinition(
                    f"the input {name!r} of {self._subject} has {setting}, which is for {format}: "
                    "a query reads tables; give a function instead"
                )
        keys = {table: self._input(table).asset or dg.AssetKey(table.split(".")) for table in query.tables}
        twice = sorted(table for table, key in keys.items() if list(keys.values()).count(key) > 1)
        if twice:
            raise InvalidDefinition(
                f"{' and '.join(twice)} in the SQL of {self._subject} are the same asset: name it once, and use aliases"
            )
        own = next((table for table, key in keys.items() if key == self.asset.key), None)
        if own is not None and self._input(own).partition_mapping is None:
            raise InvalidDefinition(
                f"the SQL of {self._subject} reads the table that it writes: name another, merge rows into it, or "
                f"give the input {own!r} a partition_mapping, such as one to the partition before"
            )
        if query.parameters and self.asset.partitions_def is None:
            raise InvalidDefinition(
                f"the SQL of {self._subject} has parameters of a partition, but the asset is not partitioned"
            )
        kind = input_type(self.engine, self._subject)
        names = {table: _input_name(number, table) for number, table in enumerate(query.tables)}
        options = self._options(("deltalake", self.engine))
        options["code_version"] = options["code_version"] or hashlib.sha256(query.text.encode()).hexdigest()[:16]
        options["deps"] = [dep for dep in options["deps"] if dep.asset_key not in keys.values()]
        options["ins"] = {names[table]: self._input(table).asset_in(key, kind) for table, key in keys.items()}
        resource_keys = {"spark"} if self.engine == "spark" else set()
        asset: Any = dg.asset(required_resource_keys=resource_keys, **options)
        definition: dg.AssetsDefinition = asset(self._compute(query, names))
        return definition

    def _text(self, context: dg.ComponentLoadContext) -> str:
        if self.sql is not None:
            return self.sql
        file = context.path / str(self.sql_file)
        if not file.is_file():
            raise InvalidDefinition(
                f"{self._subject} takes its SQL from {self.sql_file}, which is not beside its defs.yaml"
            )
        return file.read_text("utf-8")

    def _input(self, name: str) -> DatasetInput:
        return self.inputs.get(name) or DatasetInput()

    def _compute(self, query: Query, names: Mapping[str, str]) -> Callable[..., Any]:
        def select(context: dg.AssetExecutionContext, **loaded: Any) -> Iterator[Any]:
            tables = {table: loaded[name] for table, name in names.items()}
            parameters = partition_parameters(context, query.parameters)
            spark = context.resources.spark if self.engine == "spark" else None
            with run_query(query, self.engine, tables, parameters, self.asset.key, spark) as rows:
                yield from self._checked(rows, handlers_of_step(context))

        return select

    # From a function

    def _checked_function(self, name: str, context: dg.ComponentLoadContext) -> dg.AssetsDefinition:
        function = load_function(name, context)
        if self.checks and (inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)):
            raise InvalidDefinition(f"checks of {self._subject} need the rows that {name} returns: return them")
        return self._of_function(self._with_checks(function) if self.checks else function, "deltalake", "python")

    def _with_checks(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Iterator[Any]:
            yield from self._checked(function(*args, **kwargs), _current_handlers())

        return checked

    @property
    def _bounded_checks(self) -> list[RowCheck]:
        """Return the checks, limited to the number of rows that the asset's page may show."""
        most = self.asset.metadata.get(PREVIEW_ROWS)
        return (
            self.checks
            if most is None
            else [check.model_copy(update={"sample_rows": min(check.sample_rows, most)}) for check in self.checks]
        )

    def _checked(self, value: Any, handlers: Sequence[TypeHandler]) -> Iterator[Any]:
        """Yield the results of the checks before the rows.

        A failed blocking check keeps the rows from being published.
        """
        if not self.checks:
            yield dg.MaterializeResult(asset_key=self.asset.key, value=value)
            return
        rows = to_rows(value, f"the output of {self.asset.key.to_user_string()}", handlers)
        # The rows are held, so that the written rows are those that were checked.
        with rows.held():
            yield from evaluate(self._bounded_checks, rows, self.asset.key)
            yield dg.MaterializeResult(asset_key=self.asset.key, value=value)


def _current_handlers() -> Sequence[TypeHandler]:
    """Return the handlers of the running step, or this package's handlers outside a run."""
    try:
        context = dg.AssetExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return type_handlers()
    return handlers_of_step(context)


def _input_name(number: int, table: str) -> str:
    """Return a name that is valid in Dagster and Python, and unique in the step."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', table).strip('_')}_{number + 1}"
