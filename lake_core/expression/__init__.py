"""Predicates in Spark SQL text: parsed once against a schema, then rendered to Arrow, to Spark columns, or to file skipping.

Only what is on this package's list is accepted, so text from a stranger cannot do anything but compare columns.
"""

from __future__ import annotations

from lake_core.expression.arrow import to_arrow
from lake_core.expression.parse import InvalidExpression, parse_predicate
from lake_core.expression.predicate import (
    And,
    Column,
    ColumnComparison,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    columns,
    negated,
)
from lake_core.expression.spark_sql import quote_identifier, quote_text

__all__ = [
    "And",
    "Column",
    "ColumnComparison",
    "Comparison",
    "Constant",
    "In",
    "InvalidExpression",
    "IsNull",
    "Like",
    "Not",
    "Or",
    "Predicate",
    "columns",
    "negated",
    "parse_predicate",
    "quote_identifier",
    "quote_text",
    "to_arrow",
]
