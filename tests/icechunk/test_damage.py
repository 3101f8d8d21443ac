"""Damaged repositories: what was written is read, or an error says what is damaged. It is never taken for missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from lake_core.icechunk import Repository
from lake_core.icechunk.errors import DamagedObject

VERSIONS = pytest.mark.parametrize("version", [1, 2])
VALUES = np.arange(8_000, dtype="i4")


def read(folder: Path, name: str) -> Any:
    return zarr.open_array(Repository.open(folder).readonly_session("main").store, path=name, mode="r")[:]


@pytest.fixture
def folder(tmp_path: Path, version: int) -> Path:
    """A repository of two arrays, each with a manifest and a transaction log of its own."""
    repository = Repository.create(tmp_path, spec_version=version)
    for name in "ab":
        session = repository.writable_session("main")
        zarr.create_array(session.store, name=name, data=VALUES, chunks=(200,), compressors=None)
        session.commit(name)
    return tmp_path


@VERSIONS
def test_a_manifest_in_the_place_of_another_is_told(folder: Path) -> None:
    first, second = sorted((folder / "manifests").iterdir())
    first.write_bytes(second.read_bytes())
    with pytest.raises(DamagedObject, match="another id"):
        for name in "ab":
            read(folder, name)


@VERSIONS
def test_a_transaction_log_in_the_place_of_another_is_told(folder: Path) -> None:
    repository = Repository.open(folder)
    newest, older = (snapshot.id for snapshot in list(repository.ancestry(branch="main"))[:2])
    logs = folder / "transactions"
    (logs / newest).write_bytes((logs / older).read_bytes())
    with pytest.raises(DamagedObject, match="another snapshot"):
        Repository.open(folder).diff(from_snapshot_id=older, to_snapshot_id=newest)


@VERSIONS
def test_flipped_bits_of_a_manifest_are_told(folder: Path) -> None:
    manifest = min((folder / "manifests").iterdir())
    data = manifest.read_bytes()
    for position in range(39, len(data), 4):
        manifest.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
        try:
            values = [read(folder, name) for name in "ab"]
        except DamagedObject:
            continue
        assert all(np.array_equal(each, VALUES) for each in values), position
