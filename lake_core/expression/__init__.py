"""Spark SQL in text: parsed once against a schema, with Spark's types, and evaluated on Arrow rows anywhere.

Predicates are also rendered to Spark columns and to file skipping, as far as they compare columns with literals. Only what is on
this package's list is accepted, so text from a stranger cannot do anything but compute with a row's columns.
"""

from __future__ import annotations

from lake_core.expression.arrow import to_arrow
from lake_core.expression.assign import check_assignable, store_assign
from lake_core.expression.bind import parse_expression
from lake_core.expression.errors import EvaluationFailed, InvalidExpression
from lake_core.expression.evaluate import evaluate
from lake_core.expression.parse import parse_predicate
from lake_core.expression.spark_sql import predicate_sql, quote_identifier, quote_text
from lake_core.expression.tree import (
    And,
    Call,
    Case,
    Cast,
    Coalesce,
    Column,
    ColumnComparison,
    Comparison,
    Condition,
    Constant,
    Expression,
    In,
    IsNull,
    Junction,
    Like,
    Not,
    OneOf,
    Or,
    Predicate,
    columns,
    negated,
)
from lake_core.expression.tree import Literal as ExpressionLiteral
from lake_core.expression.truth import has_condition, matching, truth

__all__ = [
    "And",
    "Call",
    "Case",
    "Cast",
    "Coalesce",
    "Column",
    "ColumnComparison",
    "Comparison",
    "Condition",
    "Constant",
    "EvaluationFailed",
    "Expression",
    "ExpressionLiteral",
    "In",
    "InvalidExpression",
    "IsNull",
    "Junction",
    "Like",
    "Not",
    "OneOf",
    "Or",
    "Predicate",
    "check_assignable",
    "columns",
    "evaluate",
    "has_condition",
    "matching",
    "negated",
    "parse_expression",
    "parse_predicate",
    "predicate_sql",
    "quote_identifier",
    "quote_text",
    "store_assign",
    "to_arrow",
    "truth",
]
