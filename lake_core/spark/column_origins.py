"""Finds the columns of loaded DataFrames from which the columns of a DataFrame are computed, in Spark's analyzed plan.

A DataFrame is marked when it is loaded (`marked`), by a condition that is always true. Spark removes it before it plans
a job. In the plans of DataFrames that are computed from it, the marks show where loaded columns enter, and expression
ids show where they go. Only columns from which values are computed count, not those that select, group or order rows
(filters, join and grouping keys, windows).

Spark offers the plan only as text, in which names and literals are not quoted. Therefore the parser is strict: if it
meets an unknown operator, or text that it cannot parse completely, the columns that depend on it are unknown. Unknown
columns are left out.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Origin: TypeAlias = tuple[str, str]
"""A mark, and a column of the DataFrame that has it."""
Origins: TypeAlias = "frozenset[Origin] | None"
"""The origins of a column, or None if they are unknown."""

_MARK = re.compile(r"\w+", re.ASCII)
_MARKED = re.compile(r"\(origin:(\w+) = origin:\1\)", re.ASCII)
_LINE = re.compile(r"((?:[: ] {2})*(?:[:+]- )?)(\S.*)")
_ATTRIBUTE = re.compile(r"(.*)#(\d+)L?", re.DOTALL)
_REFERENCE = re.compile(r"#(\d+)L?(?!\w)")
_VARIABLE = re.compile(r"(?:^|\W)lambda \w+$")
_WINDOW = "windowspecdefinition("
_PIVOT = "pivotfirst("
_BEGIN = re.compile(r"^== Analyzed Logical Plan ==\n(?:.*\n)*?(?=GlobalLimit 0\n)", re.MULTILINE)
_END = "\n== Optimized Logical Plan =="
_MAX_TEXT = 4_000_000
_SETTINGS = {"spark.sql.debug.maxToStringFields": "1000000", "spark.sql.maxPlanStringLength": str(_MAX_TEXT)}

_SAME_COLUMNS = {
    *(
        "CollectMetrics",
        "Deduplicate",
        "Distinct",
        "Filter",
        "GlobalLimit",
        "LocalLimit",
        "Offset",
        "RebalancePartitions",
        "Repartition",
    ),
    *("RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "SubqueryAlias", "Tail", "View"),
}
_LEAVES = {"LocalRelation", "LogicalRDD", "OneRowRelation", "Relation", "RelationV2"}


def marked(df: DataFrame, mark: str) -> DataFrame:
    """Return the same rows and columns, with a mark that `column_origins` finds.

    `mark` consists of ASCII letters, digits and underscores.
    """
    if not _MARK.fullmatch(mark):
        raise ValueError(f"a mark must consist of letters, digits and underscores, not {mark!r}")
    return df.where(F.lit(f"origin:{mark}") == F.lit(f"origin:{mark}"))


def column_origins(df: DataFrame) -> dict[str, frozenset[Origin]] | None:
    """Return, for each column, the columns of marked DataFrames from which its values are computed.

    Leave out columns whose origins are unknown. Return None if all are unknown. No job is run. Raises Spark's error if
    Spark cannot plan the DataFrame.
    """
    names = df.columns
    text = _plan(df)
    begin = _BEGIN.search(text)
    if begin is None or len(set(names)) < len(names):
        return None
    try:
        scope = _Reader().read(_tree(text[begin.end() :].partition(_END)[0]))
    except (_Unreadable, RecursionError):
        return None
    if [column.name for column in scope.columns] != names or scope.unnamed == "unknown":
        return None
    origins = {column.name: column.origins for column in scope.columns if column.origins is not None}
    return origins or None


def _plan(df: DataFrame) -> str:
    # Without rows, Spark's planning ends early: it does not list files or ask sources for their tasks.
    empty = df.limit(0)
    with _settings(df.sparkSession, _SETTINGS):
        return _explained(empty)


def _explained(df: Any) -> str:
    """Return what `df.explain(mode="extended")` prints, by the calls that it makes.

    To capture what it prints would replace the standard output, which all threads share.
    """
    if hasattr(type(df), "_explain_string"):  # a DataFrame of Connect
        return str(df._explain_string(mode="extended"))
    return str(df.sparkSession._jvm.PythonSQLUtils.explainString(df._jdf.queryExecution(), "extended"))


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)


class _Unreadable(Exception):
    """The text does not have the form of a plan."""


@dataclass(slots=True)
class _Node:
    operator: str
    arguments: str
    children: list[_Node] = field(default_factory=list)


def _tree(text: str) -> _Node:
    """Parse the tree of operators. Plans of subqueries, which are printed one level further in, are left out."""
    path: list[_Node | None] = []
    for line in text.rstrip("\n").split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or len(match[1]) % 3:
            raise _Unreadable
        depth = len(match[1]) // 3
        word = re.match(r"\w+", match[2])
        node = _Node(word[0], match[2][word.end() :].strip()) if word else None
        if depth > len(path):
            path.extend([None] * (depth - len(path)))
        del path[depth:]
        if depth:
            parent = path[-1]
            if parent is not None:
                if node is None:
                    raise _Unreadable
                parent.children.append(node)
            else:
                # The node is part of a subquery.
                node = None
        elif path or node is None:
            raise _Unreadable
        path.append(node)
        if depth == 0:
            root = node
    if root is None:
        raise _Unreadable
    return root


_NONE: frozenset[Origin] = frozenset()

Unnamed: TypeAlias = Literal["none", "outside", "unknown"]
"""The columns that an operator returns but does not name: none, some that are not from marked DataFrames, or any."""


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    id: int
    origins: Origins


@dataclass(frozen=True, slots=True)
class _Scope:
    """The columns that an operator returns, in order."""

    columns: Sequence[_Column]
    unnamed: Unnamed = "none"

    def of(self, expression: str) -> Origins:
        """Return the origins of the columns that an expression names."""
        origins = []
        columns = {column.id: column for column in self.columns}
        for match in _REFERENCE.finditer(expression):
            before = expression[: match.start()]
            column = columns.get(int(match[1]))
            if column is None:
                origins.append(self._unlisted(before))
            elif not before.lower().endswith(column.name.lower()):
                origins.append(None)
            elif (
                expression[match.end() : match.end() + 1] in (".", "[")
                and column.origins is not None
                and len(column.origins) > 1
            ):
                # The expression takes a part of a combined value. The plan does not show where that part is from.
                origins.append(None)
            else:
                origins.append(column.origins)
        return _together(origins)

    def _unlisted(self, before: str) -> Origins:
        """Return the origins of a name that is not a column of the plan below.

        The name is a lambda's variable, or the result of a Python function. The latter follows its arguments.
        """
        is_derived = before.endswith(")") or _VARIABLE.search(before) is not None
        return _NONE if self.unnamed == "outside" or (self.unnamed == "none" and is_derived) else None

    def item(self, text: str) -> _Column:
        """Return a column of a list. It is a column from below, or `<expression> AS <name>#<id>`."""
        name, number = _attribute(text)
        for column in self.columns:
            if column.id == number and column.name.lower() == name.lower():
                # Keep the spelling of the query.
                return _Column(name, number, column.origins)
        expression, alias, new = name.rpartition(" AS ")
        if alias:
            return _Column(new, number, self.of(_values_only(expression)))
        return _Column(name, number, _NONE if self.unnamed == "outside" else None)


_OPEN = _Scope((), "unknown")


class _Reader:
    """Finds the columns that each operator returns, from the leaves of the plan up."""

    def __init__(self) -> None:
        self._named: dict[str, _Scope] = {}

    def read(self, node: _Node) -> _Scope:
        if node.operator == "WithCTE":
            return [self.read(child) for child in node.children][-1] if node.children else _OPEN
        below = [self.read(child) for child in node.children]
        try:
            return self._operator(node, below)
        except _Unreadable:
            return _OPEN

    def _operator(self, node: _Node, below: Sequence[_Scope]) -> _Scope:
        if node.operator in _LEAVES and not below:
            return _leaf(node)
        if node.operator == "Range" and not below:
            # The plan does not show the expression id of this column.
            return _Scope([_Column("id", -1, _NONE)], "outside")
        if node.operator == "CTERelationRef" and not below:
            return self._reference(node)
        if len(below) == 1:
            if node.operator == "CTERelationDef":
                self._named[node.arguments.partition(",")[0]] = below[0]
                return below[0]
            return self._unary(node, below[0])
        if len(below) == 2 and node.operator == "Join":
            return _join(node, *below)
        if len(below) == 2 and node.operator in ("Intersect", "Except"):
            return below[0]
        if below and node.operator == "Union":
            return _union(below)
        return _OPEN

    def _reference(self, node: _Node) -> _Scope:
        arguments = _split(node.arguments)
        scope = self._named.get(arguments[0])
        if scope is None or len(arguments) < 3:
            return _OPEN
        names = [_attribute(text) for text in _listed(arguments[2])]
        if scope.unnamed != "none" or len(scope.columns) != len(names):
            return _OPEN
        return _Scope([_Column(*name, column.origins) for name, column in zip(names, scope.columns, strict=True)])

    def _unary(self, node: _Node, below: _Scope) -> _Scope:
        marks = _MARKED.fullmatch(node.arguments) if node.operator == "Filter" else None
        if marks is not None:
            if below.unnamed != "none":
                return _OPEN
            return _Scope(
                [_Column(column.name, column.id, frozenset([(marks[1], column.name)])) for column in below.columns]
            )
        if node.operator in _SAME_COLUMNS:
            return below
        read = _OPERATORS.get(node.operator)
        return _OPEN if read is None else read(_split(node.arguments), below)


def _leaf(node: _Node) -> _Scope:
    begin = node.arguments.find("[")
    if begin < 0:
        return _Scope(())
    listed = _listed(node.arguments[begin : _closing(node.arguments, begin) + 1])
    return _Scope([_Column(*_attribute(text), _NONE) for text in listed])


def _project(arguments: Sequence[str], below: _Scope) -> _Scope:
    if len(arguments) != 1:
        return _OPEN
    return _Scope([below.item(text) for text in _listed(arguments[0])])


def _aggregate(arguments: Sequence[str], below: _Scope) -> _Scope:
    if len(arguments) != 2:
        return _OPEN
    return _Scope([below.item(text) for text in _listed(arguments[1])])


def _window(arguments: Sequence[str], below: _Scope) -> _Scope:
    if not arguments:
        return _OPEN
    return _Scope([*below.columns, *(below.item(text) for text in _listed(arguments[0]))], below.unnamed)


def _generate(arguments: Sequence[str], below: _Scope) -> _Scope:
    if len(arguments) < 3 or any(text.startswith("[") for text in arguments[1:-1]):
        return _OPEN
    origins = below.of(arguments[0])
    names = [_attribute(text) for text in _listed(arguments[-1])]
    if len(names) > 1 and origins is not None and len(origins) > 1:
        # The plan does not show which column depends on which.
        origins = None
    generated = [_Column(*name, origins) for name in names]
    return _Scope([*below.columns, *generated], below.unnamed)


def _expand(arguments: Sequence[str], below: _Scope) -> _Scope:
    if len(arguments) != 2:
        return _OPEN
    rows = [_listed(text) for text in _listed(arguments[0])]
    names = [_attribute(text) for text in _listed(arguments[1])]
    if any(len(row) != len(names) for row in rows):
        return _OPEN
    columns = zip(*rows, strict=True)
    return _Scope(
        [
            _Column(*name, _together(below.of(text) for text in expressions))
            for name, expressions in zip(names, columns, strict=True)
        ]
    )


_OPERATORS: Mapping[str, Callable[[Sequence[str], _Scope], _Scope]] = {
    "Project": _project,
    "Aggregate": _aggregate,
    "Window": _window,
    "Generate": _generate,
    "Expand": _expand,
}


def _join(node: _Node, left: _Scope, right: _Scope) -> _Scope:
    kind = re.match(r"\w+", node.arguments)
    if kind is None or kind[0] not in (
        "Inner",
        "Cross",
        "LeftOuter",
        "RightOuter",
        "FullOuter",
        "LeftSemi",
        "LeftAnti",
    ):
        return _OPEN
    if kind[0] in ("LeftSemi", "LeftAnti"):
        return left
    unnamed = max(left.unnamed, right.unnamed, key=("none", "outside", "unknown").index)
    return _Scope([*left.columns, *right.columns], unnamed)


def _union(below: Sequence[_Scope]) -> _Scope:
    """Return the first scope's columns, each with the origins of the columns at its position in all scopes."""
    first = below[0]
    if any(scope.unnamed != "none" or len(scope.columns) != len(first.columns) for scope in below):
        return _OPEN
    positions = zip(*(scope.columns for scope in below), strict=True)
    return _Scope(
        [
            _Column(columns[0].name, columns[0].id, _together(column.origins for column in columns))
            for columns in positions
        ]
    )


def _together(all_: Iterable[Origins]) -> Origins:
    union: set[Origin] = set()
    for origins in all_:
        if origins is None:
            return None
        union |= origins
    return frozenset(union)


def _attribute(text: str) -> tuple[str, int]:
    """Return the name and id of `name#1L`."""
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise _Unreadable
    return match[1], int(match[2])


def _values_only(expression: str) -> str:
    """Return an expression without the keys of its windows (partitions and order) and of its pivot."""
    while (begin := expression.find(_WINDOW)) >= 0:
        end = _closing(expression, begin + len(_WINDOW) - 1)
        expression = expression[:begin] + expression[end + 1 :]
    if expression.startswith(_PIVOT):
        return ", ".join(_split(expression[len(_PIVOT) : _closing(expression, len(_PIVOT) - 1)])[1:])
    return expression


def _listed(text: str) -> list[str]:
    """Return the parts of `[a, b]`."""
    if not text.startswith("[") or _closing(text, 0) != len(text) - 1:
        raise _Unreadable
    return _split(text[1:-1])


_PAIRS = {"(": ")", "[": "]", "{": "}"}
_BRACKET = re.compile(r"[()\[\]{},]")


def _split(text: str) -> list[str]:
    """Split a text at the commas outside of brackets. Raises _Unreadable if brackets do not match."""
    parts, start = [], 0
    expected: list[str] = []
    for match in _BRACKET.finditer(text):
        sign = match[0]
        if sign in _PAIRS:
            expected.append(_PAIRS[sign])
        elif sign != ",":
            if not expected or expected.pop() != sign:
                raise _Unreadable
        elif not expected:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    if expected:
        raise _Unreadable
    last = text[start:].strip()
    return [*parts, last] if parts or last else []


def _closing(text: str, begin: int) -> int:
    """Return the position of the bracket that closes the one at `begin`."""
    depth = 0
    for match in _BRACKET.finditer(text, begin):
        if match[0] in _PAIRS:
            depth += 1
        elif match[0] != ",":
            depth -= 1
            if depth == 0:
                return match.start()
    raise _Unreadable
