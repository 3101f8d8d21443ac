"""What a lake must do in a bucket of any cloud, over HTTP: each operation is a request."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict
from lake_core.store import open_store
from tests.lake.lakes import create_tables, ids, plain, rows, values
from tests.processes import run_together
from tests.store.s3.deltalake_options import deltalake_options

TABLES = ("t/a", "t/b", "t/c")
Options = dict[str, object]


def theirs(url: str, path: str, options: Options) -> list[int]:
    """Return the ids of a table as deltalake reads its folder, or as we do in Google's emulator."""
    if url.startswith("gs:"):
        return ids(plain(open_store(url, storage_options=options), path))
    if url.startswith("az:"):
        storage_options = {
            "account_name": str(options["account_name"]),
            "account_key": str(options["account_key"]),
            "endpoint": str(options["endpoint"]),
            "allow_http": "true",
        }
    else:
        storage_options = deltalake_options(options)
    table = deltalake.DeltaTable(f"{url}/{path}", storage_options=storage_options)
    result = deltalake.QueryBuilder().register("t", table).execute("select id from t").read_all()
    return sorted(pa.table(result)["id"].to_pylist())


def work_on_sessions_branches_and_merges(url: str, options: Options) -> None:
    """Publish, branch, merge, conflict and revert; compare with what deltalake reads in the folder."""
    lake = Lake.create(url, storage_options=options)
    create_tables(lake, *TABLES)
    before_all = lake.create_tag("first")
    with lake.session(message="three tables and files") as s:
        for number, path in enumerate(TABLES):
            s.delta(path).append(rows([100 + number]), txn=("job", 1))
            s.delta(path).update({"v": "7"}, "id = 1")
        s.put("reports/a b%41.json", b"{}", if_absent=True)
        s.put("reports/é/😀", b"1")
        assert ids(lake.delta(TABLES[0])) == list(range(10)), "isolated outside"
    again = Lake.open(url, storage_options=options)
    for number, path in enumerate(TABLES):
        expected = [*range(10), 100 + number]
        assert (
            ids(again.delta(path)) == ids(plain(again.repository.root, path)) == theirs(url, path, options) == expected
        )
        assert values(again.delta(path))[1] == 7
        assert again.delta(path).version == 1
    assert [meta.key for meta in again.at().list("reports/")] == ["reports/a b%41.json", "reports/é/😀"]
    assert ids(again.delta("t/a", ref="first")) == list(range(10))
    assert again.list_tags() == {"first": before_all}

    again.create_branch("dev")
    with again.session("dev") as s:
        s.delta("t/a").append(rows([500]))
        s.put("reports/dev", b"dev")
    with again.session() as s:
        s.delta("t/a").append(rows([600]))
        s.delta("t/b").delete("id < 5")
    assert 500 not in theirs(url, "t/a", options)
    merged = again.merge("dev")
    assert merged.is_checked_out
    assert again.log()[0].id == merged.commit
    assert ids(again.delta("t/a")) == theirs(url, "t/a", options) == [*range(10), 100, 500, 600]
    assert theirs(url, "t/b", options) == [*range(5, 10), 101]
    assert bytes(again.at().get("reports/dev")) == b"dev"
    with pytest.raises(Conflict) as caught, again.session() as first, again.session() as other:
        first.put("contested", b"1")
        other.put("contested", b"2")
    assert caught.value.keys == ("contested",)
    again.revert(merged.commit)
    assert ids(again.delta("t/a")) == theirs(url, "t/a", options) == [*range(10), 100, 600]
    assert again.maintenance.verify() == []
    assert again.status().pending_checkout == []


def _publisher(url: str, options: Options, worker: int, count: int) -> None:
    lake = Lake.open(url, storage_options=options)
    for number in range(count):
        id = worker * 1000 + 100 + number
        with lake.session(message=f"{worker}/{number}") as s:
            s.delta("t/shared").append(rows([id]), txn=(f"worker-{worker}", number))
            s.put(f"files/{worker}/{number}", b"%d" % id)


def race(url: str, options: Options, workers: int, count: int) -> None:
    """Let processes publish on one branch; each commit, row and file must be there once."""
    lake = Lake.create(url, storage_options=options)
    create_tables(lake, "t/shared")
    run_together(_publisher, [(url, options, worker, count) for worker in range(workers)])
    log = lake.log()
    assert len(log) == 2 + workers * count
    assert sorted(commit.message for commit in log[:-2]) == sorted(
        f"{w}/{n}" for w in range(workers) for n in range(count)
    )
    assert lake.delta("t/shared").version == workers * count
    written = [worker * 1000 + 100 + number for worker in range(workers) for number in range(count)]
    expected = sorted([*range(10), *written])
    assert (
        ids(lake.delta("t/shared"))
        == ids(plain(lake.repository.root, "t/shared"))
        == theirs(url, "t/shared", options)
        == expected
    )
    at = lake.at()
    files = [f"files/{worker}/{number}" for worker in range(workers) for number in range(count)]
    assert [meta.key for meta in at.list("files/")] == sorted(files)
    assert [int(data) for data in at.get_many(files)] == written
    assert lake.maintenance.verify() == []
    assert lake.status().pending_checkout == []
