"""What a person waits for: first rows, filters, small files, many partitions, publishes, and a run of Dagster."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import Program, compare, compare_commands

_ROWS = """
import numpy as np, pyarrow as pa, shutil, tempfile
from lake_core.delta import DeltaTable
chance = np.random.default_rng(0)
def rows(start, count):
    names = pa.array([f"name {{n}}" for n in range(5000)])
    return pa.table({{
        "id": np.arange(start, start + count), "part": chance.integers(0, 1000, count), "value": chance.random(count),
        "other": chance.integers(0, 1 << 40, count), "name": names.take(pa.array(chance.integers(0, 5000, count))),
    }})
"""


_SYNCED = """
import os, tempfile
folder = tempfile.mkdtemp(dir={folder!r})
def put(name):
    file = os.open(f"{{folder}}/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(file, bytes(1000))
    os.fsync(file)
    os.close(file)
    os.rename(f"{{folder}}/new", f"{{folder}}/{{name}}")
    entries = os.open(folder, os.O_RDONLY)
    os.fsync(entries)
    os.close(entries)
"""


def _synced_files(folder: str, count: int, result: int) -> Program:
    """Return the floor of what is on disk when it returns: files of 1 kB, each synced, and its folder too."""
    return Program(_SYNCED.format(folder=folder), f"for number in range({count}): put(number)\nresult = {result}")


def scans(folder: str, rounds: int, count: int) -> None:
    """Read one large file, and twenty: all rows, a range, one row, and rows that are scattered over all files."""
    one, twenty = f"{folder}/one", f"{folder}/twenty"
    _run(
        f"""
        import pyarrow.parquet as pq, os
        os.mkdir({one!r})
        pq.write_table(rows(0, {count}), {one!r} + "/rows.parquet", row_group_size={count} // 10)
        DeltaTable.convert({one!r})
        table = DeltaTable.create({twenty!r}, rows(0, 1).schema)
        for number in range(20):
            table.append(rows(number * {count} // 20, {count} // 20))
        """
    )
    middle, part = count // 2, count // 50
    reads = {
        "whole": ("", "", "None"),
        "a range of 2 %": (
            f"where=[('id', '>=', {middle}), ('id', '<', {middle + part})]",
            f"filter=(ds.field('id') >= {middle}) & (ds.field('id') < {middle + part})",
            f"(pl.col('id') >= {middle}) & (pl.col('id') < {middle + part})",
        ),
        "one row": (
            f"where=[('id', '=', {middle})]",
            f"filter=ds.field('id') == {middle}",
            f"pl.col('id') == {middle}",
        ),
        "one row, by text": (
            f"where='id = {middle}'",
            f"filter=ds.field('id') == {middle}",
            f"pl.col('id') == {middle}",
        ),
        "0.1 % scattered": ("where=[('part', '=', 7)]", "filter=ds.field('part') == 7", "pl.col('part') == 7"),
    }
    for files, url in (("one file", one), ("20 files", twenty)):
        for name, (where, condition, expression) in reads.items():
            ours = Program(
                "from lake_core.delta import DeltaTable", f"result = DeltaTable({url!r}).to_arrow({where}).num_rows"
            )
            dataset = Program(
                "import deltalake, pyarrow.dataset as ds",
                f"result = deltalake.DeltaTable({url!r}).to_pyarrow_dataset().to_table({condition}).num_rows",
            )
            lazy = f"pl.scan_delta({url!r})" + ("" if name == "whole" else f".filter({expression})")
            compare(f"read {count} rows of {files}: {name}", ours, dataset, rounds=rounds)
            if find_spec("polars"):
                polars = Program("import polars as pl", f"result = {lazy}.collect().height")
                compare(f"read {count} rows of {files}: {name}", ours, polars, rounds=rounds, peer="polars")


def row_changes(folder: str, rounds: int, count: int) -> None:
    """Update and delete one row of twenty files."""
    ours_setup, theirs_setup = _on_copies(folder, f"{folder}/twenty")
    for name, ours_call, theirs_call in (
        ("update", "update({'value': '0.5'}, 'id = 7')", "update(updates={'value': '0.5'}, predicate='id = 7')"),
        ("delete", "delete([('id', '=', 7)])", "delete('id = 7')"),
    ):
        ours = Program(ours_setup, f"result = DeltaTable(folder).{ours_call}.version")
        theirs = Program(theirs_setup, f"t = deltalake.DeltaTable(folder); t.{theirs_call}; result = t.version()")
        compare(f"{name} of one row of {count}", ours, theirs, rounds=rounds)


def small_files(folder: str, rounds: int) -> None:
    """Append to a thousand partitions, and combine two thousand files of one row."""
    data = _ROWS.format() + f"folder = tempfile.mkdtemp(dir={folder!r})\ndata = rows(0, 1_000_000)\n"
    ours = Program(
        f"{data}t = DeltaTable.create(folder, data.schema, partition_by=['part'])",
        "t.append(data); result = t.to_arrow(columns=[]).num_rows",
    )
    theirs = Program(
        f"{data}import deltalake",
        "deltalake.write_deltalake(folder, data, partition_by=['part'])\nresult = deltalake.DeltaTable(folder).count()",
    )
    compare("append of 1M rows into 1,000 partitions", ours, theirs, rounds=rounds)
    floor = _synced_files(folder, 1001, 1_000_000)
    compare("append of 1M rows into 1,000 partitions", ours, floor, rounds=rounds, peer="synced files", memory=False)
    encoder = Program(
        f"{data}import pyarrow.parquet as pq\nparts = [data.slice(start, 1000) for start in range(0, len(data), 1000)]",
        "for part in parts: pq.write_table(part, pa.BufferOutputStream(), compression='zstd')\nresult = len(data)",
    )
    compare("append of 1M rows into 1,000 partitions", ours, encoder, rounds=rounds, peer="PyArrow, encoding alone")
    small = f"{folder}/small"
    _run(
        f"""
        table = DeltaTable.create({small!r}, rows(0, 1).schema)
        for number in range(2000):
            table.append(rows(number, 1))
        """
    )
    ours_setup, theirs_setup = _on_copies(folder, small)
    ours = Program(f"{ours_setup}t = DeltaTable(folder)", "t.optimize(); result = len(t.files(['path']))")
    theirs = Program(
        f"{theirs_setup}t = deltalake.DeltaTable(folder)", "t.optimize.compact(); result = len(t.file_uris())"
    )
    compare("optimize of 2,000 files of one row", ours, theirs, rounds=rounds)


def starts(folder: str, rounds: int) -> None:
    """Whole processes: the first rows of a small table, and commands."""
    lake, plain = f"{folder}/lake", f"{folder}/plain"
    _run(
        f"""
        from lake_core import Lake
        lake = Lake.create({lake!r})
        with lake.session() as session:
            session.create_delta("t", rows(0, 1).schema).append(rows(0, 1000))
        DeltaTable.create({plain!r}, rows(0, 1).schema).append(rows(0, 1000))
        """
    )
    theirs = [sys.executable, "-c", f"import deltalake; deltalake.DeltaTable({plain!r}).to_pyarrow_table()"]
    for name, code in (
        ("table", f"from lake_core.delta import DeltaTable; DeltaTable({plain!r}).to_arrow()"),
        ("table of a lake", f"from lake_core import Lake; Lake.open({lake!r}).delta('t').to_arrow()"),
    ):
        compare_commands(f"a process: first rows of a {name}", [sys.executable, "-c", code], theirs, rounds=rounds)
    command = str(Path(sys.executable).with_name("lake"))
    for words in (["--help"], ["log"], ["ls"], ["branch"], ["status"]):
        chosen = words if words == ["--help"] else ["--lake", lake, *words]
        imported = [sys.executable, "-c", "import pyarrow"]
        compare_commands(
            f"a process: lake {words[0]}", [command, *chosen], imported, rounds=rounds, peer="import pyarrow"
        )


_PUBLISHES = """
import pyarrow as pa, subprocess, sys, tempfile
from lake_core import Lake
from lake_core.delta import DeltaTable
data = pa.table({{"id": pa.array(range(10)), "value": pa.array([1.5] * 10)}})
folder = tempfile.mkdtemp(dir={folder!r})
lake = Lake.create(folder + "/lake")
with lake.session() as session:
    for number in range({tables}):
        session.create_delta(f"t{{number}}", data.schema)
        DeltaTable.create(f"{{folder}}/plain/t{{number}}", data.schema)
"""
_WRITER = """
import sys
import pyarrow as pa
data = pa.table({"id": pa.array(range(10)), "value": pa.array([1.5] * 10)})
kind, folder, number, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
if kind == "lake":
    from lake_core import Lake
    lake = Lake.open(folder + "/lake")
    lake.delta("t" + number)
else:
    import deltalake
print("ready", flush=True)
sys.stdin.readline()
for _ in range(count):
    if kind == "lake":
        with lake.session() as session:
            session.delta("t" + number).append(data)
    else:
        deltalake.write_deltalake(f"{folder}/plain/t{number}", data, mode="append")
"""
_WRITERS = """
writers = [
    subprocess.Popen(
        [sys.executable, "-c", {writer!r}, {kind!r}, folder, str(number), "25"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    for number in range(8)
]
for writer in writers:
    writer.stdout.readline()
"""
_RELEASE = """
for writer in writers:
    writer.communicate(b"\\n")
result = [writer.returncode for writer in writers]
"""


def publishes(folder: str, rounds: int) -> None:
    """Publish one table again and again, a hundred at once, and eight by as many processes."""
    one, hundred = (_PUBLISHES.format(folder=folder, tables=tables) for tables in (1, 100))
    publish = "with lake.session() as session: session.delta('t0').append(data)"
    ours = Program(one, f"for _ in range(200):\n    {publish}\nresult = lake.delta('t0').version")
    theirs = Program(
        one + "t = DeltaTable(folder + '/plain/t0')", "for _ in range(200): t.append(data)\nresult = t.version"
    )
    compare("200 publishes of one table", ours, theirs, rounds=rounds, peer="plain table")
    floor = _synced_files(folder, 200 * 6, 200)
    compare("200 publishes of one table", ours, floor, rounds=rounds, peer="synced files", memory=False)
    ours = Program(
        hundred,
        "with lake.session() as session:\n    for number in range(100): session.delta(f't{number}').append(data)\n"
        "result = 100",
    )
    theirs = Program(
        f"{hundred}import deltalake",
        "for number in range(100): deltalake.write_deltalake(f'{folder}/plain/t{number}', data, mode='append')\n"
        "result = 100",
    )
    compare("a session of 100 tables, published", ours, theirs, rounds=rounds)
    floor = _synced_files(folder, 4 * 100 + 3, 100)
    compare("a session of 100 tables, published", ours, floor, rounds=rounds, peer="synced files", memory=False)
    eight = _PUBLISHES.format(folder=folder, tables=8)
    ours, theirs = (
        Program(eight + _WRITERS.format(writer=_WRITER, kind=kind), _RELEASE) for kind in ("lake", "deltalake")
    )
    compare("8 processes, 25 publishes each, own tables", ours, theirs, rounds=rounds, memory=False)


_ASSETS = """
import os
import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

@dg.asset
def first() -> pa.Table:
    return pa.table({"id": list(range(1000)), "value": [1.5] * 1000})

@dg.asset
def second(first: pa.Table) -> pa.Table:
    return first.append_column("more", first["value"])

@dg.asset
def third(second: pa.Table) -> pa.Table:
    return second.append_column("most", second["value"])

assets = [first, second, third]
"""
_DEFINITIONS = {
    "lake": """
from lake_orch import DeltaIOManager, LakeResource, lake_executor
lake = LakeResource(root=os.environ["ROOT"] + "/lake")
resources = {"lake": lake, "io_manager": DeltaIOManager(lake=lake)}
defs = dg.Definitions(assets=assets, resources=resources, executor=lake_executor)
""",
    "dagster-deltalake": """
from dagster_deltalake import DeltaLakePyarrowIOManager, LocalConfig
manager = DeltaLakePyarrowIOManager(
    root_uri=os.environ["ROOT"], storage_options=LocalConfig(), schema="s", mode="overwrite"
)
defs = dg.Definitions(assets=assets, resources={"io_manager": manager})
""",
    "Parquet files": """
class Files(dg.ConfigurableIOManager):
    root: str
    def handle_output(self, context, rows):
        pq.write_table(rows, f"{self.root}/{context.asset_key.path[-1]}.parquet")
    def load_input(self, context):
        return pq.read_table(f"{self.root}/{context.asset_key.path[-1]}.parquet")
defs = dg.Definitions(assets=assets, resources={"io_manager": Files(root=os.environ["ROOT"])})
""",
}


def dagster_runs(folder: str, rounds: int) -> None:
    """Materialize three small assets by a process each, beside an IO manager without transactions."""
    peer = "dagster-deltalake" if find_spec("dagster_deltalake") else "Parquet files"
    root = tempfile.mkdtemp(dir=folder)
    Path(root, "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    _run(f"from lake_core import Lake\nLake.create({root + '/lake'!r})")
    commands = []
    for kind in ("lake", peer):
        definitions = Path(root, f"{kind.replace(' ', '_')}_definitions.py")
        definitions.write_text(_ASSETS + _DEFINITIONS[kind])
        dagster = str(Path(sys.executable).with_name("dagster"))
        commands.append([dagster, "asset", "materialize", "-f", str(definitions), "--select", "*"])
    environment = {"DAGSTER_HOME": root, "ROOT": root}
    compare_commands("a run of three small assets", *commands, rounds=rounds, peer=peer, environment=environment)


def measure(folder: str, rounds: int, count: int) -> None:
    """Measure all of them. `count` is the rows of the tables that are read."""
    scans(folder, rounds, count)
    row_changes(folder, rounds, count)
    small_files(folder, rounds)
    starts(folder, rounds)
    publishes(folder, rounds)
    dagster_runs(folder, rounds)


def _on_copies(folder: str, table: str) -> tuple[str, str]:
    """Return the setups of our program and of the peer's, each with a copy of a table at `folder`."""
    copy = f"folder = tempfile.mkdtemp(dir={folder!r}) + '/t'\nshutil.copytree({table!r}, folder)"
    copied = f"import shutil, tempfile\n{copy}\n"
    return f"from lake_core.delta import DeltaTable\n{copied}", f"import deltalake\n{copied}"


def _run(code: str) -> None:
    """Run code that makes data, with the function `rows`, in a process of its own."""
    source = _ROWS.format() + textwrap.dedent(code)
    subprocess.run([sys.executable, "-c", source], check=True, env=os.environ)
