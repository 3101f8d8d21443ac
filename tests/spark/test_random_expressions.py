"""Random expressions of every type: where this engine has a value for every row, it is Spark's.

Left out is what Spark's optimizer changes: `lower(upper(x))` becomes `lower(x)`, and a cast to FLOAT within one to
DOUBLE is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lake_core.expression import EvaluationFailed, InvalidExpression, evaluate, parse_expression
from tests.examples import examples
from tests.expression.cases import ROWS, SCHEMA
from tests.spark.settings import settings
from tests.spark.test_expressions import ANSI, differences, spark_values, typed_frame

Texts = st.SearchStrategy[str]

_LEAVES = {
    "whole": ["y", "h", "i", "j", "l", "k", "0", "1", "-3", "7Y", "5000000000", "CAST(NULL AS INT)"],
    "exact": ["n", "o", "m", "1.5", "-0.25", "100.00BD", "CAST(NULL AS DECIMAL(4, 1))"],
    "double": ["g", "e", "f", "1.5D", "-2e0", "0D", "CAST('NaN' AS DOUBLE)", "CAST(NULL AS DOUBLE)"],
    "text": ["s", "r", "c", "p", "'a'", "'é b'", "''", "'12'", "CAST(NULL AS STRING)", "st.b"],
    "truth": ["x", "z", "TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"],
    "date": ["d", "w", "DATE '2020-02-29'", "DATE '1969-12-31'", "CAST(NULL AS DATE)"],
    "instant": ["t", "u", "TIMESTAMP '2020-02-29 12:34:56.5Z'", "CAST(NULL AS TIMESTAMP)"],
}
_RULES = {
    kind: [rule.strip() for rule in rules.split(";")]
    for kind, rules in {
        "whole": """
            ({whole} + {whole}); ({whole} - {whole}); ({whole} * {whole}); ({whole} DIV {whole}); ({whole} % {whole});
            (-{whole}); abs({whole}); coalesce({whole}, {whole}); nullif({whole}, {whole});
            IF({truth}, {whole}, {whole}); CASE WHEN {truth} THEN {whole} WHEN {truth} THEN {whole} END;
            greatest({whole}, {whole}); least({whole}, {whole}, {whole});
            CASE {whole} WHEN {whole} THEN {whole} ELSE {whole} END; length({text}); year({date}); month({instant});
            dayofweek({date}); quarter({date}); weekofyear({date}); hour({instant}); second({instant});
            datediff({date}, {date}); floor({exact}); CAST({exact} AS INT); CAST({double} AS BIGINT);
            TRY_CAST({text} AS INT); TRY_CAST({whole} AS TINYINT); CAST({truth} AS INT); ceil({double});
            round({whole}, -1); unix_timestamp({instant}); CAST({instant} AS BIGINT)
        """,
        "exact": """
            ({exact} + {exact}); ({exact} - {exact}); ({exact} * {exact}); ({exact} / {exact}); ({exact} + {whole});
            ({whole} * {exact}); ({whole} / {exact}); ({exact} / {whole}); (-{exact}); abs({exact}); round({exact}, 1);
            round({exact}); coalesce({exact}, {whole}); CAST({exact} AS DECIMAL(20, 5));
            CAST({whole} AS DECIMAL(12, 2)); TRY_CAST({double} AS DECIMAL(9, 3)); TRY_CAST({text} AS DECIMAL(6, 2));
            IF({truth}, {exact}, {whole}); greatest({exact}, {exact}); TRY_CAST({exact} AS DECIMAL(5, 4))
        """,
        "double": """
            ({double} + {double}); ({double} - {whole}); ({double} * {exact}); ({whole} / {whole});
            ({double} / {double}); ({double} % {double}); (-{double}); abs({double}); sign({double}); sqrt({double});
            CAST({exact} AS DOUBLE); CAST({whole} AS DOUBLE); TRY_CAST({text} AS DOUBLE); coalesce({double}, {whole});
            greatest({double}, {double}); least({double}, {double}); CASE WHEN {truth} THEN {double} ELSE {whole} END;
            CAST({double} AS FLOAT)
        """,
        "text": """
            ({text} || {text}); concat({text}, {whole}, {text}); upper({text}); trim({text}); reverse({text});
            substring({text}, {small}); substring({text}, {small}, {small}); left({text}, {small});
            right({text}, {small}); replace({text}, 'a', 'bb'); lpad({text}, 4, '*'); rpad({text}, 3);
            CAST({whole} AS STRING); CAST({exact} AS STRING); CAST({date} AS STRING); CAST({instant} AS STRING);
            CAST({truth} AS STRING); coalesce({text}, {text}); nvl({text}, 'none'); IF({truth}, {text}, {text});
            date_format({instant}, 'yyyy-MM-dd HH:mm'); date_format({date}, 'yyyyMM'); least({text}, {text})
        """,
        "truth": """
            ({whole} = {whole}); ({whole} < {exact}); ({exact} <= {exact}); ({double} > {double}); ({double} = {whole});
            ({text} < {text}); ({text} >= {text}); ({date} = {date}); ({date} < {instant}); ({instant} != {instant});
            ({whole} <=> {whole}); ({double} <=> {double}); ({text} IS DISTINCT FROM {text}); ({truth} AND {truth});
            ({truth} OR {truth}); (NOT {truth}); ({whole} IN ({whole}, 1, NULL)); ({text} IN ('a', '', {text}));
            ({double} NOT IN (1.5D, 0)); ({exact} BETWEEN {whole} AND {exact}); ({text} LIKE '%a_%');
            ({text} NOT LIKE 'é%'); ({text} IS NULL); ({whole} IS NOT NULL); ({truth} IS TRUE); ({truth} IS NOT FALSE);
            contains({text}, 'b'); startswith({text}, 'a'); isnan({double}); coalesce({truth}, {truth});
            ({truth} = {truth}); CASE WHEN {truth} THEN {truth} ELSE {truth} END
        """,
        "date": """
            date_add({date}, {small}); date_sub({date}, {small}); ({date} + {small}); trunc({date}, 'month');
            trunc({date}, 'week'); CAST({instant} AS DATE); coalesce({date}, {date}); IF({truth}, {date}, {date});
            greatest({date}, {date}); TRY_CAST({text} AS DATE)
        """,
        "instant": """
            date_trunc('hour', {instant}); date_trunc('quarter', {instant}); date_trunc('week', {instant});
            CAST({date} AS TIMESTAMP); coalesce({instant}, {date}); CAST({instant} AS TIMESTAMP_NTZ);
            IF({truth}, {instant}, {instant}); least({instant}, {instant}); TRY_CAST({text} AS TIMESTAMP)
        """,
    }.items()
}
"""Letters in braces stand for an operand of that kind."""

_LEAVES["small"] = ["0", "1", "2", "-1", "-4", "100", "y", "j", "CAST(NULL AS INT)"]


@st.composite
def expressions(draw: st.DrawFn, kind: str = "", depth: int = 3) -> str:
    kind = kind or draw(st.sampled_from(sorted(_RULES)))
    if depth == 0 or kind not in _RULES or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(_LEAVES[kind]))
    text, expression = draw(st.sampled_from(_RULES[kind])), ""
    for number, part in enumerate(text.split("{")):
        if number:
            inner, part = part.split("}", 1)
            expression += draw(expressions(inner, depth - 1))
        expression += part
    return expression


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    with settings(spark, ANSI):
        yield typed_frame(spark).coalesce(1)


def wrong(frame: DataFrame, chosen: list[str]) -> dict[str, object]:
    """Return the expressions that differ, or fail only in Spark."""
    try:
        return differences(chosen, spark_values(frame, chosen))
    except PySparkException as error:
        if len(chosen) == 1:
            return {chosen[0]: f"fails only in Spark: {str(error)[:200]}"}
        half = len(chosen) // 2
        return {**wrong(frame, chosen[:half]), **wrong(frame, chosen[half:])}


def has_values(text: str) -> bool:
    """Return whether an expression is accepted and has a value for every row."""
    try:
        evaluate(parse_expression(text, SCHEMA), ROWS)
    except (EvaluationFailed, InvalidExpression):
        return False
    return True


@pytest.mark.extended
@hypothesis_settings(
    max_examples=examples(5),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(texts=st.lists(expressions(), min_size=80, max_size=120))
def test_random_expressions(frame: DataFrame, texts: list[str]) -> None:
    chosen = [text for text in dict.fromkeys(texts) if has_values(text)]
    assert chosen
    different = wrong(frame, chosen)
    assert not different, "\n".join(f"{text}: {what}" for text, what in different.items())
