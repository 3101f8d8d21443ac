"""Run the benchmarks: `python -m benchmarks [--files 1000000] [--rounds 5] [NAME …]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import (
    arrays,
    clouds,
    collection,
    graveler,
    lake,
    overhead,
    pages,
    pools,
    row_operations,
    shared_spark,
    size,
    spark_operations,
    waiting,
)
from benchmarks.large_table import make_table, unpack
from benchmarks.measure import Program, compare, print_ratios
from benchmarks.promises import tell
from benchmarks.reference_tables import CASES, count

NAMES = (
    "cases",
    "promises",
    "open",
    "plan",
    "optimize",
    "vacuum",
    "large",
    "commits",
    "race",
    "append",
    "merge",
    "keys",
    "delete",
    "vectors",
    "graveler",
    "lake",
    "spark",
    "steps",
    "overhead",
    "waiting",
    "arrays",
    "arrays-2",
    "pools",
    "clouds",
    "size",
    "collection",
    "pages",
)
LARGE = Path(__file__).parents[2] / "shared" / "cases" / "delta-large" / "300k-add-files-100-col-partitioned.tar.zst"

OURS = "from lake_core.delta import DeltaTable"
THEIRS = "import deltalake"

COMMIT_SETUP = """
import pyarrow as pa, tempfile
folder = tempfile.mkdtemp(dir={folder!r})
data = pa.table({{"id": pa.array([1, 2, 3], pa.int64())}})
"""


def open_and_list(name: str, url: str, rounds: int) -> None:
    """Open the latest version and list the path of every file."""
    ours = Program(
        OURS, f"t = DeltaTable.open({url!r}); result = [t.version, len(t.files(['path'])['path'].to_pylist())]"
    )
    theirs = Program(THEIRS, f"t = deltalake.DeltaTable({url!r}); result = [t.version(), len(t.file_uris())]")
    compare(name, ours, theirs, rounds=rounds)


def plan_partition(url: str, rounds: int, files: int) -> None:
    """Open the latest version and list the files of one partition."""
    ours = Program(
        f"{OURS}\nfrom lake_core.delta.scan import plan_scan",
        f"t = DeltaTable.open({url!r}); result = len(plan_scan(t.snapshot, ['id'], \"day = '2020-0500'\").files)",
    )
    theirs = Program(
        THEIRS, f"t = deltalake.DeltaTable({url!r}); result = len(t.file_uris([('day', '=', '2020-0500')]))"
    )
    compare(f"open + files of one partition, {files} files", ours, theirs, rounds=rounds)


def commits(folder: str, rounds: int, count: int = 200) -> None:
    """Append three rows to a new table, again and again, by a single writer with default settings."""
    setup = COMMIT_SETUP.format(folder=folder)
    ours = Program(
        f"{OURS}\n{setup}\nt = DeltaTable.create(folder, data.schema)",
        f"for _ in range({count}): t.append(data)\nresult = t.version",
    )
    theirs = Program(
        f"{THEIRS}\n{setup}\nt = deltalake.DeltaTable.create(folder, data.schema)",
        f"for _ in range({count}): deltalake.write_deltalake(t, data, mode='append')\n"
        "result = deltalake.DeltaTable(folder).version()",
    )
    compare(f"{count} commits, one writer", ours, theirs, rounds=rounds)


def _measure_large_tables(chosen: set[str], folder: str, files: int, rounds: int) -> None:
    if chosen & {"open", "plan", "vacuum", "optimize"}:
        table = Path(folder) / "table"
        make_table(table, files, commits=100)
        if "open" in chosen:
            open_and_list(f"open + list paths, {files} files, 100 commits", str(table), rounds)
            behind = Path(folder) / "behind"
            make_table(behind, 100_000, commits=20_000)
            open_and_list("open + list paths, 20,000 commits after the checkpoint", str(behind), rounds)
        if "plan" in chosen:
            plan_partition(str(table), rounds, files)
        if "optimize" in chosen:
            row_operations.optimize(str(table), rounds)
        if "vacuum" in chosen:
            row_operations.make_files(table)
            row_operations.vacuum(str(table), rounds)
    if "large" in chosen:
        if LARGE.exists():
            open_and_list(
                "open + list paths, 300k files of 100 columns",
                str(unpack(LARGE, Path(folder) / "large")),
                rounds,
            )
        else:
            print(f"not measured: {LARGE} is absent")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000, help="files in the large table's checkpoint")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows that are appended, merged into, deleted from"
    )
    parser.add_argument(
        "--keys", type=int, default=1_000_000, help="keys of a tree; some figures are taken of ten times as many, too"
    )
    parser.add_argument("--commits", type=int, default=1000, help="commits of the lake whose growth is measured")
    parser.add_argument("--records", type=int, default=1_000_000, help="log records that pools are loaded with")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which (default: all)")
    options = parser.parse_args()
    chosen = set(options.names or NAMES)
    if "cases" in chosen:
        count() if CASES.exists() else print(f"not measured: {CASES} is absent")
    if "promises" in chosen:
        tell()
    with tempfile.TemporaryDirectory() as folder:
        _measure_large_tables(chosen, folder, options.files, options.rounds)
        if "commits" in chosen:
            commits(folder, options.rounds)
        if "race" in chosen:
            row_operations.race(folder, options.rounds)
        for name, measured in (
            ("append", row_operations.append),
            ("merge", row_operations.merge),
            ("keys", lambda folder, rounds, rows: row_operations.keys(folder, rounds, rows // 50)),
            ("delete", row_operations.delete),
            ("vectors", row_operations.vectors),
            ("arrays", lambda folder, rounds, _: arrays.measure(folder, rounds)),
            ("arrays-2", lambda folder, rounds, _: arrays.measure(folder, rounds, version=2)),
        ):
            if name in chosen:
                measured(folder, options.rounds, options.rows)
        if "graveler" in chosen:
            graveler.measure(options.keys, 10 * options.keys)
        if "lake" in chosen:
            lake.measure(options.commits, options.keys)
        if "pools" in chosen:
            pools.measure(folder, options.rounds, options.records)
        if "clouds" in chosen:
            clouds.measure(options.rounds)
        if "size" in chosen:
            size.measure(options.rounds)
        if "collection" in chosen:
            collection.measure(folder, min(options.rounds, 3))
        if "pages" in chosen:
            pages.measure(folder, options.rounds)
        if "overhead" in chosen:
            overhead.measure(options.rounds)
        if "waiting" in chosen:
            waiting.measure(folder, options.rounds, options.rows)
        if "steps" in chosen:
            shared_spark.measure(options.rounds)
        if "spark" in chosen:
            if spark_operations.PYTHON.exists():
                spark_operations.measure(folder, options.rounds, options.rows)
            else:
                print(f"not measured: {spark_operations.PYTHON} is absent; `make interop` makes it")
    print_ratios()


if __name__ == "__main__":
    main()
