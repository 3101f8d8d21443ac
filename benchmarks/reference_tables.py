"""How many of the reference tables each reader reads right: the latest version, by the collection's hash of rows."""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa

from lake_core.delta import DeltaTable

CASES = Path(__file__).parents[2] / "shared" / "cases" / "delta"

Reader = Callable[[str], pa.Table]


def _ours(url: str) -> pa.Table:
    return DeltaTable.open(url).to_arrow()


def _deltalake_arrow(url: str) -> pa.Table:
    return deltalake.DeltaTable(url).to_pyarrow_table()


def _deltalake_query(url: str) -> pa.Table:
    return pa.table(
        deltalake.QueryBuilder().register("t", deltalake.DeltaTable(url)).execute("select * from t").read_all()
    )


READERS: dict[str, Reader] = {
    "lake-orch DeltaTable.to_arrow": _ours,
    "deltalake to_pyarrow_table": _deltalake_arrow,
    "deltalake QueryBuilder": _deltalake_query,
}


def count() -> None:
    """Print for each reader how many tables it reads right, refuses although they are readable, and reads wrong."""
    sys.path.insert(0, str(CASES))
    import rowhash

    warnings.simplefilter("ignore")
    readable = {}
    for path in sorted(CASES.glob("*.expected.json")):
        expected = json.loads(path.read_text())
        if "sha256_sorted_rows" in expected:
            readable[path.name.removesuffix(".expected.json")] = expected["sha256_sorted_rows"]
    for name, read in READERS.items():
        tally: Counter[str] = Counter()
        for table, hash_of_rows in readable.items():
            try:
                tally["right" if rowhash.row_hash(read(str(CASES / table))) == hash_of_rows else "wrong"] += 1
            except Exception:  # whatever a peer raises
                tally["refused"] += 1
        counts = "  ".join(f"{kind} {tally[kind]:>3}" for kind in ("right", "refused", "wrong"))
        print(f"{name:<32} {counts}  of {len(readable)}", flush=True)
