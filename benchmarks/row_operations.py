"""Appending, merging and deleting rows, and planning the maintenance of a large table, against deltalake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.measure import Program, compare

if TYPE_CHECKING:
    from pathlib import Path

_ROWS = """
import numpy as np, pyarrow as pa, tempfile
folder = tempfile.mkdtemp(dir={folder!r})
def rows(start, stop, step=1):
    n = np.arange(start, stop, step)
    names = pa.array(np.char.mod("name-%d", n % 1000))
    return pa.table({{"id": n, "part": (n // 2_500_000).astype("int32"), "x": n * 0.5, "s": names}})
count = {count}
"""
_OURS = "from lake_core.delta import DeltaTable\n" + _ROWS
_THEIRS = "import deltalake\n" + _ROWS
_FILLED = "for start in range(0, count, 1_000_000): {append}\n"
_OURS_FILLED = (
    _OURS
    + "t = DeltaTable.create(folder, rows(0, 1).schema)\n"
    + _FILLED.format(append="t.append(rows(start, start + 1_000_000))")
)
_THEIRS_FILLED = (
    _THEIRS
    + _FILLED.format(append="deltalake.write_deltalake(folder, rows(start, start + 1_000_000), mode='append')")
    + "t = deltalake.DeltaTable(folder)\n"
)
_WRITER = """
import sys
sys.path.insert(0, ".")
import pyarrow as pa
{module}
data = pa.table({{"id": pa.array([1, 2, 3], pa.int64())}})
done = 0
for _ in range({count}):
    try:
        {append}
        done += 1
    except Exception as error:
        print(type(error).__name__, file=sys.stderr)
print(done)
"""
_RACE = """
import subprocess, sys, tempfile
import pyarrow as pa
{module}
folder = tempfile.mkdtemp(dir={folder!r})
{create}
program = {program!r}.replace("FOLDER", repr(folder))
"""
_RACE_BODY = """
start = lambda: subprocess.Popen(
    [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
)
running = [start() for _ in range({writers})]
done = sum(int(process.communicate()[0]) for process in running)
print("acknowledged", done, "of", {writers} * {count}, file=sys.stderr)
result = {left}
"""


def append(folder: str, rounds: int, count: int) -> None:
    """One append of all rows to a table in four partitions."""
    setup = "data = rows(0, count)\n"
    ours = Program(
        _OURS.format(folder=folder, count=count)
        + setup
        + "t = DeltaTable.create(folder, data.schema, partition_by=['part'])",
        "t.append(data); result = t.version",
    )
    theirs = Program(
        _THEIRS.format(folder=folder, count=count)
        + setup
        + "t = deltalake.DeltaTable.create(folder, data.schema, partition_by=['part'])",
        "deltalake.write_deltalake(t, data, mode='append'); result = deltalake.DeltaTable(folder).version()",
    )
    compare(f"append of {count} rows, 4 partitions", ours, theirs, rounds=rounds)


def merge(folder: str, rounds: int, count: int) -> None:
    """Merge a tenth as many source rows, every eleventh id: most update, the last ones insert."""
    source = "source = rows(0, count // 10 * 11, 11)\n"
    ours = Program(
        _OURS_FILLED.format(folder=folder, count=count) + source,
        "m = t.merge(source, 't.id = s.id').when_matched_update('*').when_not_matched_insert('*').execute().metrics\n"
        "result = [m['numTargetRowsUpdated'], m['numTargetRowsInserted']]",
    )
    theirs = Program(
        _THEIRS_FILLED.format(folder=folder, count=count) + source,
        "m = t.merge(source, 't.id = s.id', source_alias='s', target_alias='t').when_matched_update_all()"
        ".when_not_matched_insert_all().execute()\n"
        "result = [m['num_target_rows_updated'], m['num_target_rows_inserted']]",
    )
    compare(f"merge of {count // 10} rows into {count}", ours, theirs, rounds=rounds)


_KEYS = {
    "t.k = s.k": ("text(n)", "text(n)"),
    "t.k = s.k AND t.p = s.p": ("text(n)", "text(n)"),
    "t.k IS NOT DISTINCT FROM s.k": ("text(n)", "text(n)"),
    "coalesce(t.k, '') = coalesce(s.k, '')": ("text(n)", "text(n)"),
    "lower(t.k) = lower(s.k)": ("text(n)", "text(n)"),
    "t.k = s.k + 1": ("n", "n - 1"),
    "CAST(t.k AS BIGINT) = s.k": ("text(n, '')", "n"),
    "t.k = s.k  -- bigint, decimal": ("n", "decimals(n, 20)"),
    "t.k = s.k  -- bigint, double": ("n", "n * 1.0"),
    "t.k = s.k  -- decimal, decimal": ("decimals(n, 18)", "decimals(n, 38)"),
}
"""Conditions, and the keys of the table and of the source for the numbers n."""
_KEYED = """
n = np.arange({count})
def text(numbers, prefix="k"): return pa.array(np.char.mod(prefix + "%d", numbers))
def decimals(numbers, digits): return pa.array(numbers).cast(pa.decimal128(20, 0)).cast(pa.decimal128(digits, 0))
def rows(keys, value): return pa.table({{"k": keys, "p": n % 7, "v": [value] * {count}}})
table, source = rows({keys[0]}, "old"), rows({keys[1]}, "new")
on = {on!r}
"""


def keys(folder: str, rounds: int, count: int) -> None:
    """Merge as many rows as the table has, by conditions of many forms. Each row matches one row.

    The process has merged a row before: its first merge imports the parser and what joins.
    """
    for text, sides in _KEYS.items():
        on = text.partition("  --")[0]
        form = _KEYED.format(count=count, keys=sides, on=on)
        ours = Program(
            _OURS.format(folder=folder, count=count)
            + form
            + "t = DeltaTable.create(folder, table.schema)\nt.append(table)\n"
            "t.merge(source.slice(0, 1), on).when_matched_update({'v': 's.v'}).execute()",
            "m = t.merge(source, on).when_matched_update({'v': 's.v'}).execute().metrics\n"
            "result = m['numTargetRowsUpdated']",
        )
        theirs = Program(
            _THEIRS.format(folder=folder, count=count)
            + form
            + "deltalake.write_deltalake(folder, table)\nt = deltalake.DeltaTable(folder)\n"
            "one = t.merge(source.slice(0, 1), on, source_alias='s', target_alias='t')\n"
            "one.when_matched_update({'v': 's.v'}).execute()",
            "m = t.merge(source, on, source_alias='s', target_alias='t').when_matched_update({'v': 's.v'}).execute()\n"
            "result = m['num_target_rows_updated']",
        )
        compare(f"merge {count}, {text}", ours, theirs, rounds=rounds, memory=False)


def delete(folder: str, rounds: int, count: int) -> None:
    """Every hundredth row, by a condition that no statistics help with."""
    ours = Program(
        _OURS_FILLED.format(folder=folder, count=count), "result = t.delete('id % 100 = 7').metrics['numDeletedRows']"
    )
    theirs = Program(
        _THEIRS_FILLED.format(folder=folder, count=count), "result = t.delete('id % 100 = 7')['num_deleted_rows']"
    )
    compare(f"delete of 1 % of {count} rows", ours, theirs, rounds=rounds)


_VECTORS_FILLED = _OURS_FILLED.replace(
    "rows(0, 1).schema)", "rows(0, 1).schema, properties={{'delta.enableDeletionVectors': 'true'}})"
)
_MARKED: dict[str, tuple[str, str, str]] = {
    "delete of 1 %": (
        "",
        "t.delete('id % 100 = 7').metrics['numDeletedRows']",
        "t.delete('id % 100 = 7')['num_deleted_rows']",
    ),
    "update of 1 %": (
        "",
        "t.update({'x': 'x + 1'}, 'id % 100 = 7').metrics['numUpdatedRows']",
        "t.update(updates={'x': 'x + 1'}, predicate='id % 100 = 7')['num_updated_rows']",
    ),
    "merge of a tenth": ("source = rows(0, count // 10 * 11, 11)\n", "", ""),
    "merge of 10,000 scattered rows": ("source = rows(0, count, count // 10_000)\n", "", ""),
    "merge of one row": ("source = rows(count // 2, count // 2 + 1)\n", "", ""),
}
"""What is measured: how the source is made, and our and their operation. A merge updates, and inserts the others."""
_OUR_MERGE = (
    "t.merge(source, 't.id = s.id').when_matched_update('*').when_not_matched_insert('*').execute()"
    ".metrics['numTargetRowsUpdated']"
)
_THEIR_MERGE = (
    "t.merge(source, 't.id = s.id', source_alias='s', target_alias='t').when_matched_update_all()"
    ".when_not_matched_insert_all().execute()['num_target_rows_updated']"
)


def vectors(folder: str, rounds: int, count: int) -> None:
    """Change rows of a table with deletion vectors. deltalake rewrites the files of the same rows."""
    for name, (source, ours, theirs) in _MARKED.items():
        compare(
            f"{name} of {count} rows with vectors",
            Program(
                _VECTORS_FILLED.format(folder=folder, count=count) + source,
                f"result = {ours or _OUR_MERGE}",
            ),
            Program(
                _THEIRS_FILLED.format(folder=folder, count=count) + source,
                f"result = {theirs or _THEIR_MERGE}",
            ),
            rounds=rounds,
        )
    marked = "t.delete('id % 100 = 7')\n"
    compare(
        f"read of {count} rows, with vectors and without",
        Program(_VECTORS_FILLED.format(folder=folder, count=count) + marked, "result = len(t.to_arrow())"),
        Program(_OURS_FILLED.format(folder=folder, count=count) + marked, "result = len(t.to_arrow())"),
        rounds=rounds,
    )


def race(folder: str, rounds: int, writers: int = 8, count: int = 25) -> None:
    """Append three rows by several processes at once. The rows in the table must be those that were acknowledged."""
    ours_writer = _WRITER.format(
        module="from lake_core.delta import DeltaTable\nt = DeltaTable.open(FOLDER)",
        count=count,
        append="t.append(data)",
    )
    theirs_writer = _WRITER.format(
        module="import deltalake", count=count, append="deltalake.write_deltalake(FOLDER, data, mode='append')"
    )
    create = "DeltaTable.create(folder, pa.schema([('id', pa.int64())]))"
    ours = Program(
        _RACE.format(
            folder=folder, module="from lake_core.delta import DeltaTable", create=create, program=ours_writer
        ),
        _RACE_BODY.format(writers=writers, count=count, left="DeltaTable.open(folder).to_arrow().num_rows == 3 * done"),
    )
    theirs = Program(
        _RACE.format(
            folder=folder,
            module="import deltalake",
            create=f"deltalake.DeltaTable.{create[len('DeltaTable.') :]}",
            program=theirs_writer,
        ),
        _RACE_BODY.format(writers=writers, count=count, left="len(deltalake.DeltaTable(folder).file_uris()) == done"),
    )
    compare(f"{writers} writers, {count} commits each", ours, theirs, rounds=rounds)


def vacuum(url: str, rounds: int) -> None:
    """Find what a full vacuum would delete, in a folder that holds the table's files and one orphan a partition."""
    ours = Program(
        "from lake_core.delta import DeltaTable\nimport datetime as dt",
        f"r = DeltaTable.open({url!r}).vacuum(dt.timedelta(0), dry_run=True, allow_unsafe=True); "
        "result = len(r.files) + len(r.unknown)",
    )
    theirs = Program(
        "import deltalake",
        f"r = deltalake.DeltaTable({url!r}).vacuum(0, dry_run=True, enforce_retention_duration=False, full=True); "
        "result = len(r)",
    )
    compare("dry run of a full vacuum", ours, theirs, rounds=rounds)


def optimize(url: str, rounds: int) -> None:
    """Find out that no file is too small."""
    ours = Program(
        "from lake_core.delta import DeltaTable",
        f"t = DeltaTable.open({url!r}); v = t.version; result = t.optimize(target_size=1 << 20).version - v",
    )
    theirs = Program(
        "import deltalake",
        f"t = deltalake.DeltaTable({url!r}); v = t.version(); "
        "t.optimize.compact(target_size=1 << 20); result = t.version() - v",
    )
    compare("optimize that finds nothing to do", ours, theirs, rounds=rounds)


def make_files(folder: Path) -> None:
    """Empty files where a table's log names data files, removed ones too, and one orphan in each of its partitions."""
    from lake_core.delta import DeltaTable

    table = DeltaTable.open(folder)
    for path in [*table.files(["path"])["path"].to_pylist(), *table.snapshot.tombstones()["path"].to_pylist()]:
        file = folder / path
        if not file.parent.exists():
            file.parent.mkdir(parents=True)
            (file.parent / "orphan.parquet").touch()
        file.touch()
