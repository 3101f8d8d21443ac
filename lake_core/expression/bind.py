"""From the SQL parser's tree to an expression with types. What is not known is refused by name, never skipped."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from lake_core.expression.coercion import INTEGERS, TIMESTAMP, TIMESTAMP_NTZ, cast_expression, meet, spark_name
from lake_core.expression.errors import InvalidExpression
from lake_core.expression.functions import bind_call, bind_operator
from lake_core.expression.interval import interval, moved
from lake_core.expression.literal import parse_date, parse_timestamp, to_number
from lake_core.expression.name import Names, is_column, parts_of
from lake_core.expression.sql import parse_sql, short, short_sql, suffixed_numbers, too_deep
from lake_core.expression.tree import Case, Cast, Expression, Junction, Literal, OneOf

_MAX_DEPTH = 150
"""Of nodes: evaluation recurses too, in executors as well."""

_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
    exp.DPipe: "concat",
}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_TESTS = (exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Not)

_ARGUMENTS = frozenset({"this", "expression", "expressions", "low", "high", "ifs", "default", "true", "to", "negate"})
"""Of the parser's nodes: those that the binder looks at."""

_HARMLESS = {"safe", "typed", "coalesce", "quoted", "is_string"}

_TYPES: dict[object, pa.DataType] = {
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.TINYINT: pa.int8(),
    exp.DataType.Type.SMALLINT: pa.int16(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: pa.float32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.VARCHAR: pa.string(),
    exp.DataType.Type.BINARY: pa.binary(),
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMP: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPLTZ: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPNTZ: TIMESTAMP_NTZ,
}


_CLOCK: dict[str, pa.DataType] = {"current_timestamp": TIMESTAMP, "now": TIMESTAMP, "current_date": pa.date32(), "curdate": pa.date32()}
_CLOCK_WORDS = ("current_timestamp", "current_date")
"""Functions that go without parentheses too, where there is no column of the name."""


def parse_expression(text: str, schema: pa.Schema, *, relations: bool = False, now: int | None = None) -> Expression:
    """Parse a scalar Spark SQL expression over the columns of `schema`, with the types that Spark's ANSI mode gives it.

    With `relations` the schema's columns are relations, structs of their fields: `t.id` is the field `id` of `t`, and a bare
    name is looked up in all of them. Timestamps are UTC. `now`: what CURRENT_TIMESTAMP stands for, in milliseconds since the epoch;
    without it, it is refused. Raises InvalidExpression: for what does not parse, for a function that is not on the list, for types
    that do not go together.
    """
    tree = parse_sql(text)
    try:
        return Binder(text, Names(text, schema, relations=relations), now).bind(tree)
    except RecursionError:
        raise too_deep(text) from None


class Binder:
    def __init__(self, text: str, names: Names, now: int | None) -> None:
        self._text, self._names, self._now, self._depth = text, names, now, 0

    def bind(self, node: exp.Expr) -> Expression:
        """Raises InvalidExpression, RecursionError."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise too_deep(self._text)
        try:
            self.check(node)
            return self._bind(node)
        except InvalidExpression as error:
            message = str(error)
            raise error if message.startswith(short(self._text)) else InvalidExpression(f"{short(self._text)}: {message}") from None
        finally:
            self._depth -= 1

    def condition(self, node: exp.Expr) -> Expression:
        """As `bind`, for what must be a boolean."""
        found = self.bind(node)
        if pa.types.is_null(found.type):
            return cast_expression(found, pa.bool_())
        if not pa.types.is_boolean(found.type):
            raise InvalidExpression(f"{short(self._text)}: {short_sql(node)} is {spark_name(found.type)}, not a condition")
        return found

    def check(self, node: exp.Expr) -> None:
        """Refuse variants of a node that the binder does not know, and what the parser groups otherwise than Spark."""
        if not is_column(node):
            unknown = [name for name, value in node.args.items() if value and name not in _ARGUMENTS | _HARMLESS]
            if unknown:
                raise self._refused(node)
        sides = [side for side in (node.args.get("this"), node.args.get("expression")) if isinstance(side, exp.Expr)]
        mixed = (isinstance(node, _COMPARISONS) and any(isinstance(side, _TESTS) for side in sides)) or (
            isinstance(node, exp.DPipe) and any(isinstance(side, (exp.Add, exp.Sub)) for side in sides)
        )
        if mixed:
            raise InvalidExpression(f"{short_sql(node)!r} can be read in two ways: put parentheses into it")

    def _bind(self, node: exp.Expr) -> Expression:
        if is_column(node):
            return self._clock(node.name) if self.is_clock(node) else self._names.column(parts_of(node))
        if isinstance(node, (exp.Add, exp.Sub)) and (found := self._moved(node)) is not None:
            return found
        operator = _BINARY.get(type(node))
        if operator is not None:
            return bind_operator(operator, self.bind(node.this), self.bind(node.expression))
        found = self._other(node)
        return bind_operator("not", found) if node.args.get("negate") else found

    def _other(self, node: exp.Expr) -> Expression:
        match node:
            case exp.Paren(this=inner):
                return self.bind(inner)
            case exp.And() | exp.Or():
                operator = "and" if isinstance(node, exp.And) else "or"
                return Junction(operator, tuple(self.condition(part) for part in node.flatten()))  # type: ignore[arg-type]
            case exp.Not(this=inner):
                return bind_operator("not", self.condition(inner))
            case exp.Is(this=left, expression=exp.Null()):
                return bind_operator("isnull", self.bind(left))
            case exp.Is(this=left, expression=exp.Boolean(this=flag)):
                return bind_operator("<=>", self.condition(left), Literal(pa.scalar(bool(flag))))
            case exp.NullSafeNEQ(this=left, expression=right):
                return bind_operator("not", bind_operator("<=>", self.bind(left), self.bind(right)))
            case exp.In(this=left) if node.expressions:
                return self._in(self.bind(left), [self.bind(item) for item in node.expressions])
            case exp.Between(this=left):
                operand = self.bind(left)
                low = bind_operator(">=", operand, self.bind(node.args["low"]))
                return Junction("and", (low, bind_operator("<=", operand, self.bind(node.args["high"]))))
            case exp.Like(this=left, expression=right):
                return self._like(left, right, "\\")
            case exp.Escape(this=exp.Like(this=left, expression=right) as like, expression=exp.Literal(this=escape)):
                found = self._like(left, right, escape)
                return bind_operator("not", found) if like.args.get("negate") else found
            case exp.Case():
                return self._case(node)
            case exp.Cast(this=inner, to=exp.DataType() as target):
                return self._cast(node, inner, target)
            case exp.Neg(this=exp.Literal() as inner) if not inner.is_string:
                return _number(f"-{inner.this}")
            case exp.Neg(this=inner):
                return bind_operator("negative", self.bind(inner))
            case exp.Anonymous(this=str(name)) if name.lower() in _CLOCK and not node.expressions:
                return self._clock(name)
            case exp.Anonymous(this=str(name)):
                return bind_call(name.lower(), [self.bind(argument) for argument in node.expressions])
        return self._literal(node)

    def is_clock(self, node: exp.Expr) -> bool:
        """Whether a name is no column's, but stands for the time."""
        parts = parts_of(node)
        return len(parts) == 1 and parts[0].lower() in _CLOCK_WORDS and not node.this.quoted and not self._names.knows(parts[0])

    def _clock(self, name: str) -> Expression:
        if self._now is None:
            raise InvalidExpression(f"{name} has another value at every look, so that no rule of a table can be built on it")
        moment = Literal(pa.scalar(self._now * 1000, TIMESTAMP))
        return cast_expression(moment, _CLOCK[name.lower()])

    def _moved(self, node: exp.Add | exp.Sub) -> Expression | None:
        """A moment plus or minus an interval."""
        back = isinstance(node, exp.Sub)
        by, moment = interval(node.expression), node.this
        if by is None and not back:
            by, moment = interval(node.this), node.expression
        return None if by is None else moved(self.bind(moment), by, back=back)

    def _literal(self, node: exp.Expr) -> Expression:
        match node:
            case exp.Literal(this=text):
                return Literal(pa.scalar(text, pa.string())) if node.is_string else _number(text)
            case exp.RawString(this=text):
                return Literal(pa.scalar(text, pa.string()))
            case exp.Concat(expressions=parts) if all(isinstance(part, exp.Literal) and part.is_string for part in parts):
                return Literal(pa.scalar("".join(part.this for part in parts), pa.string()))  # 'a' 'b'
            case exp.Boolean(this=flag):
                return Literal(pa.scalar(bool(flag)))
            case exp.Null():
                return Literal(pa.scalar(None, pa.null()))
            case exp.HexString(this=digits):
                return Literal(pa.scalar(bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"), pa.binary()))
        raise self._refused(node)

    def _in(self, operand: Expression, items: Sequence[Expression]) -> Expression:
        operand, *met = meet("IN", [operand, *items])
        literals = [item for item in met if isinstance(item, Literal)]
        if pa.types.is_null(operand.type):
            return Literal(pa.scalar(None, pa.bool_()))
        if pa.types.is_nested(operand.type):
            raise InvalidExpression(f"IN: {spark_name(operand.type)} is not compared here")
        if len(literals) < len(met):
            return Junction("or", tuple(bind_operator("=", operand, item) for item in met))
        held = OneOf(operand, tuple(item.value for item in literals if item.value.is_valid))
        if len(held.values) == len(literals):
            return held
        # Never false with a null in the list.
        return Junction("or", (held, Literal(pa.scalar(None, pa.bool_()))))

    def _like(self, left: exp.Expr, right: exp.Expr, escape: str) -> Expression:
        pattern = self.bind(right)
        if isinstance(pattern, Literal) and isinstance(text := pattern.value.as_py(), str):
            pattern = Literal(pa.scalar(_like_pattern(text, escape), pa.string()))
        return bind_call("like", [self.bind(left), pattern])

    def _case(self, node: exp.Case) -> Expression:
        subject = None if node.this is None else self.bind(node.this)
        conditions, values = [], []
        for branch in node.args["ifs"]:
            condition = self.condition(branch.this) if subject is None else bind_operator("=", subject, self.bind(branch.this))
            conditions.append(condition)
            values.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        values.append(Literal(pa.scalar(None, pa.null())) if default is None else self.bind(default))
        *met, otherwise = meet("CASE", values)
        return Case(tuple(zip(conditions, met, strict=True)), otherwise, otherwise.type)

    def _cast(self, node: exp.Expr, inner: exp.Expr, target: exp.DataType) -> Expression:
        null_if_invalid = bool(isinstance(node, exp.TryCast) and node.args.get("safe"))
        if not isinstance(node, exp.TryCast) and isinstance(inner, exp.Literal):
            return _typed(inner.this, target) or self._to(inner, target, null_if_invalid)
        return self._to(inner, target, null_if_invalid)

    def _to(self, inner: exp.Expr, target: exp.DataType, null_if_invalid: bool) -> Expression:
        operand, kind = self.bind(inner), self._type(target)
        found = cast_expression(operand, kind, null_if_invalid=null_if_invalid)
        if isinstance(inner, exp.Literal) and not inner.is_string and isinstance(found, Literal) and found.value.as_py() == float("inf"):
            raise InvalidExpression(f"{short(inner.this)} is too great for {short_sql(target)}")
        if isinstance(found, Literal) and pa.types.is_integer(kind) and not (_is_number(inner) and self._are_suffixes(inner)):
            # No literal to Spark, which gives literals less digits in decimal arithmetic.
            return Cast(operand, kind, null_if_invalid)
        return found

    def _are_suffixes(self, inner: exp.Expr) -> bool:
        """Whether casts of a number are its suffix (`7L`): the parser's tree tells only how many casts there are."""
        casts = sum(_is_number(cast.this) for cast in inner.root().find_all(exp.Cast))
        suffixes = suffixed_numbers(self._text)
        if 0 < suffixes < casts:
            raise InvalidExpression("numbers with suffixes beside casts of numbers are not told apart here; write only one of them")
        return suffixes > 0

    def _type(self, target: exp.DataType) -> pa.DataType:
        if target.this == exp.DataType.Type.DECIMAL:
            sizes = [int(part.name) for part in target.expressions]
            precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
            if 0 <= scale <= precision <= 38 and precision:
                return pa.decimal128(precision, scale)
        elif not target.expressions and target.this in _TYPES:
            return _TYPES[target.this]
        raise InvalidExpression(f"no cast to {short_sql(target)} is evaluated here")

    def _refused(self, node: exp.Expr) -> InvalidExpression:
        return InvalidExpression(
            f"{short_sql(node)!r} ({type(node).__name__}) is not evaluated here: only scalar functions of a row's columns"
        )


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def _typed(text: str, target: exp.DataType) -> Literal | None:
    """DATE '…' and TIMESTAMP '…'."""
    try:
        if target.this == exp.DataType.Type.DATE:
            return Literal(pa.scalar(parse_date(text), pa.date32()))
        if target.this in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ, exp.DataType.Type.TIMESTAMPNTZ):
            moment = parse_timestamp(text)
            zoned = target.this != exp.DataType.Type.TIMESTAMPNTZ
            if not zoned and moment.tzinfo is not None:
                raise ValueError(text)
            return Literal(pa.scalar(moment, TIMESTAMP if zoned else TIMESTAMP_NTZ))
    except (ValueError, OverflowError):
        raise InvalidExpression(f"{text!r} is no {short_sql(target)}") from None
    return None


def _number(text: str) -> Literal:
    """A number as Spark reads it: INT, else BIGINT, else DECIMAL; a DOUBLE with an exponent."""
    try:
        number = to_number(text)
        if "e" in text.lower():
            return _double_literal(float(text))
        if "." not in text:
            for kind in INTEGERS[2:]:
                if -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1:
                    return Literal(pa.scalar(int(number), kind))
        return _decimal_literal(number)
    except (ValueError, ArithmeticError, pa.ArrowInvalid):
        raise InvalidExpression(f"{short(text)} is no number that can be computed with") from None


def _double_literal(value: float) -> Literal:
    if value in (float("inf"), float("-inf")):
        raise ValueError(value)
    return Literal(pa.scalar(value, pa.float64()))


def _decimal_literal(number: Decimal) -> Literal:
    digits, exponent = len(number.as_tuple().digits), number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    return Literal(pa.scalar(number, pa.decimal128(max(digits, scale), scale)))


def _like_pattern(text: str, escape: str) -> str:
    """The pattern with a backslash for its escape character. Refuses what Spark refuses: an escape before another letter."""
    if len(escape) != 1:
        raise InvalidExpression("ESCAPE takes one character")
    made, letters = [], iter(text)
    for letter in letters:
        if letter == escape:
            following = next(letters, None)
            if following not in ("%", "_", escape):
                raise InvalidExpression(f"LIKE {text!r}: after {escape!r} comes %, _ or {escape!r}")
            made.append(f"\\{following}" if following in "%_\\" else following)
        else:
            made.append("\\\\" if letter == "\\" else letter)
    return "".join(made)
