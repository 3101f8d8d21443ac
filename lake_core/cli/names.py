"""Arguments that name objects in a lake, `[ref:]path`, and their completion in a shell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from lake_core.cli.context import Context, parse_options
from lake_core.errors import LakeError

if TYPE_CHECKING:
    from lake_core.lake import Lake

_REF_AND_PATH = re.compile(r"((?:[^:{}]|\{[^{}]*\})+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Location:
    """A path at a ref."""

    ref: str
    path: str

    def __str__(self) -> str:
        return f"{self.ref}:{self.path}"


class LocationParam(click.ParamType[Location]):
    """`path` of main, or `ref:path` as in git. Paths are relative to the lake's root."""

    name = "[ref:]path"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        """Split at the colon after the ref. Without a colon the ref is main."""
        if isinstance(value, Location):
            return value
        match = _REF_AND_PATH.fullmatch(str(value))
        ref, path = (match[1], match[2]) if match else ("main", str(value))
        return Location(ref, path.removeprefix("./").strip("/"))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the datasets of the ref whose paths begin with the part after the colon."""
        match = _REF_AND_PATH.fullmatch(incomplete)
        ref, path = (match[1], match[2]) if match else ("main", incomplete)
        # Bash breaks words at colons, and passes only the part after one; other shells pass the whole word.
        before = f"{ref}:" if match else ""
        return [CompletionItem(before + name) for name in _tables(ctx, ref) if name.startswith(path)]


class Ref(click.ParamType[str]):
    """A ref expression: a branch, tag, commit or session, or one before it such as `main~1`."""

    name = "ref"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged: the lake resolves the expression."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the branches, tags and sessions that begin with the text; none without a lake."""
        lake = _lake(ctx)
        names = (
            []
            if lake is None
            else [*lake.list_branches(), *lake.list_tags(), *(record.id for record in lake.list_sessions())]
        )
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


class TablePath(click.ParamType[str]):
    """The path of a dataset of main."""

    name = "table"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path without a leading `./` and slashes at its ends."""
        return str(value).removeprefix("./").strip("/")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the datasets of main whose paths begin with the text."""
        return [CompletionItem(name) for name in _tables(ctx, "main") if name.startswith(incomplete)]


def _tables(ctx: click.Context, ref: str) -> list[str]:
    lake = _lake(ctx)
    try:
        return [] if lake is None else [record.path for record in lake.list_datasets(ref)]
    except LakeError:
        return []


def _lake(ctx: click.Context) -> Lake | None:
    """Open the lake of a command line that is being completed, or return None if there is none."""
    options = ctx.find_root().params
    try:
        return Context(options.get("url"), parse_options(options.get("options") or ())).open()
    except (LakeError, click.UsageError):
        return None
