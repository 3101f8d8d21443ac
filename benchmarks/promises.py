"""What writers promise when a write is repeated or out of date: the rows in the table afterwards, or the refusal."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

from lake_core.delta import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Callable


def _rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def _twice_ours(url: str) -> None:
    table = DeltaTable.create(url, _rows().schema)
    for _ in range(2):
        table.append(_rows(1), txn=("app", 1))


def _twice_theirs(url: str) -> None:
    marker = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("app", 1)])
    for _ in range(2):
        deltalake.write_deltalake(url, _rows(1), mode="append", commit_properties=marker)


def _stale_ours(url: str) -> None:
    DeltaTable.create(url, _rows().schema).append(_rows(1))
    stale = DeltaTable.open(url)
    DeltaTable.open(url).append(_rows(2))
    stale.overwrite(_rows(9))


def _stale_theirs(url: str) -> None:
    deltalake.write_deltalake(url, _rows(1))
    stale = deltalake.DeltaTable(url)
    deltalake.write_deltalake(url, _rows(2), mode="append")
    deltalake.write_deltalake(stale, _rows(9), mode="overwrite")


PROMISES: dict[str, dict[str, Callable[[str], None]]] = {
    "one marker written twice": {"lake-orch": _twice_ours, "deltalake": _twice_theirs},
    "overwrite with 9, of 1, after an append of 2": {"lake-orch": _stale_ours, "deltalake": _stale_theirs},
}


def tell() -> None:
    """Print what each writer leaves behind."""
    for promise, writers in PROMISES.items():
        for writer, write in writers.items():
            with tempfile.TemporaryDirectory() as folder:
                url = str(Path(folder) / "table")
                try:
                    write(url)
                    outcome = "committed"
                except Exception as error:  # whatever a peer raises
                    outcome = f"refused ({type(error).__name__})"
                left = sorted(DeltaTable.open(url).to_arrow()["x"].to_pylist())
                print(f"{promise:<48} {writer:<10} {outcome}, rows {left}", flush=True)
