"""Tables in S3 over HTTP: the same promises where answers get lost."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from tests.delta.tables import SCHEMA, ids, rows
from tests.processes import run_together
from tests.store.s3.deltalake_options import deltalake_options


def _append(url: str, options: dict[str, object], worker: int) -> None:
    table = DeltaTable.open(url, storage_options=options)
    for number in range(5):
        start = (worker * 5 + number) * 2
        table.append(rows(start, start + 2), txn=(f"worker-{worker}", number))


@pytest.mark.extended
def test_processes_race_on_one_table(s3_url: str, s3_options: dict[str, object]) -> None:
    DeltaTable.create(s3_url, SCHEMA, partition_by=["p"], storage_options=s3_options)
    run_together(_append, [(s3_url, s3_options, worker) for worker in range(4)])
    table = DeltaTable.open(s3_url, storage_options=s3_options)
    assert (table.version, ids(table.to_arrow())) == (20, list(range(40)))
    theirs = deltalake_options(s3_options)
    other = deltalake.DeltaTable(s3_url, storage_options=theirs)
    result = deltalake.QueryBuilder().register("t", other).execute("select id from t").read_all()
    assert sorted(pa.table(result)["id"].to_pylist()) == list(range(40))
