"""The change feed of what we write: applied to the version before, a version's changes give its rows.

deltalake agrees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.log_segment import commit_key
from tests.delta.tables import SCHEMA, rows

FEED = {"delta.enableChangeDataFeed": "true"}
SOURCE = pa.table(
    {"id": [1, 2, 50, 51, None], "p": ["p1", "moved", "p0", "new", ""], "v": [9.0, 8.0, 7.0, None, 5.0]}, schema=SCHEMA
)


def _merge(table: DeltaTable, kind: str) -> Any:
    merge = table.merge(SOURCE, "t.id = s.id")
    match kind:
        case "everything":
            merge.when_matched_delete("s.id = 1").when_matched_update("*").when_not_matched_insert("*")
            merge.when_not_matched_by_source_delete("t.id > 8").when_not_matched_by_source_update(
                {"v": "-t.v"}, "t.id > 6"
            )
        case "inserts":
            merge.when_not_matched_insert("*")
        case "update":
            merge.when_matched_update({"v": "s.v"})
        case "delete":
            merge.when_matched_delete()
        case "by source":
            merge.when_not_matched_by_source_delete()
    return merge.execute()


OPERATIONS: dict[str, Callable[[DeltaTable], Any]] = {
    "append": lambda table: table.append(rows(20, 25)),
    "overwrite": lambda table: table.overwrite(rows(20, 25)),
    "overwrite with nothing": lambda table: table.overwrite(SCHEMA.empty_table()),
    "overwrite a partition": lambda table: table.overwrite(rows(3, 4), where="p = 'p0'"),
    "overwrite some rows": lambda table: table.overwrite(rows(3, 6), where="id BETWEEN 3 AND 7 OR v > 5"),
    "overwrite no row": lambda table: table.overwrite(rows(70, 72), where="id > 60"),
    "clear some rows": lambda table: table.overwrite(SCHEMA.empty_table(), where="id % 2 = 0"),
    "overwrite dynamically": lambda table: table.overwrite(pa.table({"id": [3, 77], "p": ["p0", ""]}), dynamic=True),
    "delete": lambda table: table.delete("id IN (1, 4, 5)"),
    "delete a whole file": lambda table: table.delete("p = 'p1' AND id < 5"),
    "delete a partition": lambda table: table.delete("p = 'p1'"),
    "delete all": lambda table: table.delete(),
    "update": lambda table: table.update(
        {"v": "id * 10", "p": "CASE WHEN id = 4 THEN 'moved' ELSE p END"}, "id > 2 AND v < 5"
    ),
    "update all": lambda table: table.update({"v": "NULL"}),
    "update in vain": lambda table: table.update({"v": "v"}, "id = 3"),
    "merge": lambda table: _merge(table, "everything"),
    "merge inserts": lambda table: _merge(table, "inserts"),
    "merge update": lambda table: _merge(table, "update"),
    "merge delete": lambda table: _merge(table, "delete"),
    "merge by source": lambda table: _merge(table, "by source"),
    "optimize": lambda table: table.optimize(),
    "zorder": lambda table: table.optimize(zorder_by=["v", "id"]),
    "restore": lambda table: table.restore(1),
    "constraint": lambda table: table.add_constraint("c", "id >= 0"),
    "columns": lambda table: table.add_columns(pa.schema([("n", pa.int64())])),
    "append with a new column": lambda table: table.append(pa.table({"id": [90], "n": [1]}), schema_mode="merge"),
    "overwrite some rows with a new column": lambda table: table.overwrite(
        pa.table({"id": [4], "p": ["p1"], "n": [1]}), where="id = 4", schema_mode="merge"
    ),
}


def _state(folder: Path, version: int, names: list[str]) -> Counter[str]:
    data = DeltaTable.open(folder, version=version).to_arrow()
    for name in names:
        if name not in data.column_names:
            data = data.append_column(name, pa.nulls(len(data), pa.int64()))
    return Counter(map(str, data.select(names).to_pylist()))


def replay(folder: Path, table: DeltaTable, version: int) -> Counter[str]:
    """Check one version's changes against the rows before and after it, and return the count of each kind of change."""
    names = table.schema.names
    state = _state(folder, version - 1, names)
    kinds: Counter[str] = Counter()
    feed = table.changes(version, version).read_all()
    assert feed["_commit_version"].to_pylist() == [version] * len(feed)
    # Deletions before insertions: a row may be in both.
    for row in sorted(feed.to_pylist(), key=lambda row: row["_change_type"] in ("insert", "update_postimage")):
        kind = row.pop("_change_type")
        kinds[kind] += 1
        text = str({name: row[name] for name in names})
        state[text] += 1 if kind in ("insert", "update_postimage") else -1
        assert state[text] >= 0, f"{kind} of a row that is not there: {text}"
    assert +state == _state(folder, version, names)
    assert kinds["update_preimage"] == kinds["update_postimage"]
    return kinds


def agree(folder: Path, table: DeltaTable, version: int) -> None:
    """Check that deltalake reads the same changes."""
    theirs = pa.table(
        deltalake.DeltaTable(str(folder)).load_cdf(starting_version=version, ending_version=version).read_all()
    )
    names = [*table.schema.names, "_change_type", "_commit_version"]
    ours = table.changes(version, version).read_all().select(names)
    if not len(ours):
        assert theirs.num_rows == 0
        return
    their_rows = [{name: row.get(name) for name in names} for row in theirs.to_pylist()]
    assert Counter(map(str, their_rows)) == Counter(map(str, ours.to_pylist()))


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("kind", OPERATIONS)
def test_every_operation(tmp_path: Path, kind: str, partitioned: bool) -> None:
    if "dynamic" in kind and not partitioned:
        return
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"] if partitioned else [], properties=FEED)
    table.append(rows(0, 5))
    table.append(rows(5, 10))
    before = table.version
    result = OPERATIONS[kind](table)
    assert result.version == before + 1 == table.version
    kinds = replay(tmp_path, table, table.version)
    agree(tmp_path, table, table.version)
    if kind in ("optimize", "zorder", "constraint", "columns"):
        assert not kinds
    if kind.startswith("update") or kind == "merge update":
        assert set(kinds) == {"update_preimage", "update_postimage"}  # not deleted and inserted
    if kind in ("delete", "merge delete", "clear some rows", "delete all", "merge by source"):
        assert set(kinds) == {"delete"}
    if kind == "merge":
        assert kinds == {"delete": 2, "update_preimage": 3, "update_postimage": 3, "insert": 3}


def test_a_long_history_on_a_mapped_table(tmp_path: Path) -> None:
    table = DeltaTable.create(
        tmp_path, SCHEMA, partition_by=["p"], properties={**FEED, "delta.columnMapping.mode": "name"}
    )
    table.append(rows(0, 10))
    table.rename_column("v", "a value")
    table.rename_column("p", "part")
    start = table.version + 1
    table.update({"a value": "id"}, "part = 'p1'")
    table.delete("`a value` > 6")
    source = pa.table({"id": [0, 60], "part": ["p2", None], "a value": [1.5, 2.5]})
    table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    table.optimize()
    table.overwrite(source, where="`a value` < 3 OR part IS NULL")
    table.restore(start)
    table.checkpoint()
    for version in range(start, table.version + 1):
        replay(tmp_path, table, version)


def test_deleted_rows_of_deletion_vectors_are_told_once(cases: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(cases / "delta" / "krs-cdf-table-with-dv", tmp_path / "t")
    table = DeltaTable.open(tmp_path / "t")
    first = table.version
    table.append(table.to_arrow())
    table.update({"value": "value + 100"}, "value % 2 = 0")
    table.merge(pa.table({"value": pa.array([1, 3], pa.int32())}), "t.value = s.value").when_matched_delete().execute()
    table.restore(first - 2)
    table.delete("value > 4")
    table.optimize(zorder_by=["value"])
    kinds = [replay(tmp_path / "t", table, version) for version in range(first + 1, table.version + 1)]
    assert [sum(counts.values()) > 0 for counts in kinds] == [True, True, True, True, True, False]


def test_without_the_feature_no_change_files(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA)
    table.append(rows(0, 10))
    for operation in ("update", "delete", "merge", "overwrite some rows"):
        OPERATIONS[operation](table)
    assert not (tmp_path / "_change_data").exists()
    assert not any(b'"cdc"' in bytes(table.store.get(commit_key(version))) for version in range(table.version + 1))


def test_change_files_go_with_the_rest(tmp_path: Path) -> None:
    """A reader of a change file ignores the rest of the commit, so change files hold all its changes or none."""
    table = DeltaTable.create(tmp_path, SCHEMA, properties=FEED)
    table.append(rows(0, 10))
    _merge(table, "inserts")
    assert b'"cdc"' not in bytes(table.store.get(commit_key(table.version)))
    _merge(table, "everything")
    assert bytes(table.store.get(commit_key(table.version))).count(b'"cdc"') >= 2
    assert replay(tmp_path, table, table.version)["insert"] == 1  # the null key again
