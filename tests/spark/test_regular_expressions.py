"""RLIKE finds what Spark finds, for every pattern that is not refused."""

from __future__ import annotations

import random

import pyarrow as pa
from pyspark.sql import SparkSession

from lake_core.expression import InvalidExpression, evaluate
from lake_core.expression.functions import bind_call
from lake_core.expression.tree import Column, Literal
from tests.examples import examples

ATOMS = [
    *"abAB1_- .,/é😀ſK]}#\u2028",
    *(f"\\{letter}" for letter in "dDwWsS.\\tnr$"),
    *(
        "[a-c]",
        "[^a-c]",
        "[-a]",
        "[a-]",
        "[\\d-]",
        "[\\w.]",
        "[^\\s]",
        "[é-ü]",
        "[A-Z_0-9]",
        "[a&b]",
        "[$.^]",
        "[^\\n]",
    ),
]
QUANTIFIERS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{0,2}", "{1,3}?"]
LETTERS = "abABkKsS1_- .,/éÉ😀ſ\u212a\n\r\t\x0b\x85\u2028\u2029$\\]}#^"


def pattern(numbers: random.Random, depth: int = 0) -> str:
    """Return a pattern of the grammar that is supported, of Java's."""
    branches = []
    for _ in range(numbers.choice([1, 1, 1, 2, 3])):
        items = [numbers.choice(["", "", "^"])] if depth == 0 else []
        for _ in range(numbers.randint(0, 3)):
            group = depth < 2 and numbers.random() < 0.25
            atom = f"({numbers.choice(['', '?:'])}{pattern(numbers, depth + 1)})" if group else numbers.choice(ATOMS)
            items.append(atom + numbers.choice(QUANTIFIERS))
        items.append(numbers.choice(["", "", "$"]) if depth == 0 else "")
        branches.append("".join(items))
    return (numbers.choice(["", "", "(?i)"]) if depth == 0 else "") + "|".join(branches)


def text(numbers: random.Random) -> str:
    ends = ["", "", "\n", "\r", "\r\n", "\n\r", "\x85", "\u2028", "\n\n"]
    return "".join(numbers.choices(LETTERS, k=numbers.randint(0, 6))) + numbers.choice(ends)


def test_random_patterns(spark: SparkSession) -> None:
    numbers = random.Random(20)
    patterns = list(dict.fromkeys(pattern(numbers) for _ in range(examples(1500))))
    texts = pa.table({"s": [*(text(numbers) for _ in range(60)), None]})
    supported, ours = [], []
    for each in patterns:
        try:
            test = bind_call("rlike", [Column(("s",), pa.string()), Literal(pa.scalar(each))])
        except InvalidExpression:
            continue
        supported.append(each)
        ours.append(evaluate(test, texts).to_pylist())
    assert len(supported) > 0.9 * len(patterns)
    frame = spark.createDataFrame(pa.table({"n": range(len(supported)), "p": supported}))
    both = frame.crossJoin(spark.createDataFrame(texts.append_column("t", [range(len(texts))])))
    rows = both.selectExpr("n", "t", "s RLIKE p AS found").toArrow().sort_by([("n", "ascending"), ("t", "ascending")])
    theirs = rows["found"].to_pylist()
    wrong = [
        (supported[number], texts["s"][row].as_py(), value)
        for number, values in enumerate(ours)
        for row, value in enumerate(values)
        if theirs[number * len(texts) + row] != value
    ]
    assert not wrong, wrong[:20]
