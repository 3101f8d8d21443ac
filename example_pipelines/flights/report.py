"""What the demo prints at its end: the tables as any Delta reader sees them, a plot, the arrays, where to look next."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import xarray as xr

from example_pipelines.flights.places import IS_LOCAL, LAKE_ROOT, REPOSITORY
from lake_core.delta import DeltaTable
from lake_core.lake import Lake

TABLES = (
    "flights",
    "weather",
    "planes",
    "airlines",
    "airports",
    "delays_by_hour",
    "monthly_totals",
    "routes",
    "carrier_airport_summary",
    "departure_log",
)
ARRAYS = "tables/hourly_weather"
_BAR = 40


def print_tables() -> None:
    """Print the tables as any Delta reader sees them."""
    lines = [("table", "rows", "version", "files", "MB", "path")]
    for name in filter(exists, TABLES):
        table = open_table(name)
        files = table.files()
        size = sum(files["size"].to_pylist()) / 1e6
        lines.append((name, f"{rows_of(name):,}", str(table.version), str(files.num_rows), f"{size:.1f}", url_of(name)))
    print()
    print_columns(lines)


def print_columns(lines: Sequence[Sequence[str]]) -> None:
    """Print columns, text left and numbers right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        first, *numbers, last = line
        print(
            "  ".join(
                [
                    first.ljust(widths[0]),
                    *(text.rjust(width) for text, width in zip(numbers, widths[1:-1], strict=True)),
                    last,
                ]
            )
        )


def print_log(lake: Lake) -> None:
    """Print the last commits of main."""
    print("\nThe last commits of main:")
    for commit in lake.log(first_parent=True, limit=5):
        print(f"  {commit.id[:12]}  {commit.creation_date:%H:%M:%S}  {commit.message}")


def print_plot(lake: Lake) -> None:
    """Print the mean delay by hour of departure, read from one of the tables."""
    table = lake.delta("tables/delays_by_hour").to_arrow(columns=["hour", "flights", "cancelled", "mean_dep_delay"])
    left = pa.compute.subtract(table["flights"], table["cancelled"])
    table = table.append_column("left", left).append_column(
        "minutes", pa.compute.multiply(left, table["mean_dep_delay"])
    )
    hours = table.group_by("hour").aggregate([("left", "sum"), ("minutes", "sum")]).sort_by("hour").to_pylist()
    means = {row["hour"]: row["minutes_sum"] / row["left_sum"] for row in hours if row["left_sum"]}
    longest = max(means.values())
    print("\nMinutes that flights left late, by hour of departure (table delays_by_hour):")
    for hour, mean in means.items():
        print(f"  {hour:02}  {'█' * round(_BAR * max(mean, 0.0) / longest)} {mean:.0f}")


def print_arrays(lake: Lake) -> None:
    """Print the mean temperatures of the airports, read by xarray, and how the arrays are read without the lake."""
    arrays = open_arrays(lake)
    shape = ", ".join(f"{length:,} along {dimension}" for dimension, length in arrays.sizes.items())
    means = ", ".join(f"{mean.origin.item()} {mean.item():.1f}" for mean in arrays.temp.mean("time"))
    print(f"\nThe weather as arrays ({ARRAYS}): {len(arrays.data_vars)} variables, {shape}")
    print(f"  mean temperature of the year in °F, by xarray: {means}")
    url = f"{LAKE_ROOT}/{ARRAYS}"
    if IS_LOCAL:
        opened = f"icechunk.Repository.open(icechunk.local_filesystem_storage({url!r}))"
        print(f"  icechunk reads them as well: {opened}")
    else:
        print(f"  they are an Icechunk repository: {url}")


def print_further() -> None:
    """Print where to look at what the demo made."""
    print("\nLook at it:")
    default = str(REPOSITORY / ".lake")
    command = "make ui" if default == LAKE_ROOT else f"make ui LAKE_ROOT={LAKE_ROOT}"
    print(f"  {command:<45} the runs, tables, checks and lineage at http://localhost:3000/assets")
    pages = f".venv/bin/lake --lake {LAKE_ROOT} ui"
    print(f"  {pages:<45} its commits, differences and rows at http://127.0.0.1:7117")
    print(f"  .venv/bin/lake --lake {LAKE_ROOT} log")
    print(f"  .venv/bin/lake --lake {LAKE_ROOT} head tables/carrier_airport_summary")


def url_of(name: str) -> str:
    """Return the URL of a table's folder, for readers that know nothing of the lake."""
    return f"{LAKE_ROOT}/tables/{name}"


def exists(name: str) -> bool:
    """Return whether main has the table."""
    return DeltaTable.exists(url_of(name))


def open_arrays(lake: Lake, ref: str = "main") -> xr.Dataset:
    """Return the arrays of a ref as one lazy dataset."""
    arrays: xr.Dataset = xr.open_zarr(lake.icechunk(ARRAYS, ref=ref).store, consolidated=False, chunks=None)
    return arrays


def open_table(name: str) -> DeltaTable:
    """Open a table's folder, as any Delta reader would."""
    return DeltaTable.open(url_of(name))


def rows_of(name: str) -> int:
    """Count the rows by reading one column: what a query sees, not what a log claims."""
    table = open_table(name)
    return table.to_arrow(columns=table.schema.names[:1]).num_rows
