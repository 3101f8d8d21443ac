"""The repositories that icechunk itself wrote, and what a reader must find in them."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from lake_core.icechunk import Repository, RepositoryConfig, VirtualChunkContainer, local_filesystem_store
from lake_core.store import LocalStore

CASES = Path(__file__).parents[3] / "shared" / "cases" / "icechunk"
PLACEHOLDER = "file:///ICECHUNK_CASE" + "_" * 180 + "/"


def names(*, damaged: bool) -> list[str]:
    """Return the names of the cases: those that are sound, or those in which something is broken."""
    every = sorted(path.name.removesuffix(".expected.json") for path in CASES.glob("*.expected.json"))
    return [name for name in every if name.startswith("bad-") == damaged]


def expected(name: str) -> dict[str, Any]:
    return dict(json.loads((CASES / f"{name}.expected.json").read_text("utf-8")))


def open_case(name: str, folder: Path | None = None) -> Repository:
    folder = folder or CASES / name
    config = RepositoryConfig()
    config.set_virtual_chunk_container(VirtualChunkContainer(PLACEHOLDER, local_filesystem_store("/")))
    return Repository.open(folder, config=config, authorize_virtual_chunk_access={PLACEHOLDER: LocalStore(folder)})


def digest(array: Any) -> str:
    """Hash the values of an array as the cases do."""
    values = array[...]
    values = np.asarray(values, dtype=getattr(values, "dtype", None))
    if values.dtype.kind in "OT":
        plain = [
            base64.b64encode(value).decode() if isinstance(value, bytes) else value for value in values.ravel().tolist()
        ]
        return hashlib.sha256(json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))).tobytes()).hexdigest()
