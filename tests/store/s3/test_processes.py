"""Forked processes, threads and pickled stores."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from lake_core.errors import LakeError
from lake_core.store.cloud.s3 import S3Store
from tests.store.s3_server import SECRET, S3Server


def _in_a_forked_child(use: Callable[[], object]) -> str:
    """Return the message of the error that `use` raises in a child, or the text that it returns."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(use())
        except LakeError as error:
            text = str(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + 30
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.02)
    with os.fdopen(reader) as output:
        return output.read()


def test_forked_child_is_told_how_to_start_processes(store: S3Store) -> None:
    message = _in_a_forked_child(lambda: store.get("a"))
    assert "start processes with the method 'spawn' or 'forkserver'" in message


def test_child_that_was_forked_before_the_first_request_works(s3_url: str, s3_options: dict[str, object]) -> None:
    program = """
import ast, os, sys
from lake_core.store import open_store
child = os.fork()
store = open_store(sys.argv[1], storage_options=ast.literal_eval(sys.argv[2]))
store.put(f"from-{bool(child)}", b"")
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(*(meta.key for meta in store.list()))
"""
    run = subprocess.run(
        [sys.executable, "-c", program, s3_url, repr(s3_options)], capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "from-False from-True\n", run.stderr


def test_get_many_runs_side_by_side_and_leaves_no_threads(store: S3Store, s3_endpoint: S3Server) -> None:
    for i in range(8):
        store.put(f"k/{i}", b"%d" % i)
    s3_endpoint.fault("hang_after", method="GET", seconds=0.3, times=8)
    start = time.monotonic()
    assert store.get_many([f"k/{i}" for i in range(8)]) == [b"%d" % i for i in range(8)]
    assert time.monotonic() - start < 1.5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lake-request")]


def test_pickled_store_carries_no_connection(store: S3Store) -> None:
    pickled = pickle.dumps(store)
    assert len(pickled) < 2000
    assert pickle.loads(pickled).get("a") == b"first"
    assert SECRET not in repr(store)
