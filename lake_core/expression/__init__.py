"""Spark SQL in text: parsed once against a schema, with Spark's types, and evaluated on Arrow rows anywhere.

Predicates that compare columns with literals are also converted to Spark columns, and used to skip files. Only the
functions and operators on this package's list are accepted, so untrusted text can only compute with a row's columns.
"""

from __future__ import annotations

from lake_core.expression.arrow import to_arrow
from lake_core.expression.assign import check_assignable, fields_by_name, store_assign
from lake_core.expression.errors import EvaluationFailed, InvalidExpression
from lake_core.expression.evaluate import evaluate, matching
from lake_core.expression.filters import Filters, bind_filters, parse_where
from lake_core.expression.parse import parse_expression, parse_predicate
from lake_core.expression.spark_sql import predicate_sql, quote_identifier, quote_text
from lake_core.expression.tree import (
    FALSE,
    NULL,
    TRUE,
    And,
    Call,
    Case,
    Cast,
    Coalesce,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    columns,
    is_leaf,
    is_pushable,
    negated,
    operands,
    with_columns,
)

__all__ = [
    "FALSE",
    "NULL",
    "TRUE",
    "And",
    "Call",
    "Case",
    "Cast",
    "Coalesce",
    "Column",
    "Comparison",
    "EvaluationFailed",
    "Expression",
    "Filters",
    "In",
    "InvalidExpression",
    "IsNull",
    "Like",
    "Literal",
    "Not",
    "Operator",
    "Or",
    "Predicate",
    "bind_filters",
    "check_assignable",
    "columns",
    "evaluate",
    "fields_by_name",
    "is_leaf",
    "is_pushable",
    "matching",
    "negated",
    "operands",
    "parse_expression",
    "parse_predicate",
    "parse_where",
    "predicate_sql",
    "quote_identifier",
    "quote_text",
    "store_assign",
    "to_arrow",
    "with_columns",
]
