"""The lake that the tests of pages look at, and that the pictures of the docs show."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zarr

from lake_core import Lake
from lake_core.store import ObjectStore
from lake_core.testing.manual_clock import ManualClock

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.string(), metadata={"comment": "who ordered"}),
        pa.field("day", pa.date32()),
        ("amount", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)
CUSTOMERS = ("ann", "bob", "cho", "dee", "eli", "fay")
FIRST_DAY = dt.date(2026, 11, 1)
HOSTILE = '<img src=x onerror="alert(1)">'
"""What a page must show as text."""


def orders(ids: range, *, cents: int = 0, schema: pa.Schema = ORDERS) -> pa.Table:
    """Return orders of these ids."""
    rows = [
        {
            "id": number,
            "customer": CUSTOMERS[number % len(CUSTOMERS)],
            "day": FIRST_DAY + dt.timedelta(days=number // 40),
            "amount": round(5 + number * 37 % 200 + cents / 100, 2),
            "tags": ["new"] if number % 7 == 0 else [],
        }
        for number in ids
    ]
    return pa.Table.from_pylist([row | {"amount": _decimal(row["amount"])} for row in rows], schema=schema)


def _decimal(amount: Any) -> Any:
    from decimal import Decimal

    return Decimal(f"{amount:.2f}")


def create_lake(root: str | Path | ObjectStore, clock: ManualClock | None = None) -> Lake:
    """Create a lake with tables, arrays, a pool, files, branches, a tag, a merge, and open and failed sessions."""
    # Its sessions are open by the clock of this machine, too, which the pages use.
    time = clock or ManualClock(dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(hours=10))
    lake = Lake.create(root, clock=time)

    def publish(message: str, run: str, branch: str = "main", **more: str) -> Any:
        time.now += dt.timedelta(minutes=47)
        return lake.session(branch, message=message, metadata={"dagster/run": run, **more})

    with publish("load orders", "3f8a1c22-run-of-monday", **{"dagster/job": "nightly"}) as s:
        s.create_delta("tables/orders", ORDERS, properties={"team": "sales"}).append(orders(range(200)))
        revenue = pa.table({"customer": list(CUSTOMERS), "total": [1200.5, 980.0, 1411.0, 700.25, 64.0, 15.5]})
        s.create_delta("tables/revenue", revenue.schema).append(revenue, txn=("nightly", 1))
        s.put("reports/today.txt", b"200 orders\nall paid\n")
    with publish("weather of the week", "77b0d9e1-run-of-weather") as s:
        store = s.create_icechunk("arrays/weather").store
        group = zarr.open_group(store, mode="a", attributes={"title": "Weather", "source": "station 7"})
        field = group.create_array(
            "temperature",
            shape=(4, 60, 80),
            chunks=(1, 30, 40),
            dtype="f4",
            dimension_names=["day", "y", "x"],
            attributes={"units": "degC"},
        )
        y, x = np.mgrid[0:60, 0:80]
        for day in range(4):
            field[day] = 12 + 8 * np.sin((x + day * 9) / 13) * np.cos(y / 11)
        group.create_array("elevation", shape=(60, 80), chunks=(30, 40), dtype="i2")[:] = np.round(y * 3 + x)
    with publish("events of the day", "a0c4e7f3-run-of-events") as s:
        pool = s.create_pool("pools/events", key="ts")
        pool.load(
            [{"ts": number, "level": "info", "msg": f"step {number}"} for number in range(20)]
            + [{"ts": 100 + number, "code": number, "who": {"name": "ann"}} for number in range(5)]
        )
    lake.create_tag("release-1")
    with publish("correct three orders", "9d02b7aa-run-of-corrections") as s:
        table = s.delta("tables/orders")
        table.merge(orders(range(10, 13), cents=37), "t.id = s.id").when_matched_update(
            {"amount": "s.amount"}
        ).execute()
    lake.create_branch("dev")
    with publish("orders of tuesday, tried on dev", "c51f0e6d-run-on-dev", "dev") as s:
        s.delta("tables/orders").append(orders(range(200, 260)))
        s.put("reports/today.txt", b"260 orders\nall paid\nthree late\n")
    with publish("orders of wednesday", "e2b6d418-run-of-wednesday") as s:
        s.delta("tables/orders").append(orders(range(300, 340)))
        zarr.open_array(s.icechunk("arrays/weather").store, path="temperature", mode="r+")[2, :30, :40] = 30.0
        s.pool("pools/events").load([{"ts": 200, "level": "warn", "msg": "late"}])
    lake.create_branch("conflicting", at="main~1")
    with publish("another correction of order 10", "f9a3c0b1-run-of-conflict", "conflicting") as s:
        table = s.delta("tables/orders")
        table.delete("id = 10")
        table.append(orders(range(10, 11), cents=99))
    with publish("correct order 10 again", "b8d5e2f0-run-of-thursday") as s:
        table = s.delta("tables/orders")
        table.merge(orders(range(10, 11), cents=50), "t.id = s.id").when_matched_update(
            {"amount": "s.amount"}
        ).execute()
    lake.create_branch("side", at="main~2")
    with publish("a note from the side", "5c7e9a10-run-of-side", "side") as s:
        s.put("reports/side.txt", b"side\n")
    time.now += dt.timedelta(minutes=20)
    lake.merge("side")
    time.now += dt.timedelta(minutes=30)
    failed = lake.open_session(
        id="run-of-today", message="orders of friday", metadata={"dagster/run": "d4417b2e-run-of-today"}
    )
    with failed.join(task="orders") as writer:
        writer.delta("tables/orders").append(orders(range(400, 420)))
    failed.fail("the check 'amounts are positive' failed: 2 rows")
    opened = lake.open_session(id="backfill-2025", message="backfill of 2025")
    with opened.join() as writer:
        writer.put("reports/backfill.txt", b"half\n")
    return lake


def add_hostile_values(lake: Lake) -> None:
    """Publish HTML wherever a lake holds text."""
    name = f"evil{HOSTILE}"
    with lake.session(message=f"message {HOSTILE}", metadata={"note": HOSTILE}) as s:
        rows = pa.table({name: [HOSTILE, "</script><script>alert(1)</script>"], "id": [1, 2]})
        table = s.create_delta("tables/hostile", rows.schema)
        table.append(rows)
        table.set_comments({"id": HOSTILE})
        s.put("reports/hostile.txt", HOSTILE.encode())
        pool = s.create_pool("pools/hostile", key="ts")
        pool.load(io.BytesIO(b'{"ts": 1, "msg": "<img src=x onerror=alert(1)>"}\n'))


def conflicting_session(lake: Lake) -> None:
    """Open a session that changes a table and a file, and change the same rows of the table on main."""
    session = lake.open_session(id="late", message="late correction")
    with session.join() as task:
        task.delta("tables/orders").delete("id = 12")
        task.put("reports/late.txt", b"late\n")
    with lake.session(message="meanwhile") as s:
        s.delta("tables/orders").update({"amount": "1"}, "id = 12")
