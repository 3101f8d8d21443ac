"""Delta tables in the words of a Hive metastore, which AWS Glue shares.

Spark and Trino know a Delta table by the parameter `spark.sql.sources.provider`, Athena and Glue by that or
`table_type`, and all find its folder by the parameter `path` of the serde. They read the table's schema from its log.
The columns are for people, for permissions on columns, and for engines that only list tables. Partition columns are
among them: the metastore has no partitions of a Delta table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lake_core.catalog.definition import is_of_record
from lake_core.catalog.errors import UnsupportedColumn
from lake_core.catalog.type_text import TypeTexts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.catalog.definition import TableDefinition
    from lake_core.delta.schema import DataType

INPUT_FORMAT: Final = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT_FORMAT: Final = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
SERDE: Final = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
"""What Spark writes for tables that Hive itself cannot read."""
TABLE_TYPE: Final = "EXTERNAL_TABLE"

_SPARK: Final = "spark.sql.sources."
_LONGEST_PARAMETER: Final = 4000
"""The most characters of a parameter in a metastore's database, by which Spark splits schemas."""

_LONGEST_COMMENT: Final = 255
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")

_HIVE_OF: Final[Mapping[str, str]] = {
    "string": "string",
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
    "void": "void",
    # As in data files: Hive has no such type.
    "variant": "struct<metadata:binary,value:binary>",
}
_FIELD: Final = re.compile(r"[^<>:,`\"'()\s\x00-\x1f\x7f]+")
"""Names of fields that the text of a Hive type can hold."""


def _field_name(column: str, name: str) -> str:
    if not _FIELD.fullmatch(name):
        raise UnsupportedColumn(
            f"the column {column!r} has the field {name!r}, which a Hive type cannot name: rename the field"
        )
    return name


_TYPES: Final = TypeTexts("Hive", _HIVE_OF, _field_name)


def hive_type(kind: DataType, column: str) -> str:
    """Return the text of a Hive type. Raises UnsupportedColumn, which names the column."""
    return _TYPES.text(kind, column)


def hive_columns(table: TableDefinition) -> list[tuple[str, str, str | None]]:
    """Return the name, the type and the comment of each column. Raises UnsupportedColumn."""
    return [
        (child.name, hive_type(child.type, child.name), _comment(child.metadata.get("comment")))
        for child in table.schema.fields
    ]


def _comment(value: object) -> str | None:
    """Return a comment as catalogs hold it: in one line, and cut. The schema in the parameters has all of it."""
    return _CONTROL.sub(" ", value)[:_LONGEST_COMMENT] if isinstance(value, str) and value else None


def hive_parameters(table: TableDefinition, others: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the parameters of a table, with those of `others` that this package does not write."""
    kept = {
        key: value
        for key, value in (others or {}).items()
        if not is_of_record(key) and not key.startswith(_SPARK) and key != "comment"
    }
    schema = table.schema_json
    parts = [schema[start : start + _LONGEST_PARAMETER] for start in range(0, len(schema), _LONGEST_PARAMETER)]
    parameters = {
        "EXTERNAL": "TRUE",
        "table_type": "DELTA",
        "classification": "delta",
        f"{_SPARK}provider": "delta",
        f"{_SPARK}schema.numParts": str(len(parts)),
        **{f"{_SPARK}schema.part.{number}": part for number, part in enumerate(parts)},
        **table.origin.parameters(),
    }
    if table.partition_columns:
        parameters[f"{_SPARK}schema.numPartCols"] = str(len(table.partition_columns))
        parameters |= {f"{_SPARK}schema.partCol.{number}": name for number, name in enumerate(table.partition_columns)}
    if table.description:
        parameters["comment"] = table.description[:_LONGEST_PARAMETER]
    return kept | parameters


def serde_parameters(table: TableDefinition) -> dict[str, str]:
    """Return the parameters of the serde: where readers find the table."""
    return {"serialization.format": "1", "path": table.location}
