"""The output of commands: tables and lines for people, one JSON document for programs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from lake_core.report.values import cell_text, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.progress import Progress


@dataclasses.dataclass(slots=True)
class Output:
    """The output of a command, and its format."""

    as_json: bool = False
    errors: Console | None = None
    """The terminal of standard error, if there is one. By default it is looked for."""
    patience: float = 2.0
    """Seconds after which a command shows that it is still running."""
    _sign_of_life: SignOfLife | None = None

    @contextmanager
    def waiting(self, command: str) -> Iterator[None]:
        """Show that a command is running, once it has printed nothing for a while.

        The line goes to standard error, and only if that is a terminal.
        """
        terminal = self._terminal()
        if terminal is None:
            yield
            return
        self._sign_of_life = SignOfLife(terminal, command, self.patience)
        try:
            yield
        finally:
            self.settle()

    def _terminal(self) -> Console | None:
        """Return the terminal of standard error."""
        if self.errors is None and not sys.stderr.isatty() and "FORCE_COLOR" not in os.environ:
            return None  # most commands of scripts: rich need not be imported
        from rich.console import Console

        console = self.errors or Console(stderr=True)
        return console if console.is_terminal else None

    def settle(self) -> None:
        """Remove the line of `waiting`, before anything else is printed."""
        if self._sign_of_life is not None:
            self._sign_of_life.end()
            self._sign_of_life = None

    def write(self, data: bytes) -> None:
        """Print bytes unchanged."""
        self.settle()
        sys.stdout.buffer.write(data)

    def show(self, value: Any, text: str | None = None) -> None:
        """Print a value as JSON, or `text` in its place."""
        self.settle()
        if self.as_json:
            click.echo(json.dumps(plain(value), ensure_ascii=False, indent=1))
        else:
            click.echo(text if text is not None else str(value))

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print these columns of rows as a table, or all columns as JSON."""
        self.settle()
        if self.as_json:
            click.echo(json.dumps(plain(list(rows)), ensure_ascii=False, indent=1))
            return
        if len(rows) > _MOST_LAID_OUT:
            click.echo("\n".join(_aligned(rows, columns)))
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        is_terminal = Console().is_terminal
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell_text(row.get(column))) for column in columns))
        Console(soft_wrap=not is_terminal, width=None if is_terminal else 200).print(table)

    @contextmanager
    def progress(self, what: str) -> Iterator[Any]:
        """Yield a function to call with (phase, count) during long work.

        Progress is shown on a terminal's standard error only.
        """
        self.settle()
        terminal = self._terminal()
        if terminal is None:
            yield lambda phase, count: None
            return
        with _progress(terminal) as shown:
            task = shown.add_task(what)
            yield lambda phase, count: shown.update(task, description=f"{what}: {phase} {count}")


def _progress(terminal: Console) -> Progress:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    return Progress(*columns, console=terminal, transient=True)


class SignOfLife:
    """A line on a terminal with the command and how long it has been running. It appears after some seconds."""

    def __init__(self, console: Console, text: str, patience: float) -> None:
        self._progress = _progress(console)
        self._progress.add_task(text, total=None)
        self._lock, self._ended = threading.Lock(), False
        self._timer = threading.Timer(patience, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def _begin(self) -> None:
        with self._lock:
            if not self._ended:
                self._progress.start()

    def end(self) -> None:
        """Remove the line, or do not show it at all."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            self._progress.stop()


_MOST_LAID_OUT = 1000
"""The most rows for which a table is fitted to the terminal's width, which takes far longer than printing."""


def _aligned(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    texts = [[column, *(cell_text(row.get(column)) for row in rows)] for column in columns]
    from rich.cells import cell_len, set_cell_size

    widths = [max(map(cell_len, column)) for column in texts]
    for line in zip(*texts, strict=True):
        yield "  ".join(set_cell_size(text, width) for text, width in zip(line, widths, strict=True)).rstrip()
