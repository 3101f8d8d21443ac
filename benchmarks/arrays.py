"""Icechunk repositories on local files against icechunk itself: commits, reads, history and collection."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.measure import Program, compare, run

_OURS = """
from lake_core.icechunk import (
    Repository, RepositoryConfig, VirtualChunkSpec, VirtualChunkContainer, local_filesystem_store
)
def create(folder):
    config = RepositoryConfig(inline_chunk_threshold_bytes=0)
    config.set_virtual_chunk_container(VirtualChunkContainer("file:///nowhere/", local_filesystem_store("/nowhere/")))
    return Repository.create(folder, config=config, spec_version={version})
def reopen(folder):
    return Repository.open(folder)
"""
_THEIRS = """
import icechunk, warnings
from icechunk import VirtualChunkSpec
icechunk.set_logs_filter("error")
def create(folder):
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 0
    nowhere = icechunk.local_filesystem_store("/nowhere/")
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer("file:///nowhere/", nowhere))
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(folder), config=config)
    repository.save_config()
    return repository
def reopen(folder):
    return icechunk.Repository.open(icechunk.local_filesystem_storage(folder))
"""
_COMMON = """
import numpy as np, os, shutil, tempfile, time, zarr
from datetime import datetime, timedelta, timezone
folder = tempfile.mkdtemp(dir={folder!r})
import atexit
atexit.register(shutil.rmtree, folder, True)

def virtual_array(repository, count, name="a"):
    session = repository.writable_session("main")
    zarr.create_array(session.store, name=name, shape=(count,), chunks=(1,), dtype="i4", compressors=None, filters=None)
    session.commit("create " + name)

def references(start, end):
    return [
        VirtualChunkSpec([number], "file:///nowhere/%d" % (number // 1000), number % 1000 * 4, 4)
        for number in range(start, end)
    ]
"""

_COMMIT_REFERENCES = """
session = repository.writable_session("main")
session.store.set_virtual_refs("a", specs, validate_containers=False)
session.commit("references")
result = {count}
"""

_COLUMNS = """
locations = ["file:///nowhere/%d" % (number // 1000) for number in range({count})]
offsets, lengths = (np.arange({count}, dtype="u8") % 1000) * 4, np.full({count}, 4, "u8")
"""
_COMMIT_COLUMNS = """
session = repository.writable_session("main")
session.store.set_virtual_refs_arr("a", ({count},), locations, offsets, lengths, validate_containers=False)
session.commit("references")
result = {count}
"""

_APPENDED = """
shutil.rmtree(folder)
shutil.copytree({source!r}, folder)
repository = reopen(folder)
more = references({count}, {count} + 100)
"""
_APPEND = """
session = repository.writable_session("main")
zarr.open_array(session.store, path="n").resize(({count} + 100,))
session.store.set_virtual_refs("n", more, validate_containers=False)
session.commit("append")
result = 100
"""

_COLD_SETUP = """
source = {source!r}
"""
_COLD = """
session = reopen(source).readonly_session("main")
async def one():
    from zarr.core.buffer import default_buffer_prototype
    return await session.store.get("n/c/500000", default_buffer_prototype())
import asyncio
result = len(asyncio.run(one()).to_bytes())
"""

_SMALL_SETUP = """
repository = create(folder)
session = repository.writable_session("main")
root = zarr.create_group(session.store)
arrays = [
    root.create_array("a%d" % number, shape=(4,), chunks=(2,), dtype="i4", compressors=None) for number in range(1000)
]
for array in arrays:
    array[:] = [1, 2, 3, 4]
"""
_SMALL = """
session.commit("thousand")
result = 1000
"""

_WHOLE_SETUP = """
repository = create(folder)
data = np.random.default_rng(1).integers(0, 2**31, {megabytes} * 2**18, "i4")
session = repository.writable_session("main")
array = zarr.create_array(
    session.store, name="a", shape=data.shape, chunks=({chunk},), dtype="i4", compressors=None, filters=None
)
"""
_WRITE = """
array[:] = data
session.commit("whole")
result = {megabytes}
"""
_READ_SETUP = """
array[:] = data
session.commit("whole")
array = zarr.open_array(reopen(folder).readonly_session("main").store, path="a", mode="r")
"""
_READ = """
read = array[:]
result = int(read[12345])
"""

_HISTORY = """
result = len([info.id for info in reopen(source).ancestry(branch="main")])
"""

_COLLECT_SETUP = """
shutil.rmtree(folder)
shutil.copytree(source, folder)
repository = reopen(folder)
before = datetime.now(timezone.utc) - timedelta(minutes=30)
for path, _, files in os.walk(folder):
    for name in files:
        os.utime(os.path.join(path, name), (time.time() - 7200,) * 2)
first = repository.garbage_collect(before)
assert first.chunks_deleted > 0, first
repository = reopen(folder)
"""
_COLLECT = """
summary = repository.garbage_collect(before)
result = [summary.chunks_deleted, summary.snapshots_deleted]
"""

_MAKE_HISTORY = """
repository = create({path!r})
session = repository.writable_session("main")
array = zarr.create_array(session.store, name="a", shape=(1000,), chunks=(1,), dtype="i4", compressors=None)
session.commit("create")
for number in range(499):
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[number] = number
    session.commit("commit %d" % number)
result = 0
"""
_MAKE_REFERENCES = """
repository = create({path!r})
session = repository.writable_session("main")
array = zarr.create_array(
    session.store, name="n", shape=({count},), chunks=(1,), dtype="i4", compressors=None, filters=None
)
session.store.set_virtual_refs("n", references(0, {count}), validate_containers=False)
array[{count} // 2] = 7
session.commit("many")
result = 0
"""
_MAKE_GARBAGE = """
repository = create({path!r})
session = repository.writable_session("main")
array = zarr.create_array(
    session.store, name="a", shape=(200_000,), chunks=(1,), dtype="i4", compressors=None, filters=None
)
session.store.set_virtual_refs("a", references(0, 200_000), validate_containers=False)
session.commit("virtual")
for number in range(20):
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[number * 100:number * 100 + 100] = number + 1
    session.commit("commit %d" % number)
tip = repository.lookup_branch("main")
for number in range(10):
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[number * 100:number * 100 + 100] = number + 2
    session.commit("garbage %d" % number)
repository.reset_branch("main", tip)
result = 0
"""


def measure(folder: str, rounds: int, version: int = 1) -> None:
    """Print all figures, medians of `rounds` runs in turn, each in a process of its own.

    Args:
        folder: An empty folder.
        rounds: The number of runs of each program.
        version: The version of the specification. For 2, icechunk 2 runs in the environment that `make interop` makes.
    """
    common = _COMMON.format(folder=folder)
    ours = _OURS.replace("{version}", str(version))
    python = sys.executable if version == 1 else str(Path(".venv-icechunk2/bin/python").absolute())

    def versus(name: str, setup: str, body: str) -> None:
        programs = Program(ours + common + setup, body), Program(_THEIRS + common + setup, body, python)
        compare(name, *programs, rounds=rounds, peer="icechunk" if version == 1 else "icechunk 2")

    small, large, history, garbage = (str(Path(folder) / name) for name in ("small", "large", "history", "garbage"))
    # What is only read, and what commits append to, is written by icechunk, once.
    for path, text in (
        (small, _MAKE_REFERENCES.format(path=small, count=10_000)),
        (large, _MAKE_REFERENCES.format(path=large, count=1_000_000)),
        (history, _MAKE_HISTORY.format(path=history)),
        (garbage, _MAKE_GARBAGE.format(path=garbage)),
    ):
        Path(path).mkdir()
        run(Program(_THEIRS + common, text, python))
    for source, count in ((small, 10_000), (large, 1_000_000)):
        append = _APPEND.format(count=count)
        versus(f"append commit of 100 references to {count}", _APPENDED.format(source=source, count=count), append)
    versus("open + one cold chunk of 1000000 references", _COLD_SETUP.format(source=large), _COLD)
    versus("history of 501 snapshots", _COLD_SETUP.format(source=history), _HISTORY)
    if version == 1:  # version 2 records when snapshots were made, so files with an earlier time are no garbage
        versus("collection with nothing to do", _COLD_SETUP.format(source=garbage) + _COLLECT_SETUP, _COLLECT)
    versus("commit of 1000 small arrays", _SMALL_SETUP, _SMALL)
    for megabytes, chunk, size in ((256, 2**18, "1 MB"), (256, 2**14, "64 kB")):
        setup = _WHOLE_SETUP.format(megabytes=megabytes, chunk=chunk)
        versus(f"write of {megabytes} MB in chunks of {size}", setup, _WRITE.format(megabytes=megabytes))
        versus(f"read of {megabytes} MB in chunks of {size}", setup + _READ_SETUP, _READ)
    count = 1_000_000
    setup = f"repository = create(folder)\nvirtual_array(repository, {count})\n"
    specs = f"specs = references(0, {count})\n"
    versus(f"commit of {count} new references", setup + specs, _COMMIT_REFERENCES.format(count=count))
    if version == 2:
        columns = _COLUMNS.format(count=count)
        versus(f"commit of {count} new references, as columns", setup + columns, _COMMIT_COLUMNS.format(count=count))
