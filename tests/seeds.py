"""The seeds of random histories.

`make histories ARGS="--seeds 6000:7000"` runs other long ones than the usual. A few histories are new in each run:
their tests are named after the first seed, and `--new-seeds-from` runs the same ones again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

USUAL = "1000:6000"
_BLOCK = 500
"""How many seeds one test runs."""
_FIRST_NEW = "new_seeds_from"
"""Where the process that collects the tests finds the first new seed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--seeds` and `--new-seeds-from`."""
    parser.addoption("--seeds", default=USUAL, metavar="FIRST:STOP", help=f"long random histories ({USUAL})")
    parser.addoption(
        "--new-seeds-from", type=int, default=int(time.time()), metavar="FIRST", help="histories that were new in a run"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a process that runs tests the first new seed: by its own clock it could be a second later."""
    node.workerinput[_FIRST_NEW] = node.config.getoption("--new-seeds-from")


def pytest_configure(config: pytest.Config) -> None:
    """Take the first new seed from the process that started this one, if one did."""
    from_starter: dict[str, int] = getattr(config, "workerinput", {})
    if _FIRST_NEW in from_starter:
        config.option.new_seeds_from = from_starter[_FIRST_NEW]


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
