"""The seeds of random histories.

`make histories ARGS="--seeds 6000:7000"` runs other long ones than the usual. A few histories are new in each run:
their tests are named after the first seed, and `--new-seeds-from` runs the same ones again.
"""

from __future__ import annotations

import time

import pytest

USUAL = "1000:6000"
_BLOCK = 500
"""How many seeds one test runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--seeds` and `--new-seeds-from`."""
    parser.addoption("--seeds", default=USUAL, metavar="FIRST:STOP", help=f"long random histories ({USUAL})")
    # Processes that run tests get the options of the one that started them, so they agree on the time.
    parser.addoption(
        "--new-seeds-from", type=int, default=int(time.time()), metavar="FIRST", help="histories that were new in a run"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test with an argument `chosen_seeds` the chosen seeds, in blocks, and `new_seed` the first new one."""
    if "new_seed" in metafunc.fixturenames:
        metafunc.parametrize("new_seed", [metafunc.config.getoption("--new-seeds-from")])
    if "chosen_seeds" in metafunc.fixturenames:
        blocks = seed_blocks(metafunc.config.getoption("--seeds"))
        metafunc.parametrize("chosen_seeds", blocks, ids=[f"{block.start}:{block.stop}" for block in blocks])


def seed_blocks(text: str) -> list[range]:
    """Return the seeds from FIRST up to and without STOP, in blocks. Raises pytest.UsageError."""
    first, colon, stop = text.partition(":")
    if not (colon and first.isascii() and first.isdecimal() and stop.isascii() and stop.isdecimal()):
        raise pytest.UsageError(f"--seeds is two numbers, such as {USUAL}, not {text!r}")
    seeds = range(int(first), int(stop))
    if not seeds:
        raise pytest.UsageError(f"--seeds {text} holds no seed: the second number is the first one that is left out")
    return [seeds[at : at + _BLOCK] for at in range(0, len(seeds), _BLOCK)]
