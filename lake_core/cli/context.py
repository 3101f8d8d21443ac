"""What commands share: the lake that they are about, how they print, and what errors become."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import click

from lake_core.cli.output import Output
from lake_core.errors import LakeError
from lake_core.lake import Lake
from lake_core.lake.errors import Conflict, LakeNotFound

_P = ParamSpec("_P")
_R = TypeVar("_R")

FAILED, CONFLICT, FOUND = 1, 3, 4
"""Exit codes."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(slots=True)
class Context:
    """The options that stand before the command."""

    url: str = "."
    storage_options: dict[str, str] = field(default_factory=dict)
    output: Output = field(default_factory=Output)

    def open(self) -> Lake:
        """The lake that the command is about."""
        try:
            return Lake.open(self.url, storage_options=self.storage_options)
        except LakeNotFound:
            raise LakeNotFound(f"no lake at {self.url}: make one with `lake init {self.url}`, or name another by --lake") from None


pass_context = click.make_pass_decorator(Context, ensure=True)


def command(run: Callable[_P, _R]) -> Callable[_P, _R]:
    """Give a command `--json`, the shared context as its first argument, and our errors as exit codes."""

    @functools.wraps(run)
    def wrapped(context: Context, /, *args: Any, as_json: bool = False, **options: Any) -> Any:
        context.output.as_json |= as_json
        try:
            return run(context, *args, **options)  # type: ignore[arg-type]
        except Conflict as error:
            if context.output.as_json:
                context.output.show({"error": str(error), "kinds": error.kinds, "commit": error.commit, "session": error.session})
            click.echo(f"conflict: {error}", err=True)
            raise SystemExit(CONFLICT) from None
        except (LakeError, ValueError) as error:
            if context.output.as_json:
                context.output.show({"error": str(error), "kind": type(error).__name__})
            click.echo(f"error: {error}", err=True)
            raise SystemExit(FAILED) from None

    option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    return option(pass_context(wrapped))  # type: ignore[return-value]


class Span(click.ParamType[timedelta]):
    """A length of time: `90m`, `24h`, `7d`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = _SPAN.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no length of time: use 90m, 24h, 7d", param, ctx)
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
