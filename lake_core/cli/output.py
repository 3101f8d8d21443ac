"""What commands print: tables and lines for people, one JSON document for programs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


@dataclasses.dataclass(slots=True)
class Output:
    """Where and how a command prints."""

    as_json: bool = False

    def show(self, value: Any, text: str | None = None) -> None:
        """A value: as JSON, or as the text that says the same."""
        if self.as_json:
            click.echo(json.dumps(plain(value), ensure_ascii=False, indent=1))
        else:
            click.echo(text if text is not None else str(value))

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Rows of a table; as JSON with all that is known of them."""
        if self.as_json:
            click.echo(json.dumps(plain(list(rows)), ensure_ascii=False, indent=1))
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(_cell(row.get(column)) for column in columns))
        Console(soft_wrap=not _is_terminal(), width=None if _is_terminal() else 200).print(table)

    @contextmanager
    def progress(self, what: str) -> Iterator[Any]:
        """Long work: yields what to call with (phase, count). Shown on a terminal's standard error only."""
        console = Console(stderr=True)
        if self.as_json or not console.is_terminal:
            yield lambda phase, count: None
            return
        with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True) as shown:
            task = shown.add_task(what)
            yield lambda phase, count: shown.update(task, description=f"{what}: {phase} {count}")


def _is_terminal() -> bool:
    return Console().is_terminal


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(sep=" ", timespec="seconds")
    return str(value)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return value.to_pylist() if hasattr(value, "to_pylist") else str(value)
