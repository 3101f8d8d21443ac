"""A command that takes long says so, on a terminal's standard error."""

from __future__ import annotations

import io
import time

from rich.console import Console

from lake_core.cli.output import Output


def console_text(output: Output, seconds: float) -> str:
    with output.waiting("merge"):
        time.sleep(seconds)
    assert isinstance(output.errors.file, io.StringIO)
    return output.errors.file.getvalue()


def test_a_command_that_takes_long_shows_its_name() -> None:
    assert "merge" in console_text(Output(errors=Console(file=io.StringIO(), force_terminal=True), patience=0.01), 0.2)


def test_a_command_that_is_fast_shows_nothing() -> None:
    assert console_text(Output(errors=Console(file=io.StringIO(), force_terminal=True), patience=5), 0) == ""


def test_nothing_is_shown_where_nobody_looks() -> None:
    assert console_text(Output(errors=Console(file=io.StringIO()), patience=0.01), 0.2) == ""


def test_it_is_gone_before_anything_is_printed() -> None:
    output = Output(errors=Console(file=io.StringIO(), force_terminal=True), patience=0.01)
    with output.waiting("merge"):
        time.sleep(0.1)
        output.show({}, "")
        assert isinstance(output.errors.file, io.StringIO)
        before = output.errors.file.getvalue()
        time.sleep(0.2)
        assert output.errors.file.getvalue() == before
