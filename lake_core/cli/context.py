"""The context of the commands: the lake, the output, and the exit codes of errors."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from lake_core.cli.output import Output
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.properties import duration_ms
from lake_core.errors import CredentialsInUrl, LakeError
from lake_core.lake.errors import Conflict, LakeNotFound
from lake_core.lake.lake_format import FORMAT_KEY
from lake_core.report.refusals import refusal_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lake_core.lake import Lake

_P = ParamSpec("_P")
_R = TypeVar("_R")

FAILED, CONFLICT, FOUND = 1, 3, 4
"""Exit codes."""


_CREDENTIALS = (
    "the lake's URL must not hold credentials: pass them in the environment variables "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or other secrets in LAKE_STORAGE_OPTIONS"
)


storage_option = click.option(
    "--storage-option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    envvar="LAKE_STORAGE_OPTIONS",
    show_envvar=True,
    help="An option of fsspec for the store; may be repeated.",
)
"""The option for what opens the lake's store."""


class OptionsFirst(click.Group):
    """A group whose options must come before the command. After it, they are an error that says so."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises UsageError."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if not any(error.option_name in param.opts for param in self.params):
                raise
            raise click.UsageError(
                f"The option {error.option_name} must come before the command: "
                f"write `{ctx.command_path} {error.option_name} ... {ctx.invoked_subcommand}`.",
                error.ctx,
            ) from None


@dataclass(slots=True)
class Context:
    """The options before the command."""

    url: str | None = None
    """The location of the lake, if an option or the environment names it."""
    storage_options: dict[str, str] = field(default_factory=dict)
    output: Output = field(default_factory=Output)
    remedy: str = ""
    """What to do about a conflict of the command that runs."""

    @property
    def location(self) -> str:
        """Return the lake's location: as the caller says, else the nearest lake at or above the working directory."""
        return self.url or str(find_upwards(Path.cwd()) or ".")

    def open(self, *, read_only: bool = False) -> Lake:
        """Open the lake of the command, with `read_only` so that nothing can be written to its store.

        Raises LakeNotFound with a message for the command line.
        """
        from lake_core.lake import Lake  # not needed to show help

        try:
            if read_only:
                from lake_core.store import open_store
                from lake_core.store.read_only import ReadOnlyStore

                store = open_store(self.location, storage_options=self.storage_options, read_only=True)
                return Lake.open(ReadOnlyStore(store))
            return Lake.open(self.location, storage_options=self.storage_options)
        except LakeNotFound:
            if self.url is None:
                folder = Path.cwd()
                raise LakeNotFound(f"there is no lake at {folder} or in a folder above it{_remedy(folder)}") from None
            raise LakeNotFound(
                f"there is no lake at {self.url}: "
                f"create one with `lake init {self.url}`, or name another one with --lake or LAKE_URL"
            ) from None


def _remedy(folder: Path) -> str:
    """Return what to do if there is no lake: name the one below the folder, or create one."""
    lake = next((key.parents[1].name for key in sorted(folder.glob(f"*/{FORMAT_KEY}"))), None)
    if lake is not None:
        return f", but there is one in {lake}: name it with `lake --lake {lake} ...` or LAKE_URL={lake}"
    return ": create one with `lake init <root>`, or name one with --lake or LAKE_URL"


def parse_options(options: Iterable[str]) -> dict[str, str]:
    """Read the store's options of the form NAME=VALUE. Raises BadParameter."""
    return parse_pairs(options, "--storage-option")


def parse_pairs(options: Iterable[str], hint: str) -> dict[str, str]:
    """Read values of an option of the form NAME=VALUE. Raises BadParameter."""
    values = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise click.BadParameter(f"{name!r} has no value: write NAME=VALUE", param_hint=hint)
        values[name] = value
    return values


def find_upwards(folder: Path) -> Path | None:
    """Find the nearest lake in a folder or those above it, as git finds a repository."""
    return next((each for each in (folder, *folder.parents) if (each / FORMAT_KEY).is_file()), None)


pass_context = click.make_pass_decorator(Context, ensure=True)


def command(run: Callable[_P, _R]) -> Callable[_P, _R]:
    """Give a command `--json` and the context as its first argument, and turn our errors into exit codes."""

    @functools.wraps(run)
    def wrapped(context: Context, /, *args: Any, as_json: bool = False, **options: Any) -> Any:
        context.output.as_json |= as_json
        try:
            with context.output.waiting(click.get_current_context().info_name or ""):
                return run(context, *args, **options)  # type: ignore[arg-type]
        except Conflict as error:
            remedy = context.remedy or error.remedy
            if context.output.as_json:
                context.output.show(refusal_row(error, remedy))
            click.echo(f"conflict: {error.explanation}" + (f"\n{remedy}" if remedy else ""), err=True)
            raise SystemExit(CONFLICT) from None
        except (LakeError, ValueError) as error:
            text = _CREDENTIALS if isinstance(error, CredentialsInUrl) else str(error)
            if context.output.as_json:
                context.output.show({"error": text, "kind": type(error).__name__})
            click.echo(f"error: {text}", err=True)
            raise SystemExit(FAILED) from None

    option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    return option(pass_context(wrapped))  # type: ignore[return-value]


class Span(click.ParamType[timedelta]):
    """A length of time: `90m`, `24h`, `7d`, or `7 days` as the properties of tables have it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read a number with its unit, such as `90m`; fail as wrong usage for anything else."""
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(milliseconds=duration_ms(str(value), "it"))
        except InvalidProperty:
            self.fail(f"{value!r} is not a length of time: write it as 90m, 24h or 7d, or '7 days'", param, ctx)
