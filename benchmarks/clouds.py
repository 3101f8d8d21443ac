"""Small objects in S3 against s3fs: seconds of the processor for each thousand requests to a server on this machine."""

from __future__ import annotations

import statistics

from benchmarks.measure import Program, run
from tests.store.s3_server import S3Server

_DATA = "data = b'x' * 1000"

_OURS = """
from lake_core.store import open_store
store = open_store("s3://lake/ours", storage_options={options!r})
{data}
store.put("warm", data)
store.get("warm")
"""

_THEIRS = """
import s3fs
store = s3fs.S3FileSystem(**{options!r}, use_listings_cache=False)
{data}
store.pipe_file("lake/theirs/warm", data)
store.cat_file("lake/theirs/warm")
"""

_REQUESTS = (
    ("get", "store.get('warm')", "store.cat_file('lake/theirs/warm')"),
    ("put", "store.put('warm', data)", "store.pipe_file('lake/theirs/warm', data)"),
    ("head", "store.head('warm')", "store.info('lake/theirs/warm', refresh=True)"),
)


def measure(rounds: int, count: int = 1000) -> None:
    """Print medians of `rounds` runs in turn, each in a process of its own."""
    with S3Server() as server:
        server.create_bucket("lake")
        options = server.storage_options()
        for name, ours, theirs in _REQUESTS:
            loop = f"for _ in range({count}): {{}}\nresult = None"
            pairs = [
                (
                    run(Program(_OURS.format(options=options, data=_DATA), loop.format(ours))),
                    run(Program(_THEIRS.format(options=options, data=_DATA), loop.format(theirs))),
                )
                for _ in range(rounds)
            ]
            mine, other = (statistics.median(pair[side].cpu for pair in pairs) for side in (0, 1))
            print(
                f"{count} {name}s of 1 kB  processor {mine:6.3f} s  s3fs {other:6.3f} s  {other / mine:5.1f}x",
                flush=True,
            )
