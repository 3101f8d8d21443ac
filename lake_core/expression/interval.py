"""INTERVAL literals, which are supported only when added to or subtracted from a date or a timestamp."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from lake_core.arrow_scalar import scalar
from lake_core.expression.coercion import TIMESTAMP, TIMESTAMP_NTZ, call, implicit, spark_name
from lake_core.expression.errors import InvalidExpression
from lake_core.expression.sql import short_sql
from lake_core.expression.tree import Expression, Literal

_DAY = 86_400_000_000
_MONTHS = {"year": 12, "month": 1}
_MICROSECONDS = {"week": 7 * _DAY, "day": _DAY, "hour": _DAY // 24, "minute": 60_000_000, "second": 1_000_000}
_MICROSECONDS |= {"millisecond": 1000, "microsecond": 1}
_DAYS = ("week", "day")
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Interval:
    """A span of months, whose lengths differ, and of microseconds."""

    months: int
    microseconds: int
    of_days: bool
    """True if it is written in days or longer units. A date plus such an interval is a date."""


def interval(node: exp.Expr) -> Interval | None:
    """Return the interval of a parser's node, or None for any other node.

    Raises InvalidExpression for an interval that is not supported.
    """
    match node.unnest():
        case exp.Interval() as literal:
            return _literal(literal)
        case exp.Add(this=left, expression=right):  # INTERVAL 1 DAY 2 HOURS
            first = interval(left)
            second = None if first is None else interval(right)
            if first is None or second is None:
                return None
            if bool(first.months) != bool(second.months):
                raise InvalidExpression(f"{short_sql(node)!r} has both months and days: add them one after the other")
            return Interval(
                first.months + second.months, first.microseconds + second.microseconds, first.of_days and second.of_days
            )
    return None


def _literal(node: exp.Interval) -> Interval:
    number, unit = node.this, node.args.get("unit")
    if (
        isinstance(number, exp.Literal)
        and isinstance(unit, exp.Var)
        and re.fullmatch(r"\s*[-+]?[0-9]{1,12}\s*", number.this)
    ):
        count, name = int(number.this), unit.name.lower().removesuffix("s")
        if name in _MONTHS:
            return Interval(count * _MONTHS[name], 0, of_days=True)
        if name in _MICROSECONDS:
            return Interval(0, count * _MICROSECONDS[name], of_days=name in _DAYS)
    raise InvalidExpression(
        f"{short_sql(node)!r} is not supported: write a whole number and a unit, such as INTERVAL 30 DAYS"
    )


def moved(moment: Expression, by: Interval, *, back: bool) -> Expression:
    """Return a date or timestamp plus an interval, or minus it (`back`). Raises InvalidExpression."""
    if moment.type not in (pa.date32(), TIMESTAMP, TIMESTAMP_NTZ):
        raise InvalidExpression(
            f"an interval can be added to a DATE or TIMESTAMP, not to {spark_name(moment.type)}; cast it"
        )
    if pa.types.is_date(moment.type) and not by.of_days:
        moment = implicit(moment, TIMESTAMP)
    if abs(by.microseconds) > _MOST:
        raise InvalidExpression("an interval of that many days is not supported")
    sign = -1 if back else 1
    months, microseconds = (Literal(scalar(sign * number, pa.int64())) for number in (by.months, by.microseconds))
    return call("add_interval", moment.type, moment, months, microseconds)
