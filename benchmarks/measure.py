"""Two programs in turn, each in a process of its own: wall seconds and peak memory, and their ratios pair by pair."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process would compile this package, though not its peers
_FRAME = """
import json, os, sys, time
{setup}
# Names that no body uses for its own.
_frame_begin, _frame_cpu_begin = time.perf_counter(), time.process_time()
{body}
_frame_seconds, _frame_cpu = time.perf_counter() - _frame_begin, time.process_time() - _frame_cpu_begin
# Not getrusage: its maximum starts with that of the process that forked this one.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(json.dumps({{"seconds": _frame_seconds, "cpu": _frame_cpu, "peak": peak, "result": result}}), flush=True)
os._exit(0)  # without the end of the process, at which threads of PyArrow's datasets abort it
"""


@dataclass(frozen=True, slots=True)
class Program:
    """Python text: `setup` is not timed, `body` is and leaves `result`, which both programs must agree on."""

    setup: str
    body: str
    python: str = sys.executable
    """The interpreter of the environment that it runs in."""


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    peak: float
    """Megabytes."""
    result: object
    cpu: float
    """Seconds of all processors, those of the system for it included."""


def run(program: Program) -> Run:
    source = _FRAME.format(setup=program.setup, body=program.body)
    process = subprocess.run([program.python, "-c", source], capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(process.stderr)
    report = json.loads(process.stdout.splitlines()[-1])
    return Run(report["seconds"], report["peak"], report["result"], report["cpu"])


def compare(
    name: str, ours: Program, theirs: Program, *, rounds: int = 5, peer: str = "deltalake", memory: bool = True
) -> None:
    """Run both `rounds` times in turn after one warm-up of each, and print medians and ratios (`memory`: of peaks too).

    Raises if results differ.
    """
    pairs = [(run(ours), run(theirs)) for _ in range(rounds + 1)][1:]
    for mine, other in pairs:
        if mine.result != other.result:
            raise AssertionError(f"{name}: results differ: {mine.result} and {other.result}")
    for unit, field in (("s", "seconds"), ("MB", "peak"))[: 2 if memory else 1]:
        mine = [getattr(pair[0], field) for pair in pairs]
        other = [getattr(pair[1], field) for pair in pairs]
        _report(name, unit, mine, other, peer)


def compare_commands(
    name: str,
    ours: Sequence[str],
    theirs: Sequence[str],
    *,
    rounds: int = 5,
    peer: str = "deltalake",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run two commands `rounds` times in turn after one warm-up of each, and print the seconds of whole processes."""
    variables = {**os.environ, **(environment or {})}
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for command, taken in zip((ours, theirs), seconds, strict=True):
            begin = time.perf_counter()
            finished = subprocess.run(command, capture_output=True, text=True, env=variables)
            if finished.returncode > 0:  # below zero, PyArrow's datasets aborted the process at its end
                raise RuntimeError(finished.stderr)
            if number:
                taken.append(time.perf_counter() - begin)
    _report(name, "s", *seconds, peer)


_reported: list[tuple[str, str, float, float, str, float]] = []


def _report(name: str, unit: str, mine: Sequence[float], other: Sequence[float], peer: str) -> None:
    ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
    middle, theirs_middle = statistics.median(mine), statistics.median(other)
    _reported.append((name, unit, middle, theirs_middle, peer, ratio))
    print(f"{name:<48} {middle:9.3f} {unit:<2}  {peer} {theirs_middle:9.3f} {unit:<2}  ratio {ratio:5.2f}", flush=True)


def print_ratios() -> None:
    """Print a page of all comparisons so far, with the day and the machine."""
    if not _reported:
        return
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"\nMeasured on {date.today()}, {machine}: medians of runs in turn.\n")
    print("| What | lake-orch | peer | ratio |\n|---|---|---|---|")
    for name, unit, middle, theirs, peer, ratio in _reported:
        print(f"| {name} | {_readable(middle, unit)} | {peer} {_readable(theirs, unit)} | {ratio:.2f} |")


def _readable(amount: float, unit: str) -> str:
    return f"{amount:.3g} {unit}" if unit == "s" else f"{amount:.0f} {unit}"
