"""The seeds of long random histories: `make histories ARGS="--seeds 6000:7000"` runs others than the usual ones."""

from __future__ import annotations

import pytest

USUAL = "1000:6000"
_BLOCK = 500
"""How many seeds one test runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--seeds`."""
    parser.addoption("--seeds", default=USUAL, metavar="FIRST:STOP", help=f"long random histories ({USUAL})")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test with an argument `chosen_seeds` the chosen seeds, in blocks."""
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
