"""The commits that lead from one state of a table's log to another, and what they tell together when they become one version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lake_core.delta.action import Metadata
from lake_core.delta.commit_file import parse_run, read_commit_info
from lake_core.delta.conflict import Reads
from lake_core.delta.errors import MixedRearrangement
from lake_core.delta.log_segment import commit_key, list_log
from lake_core.delta.scope import reads_of
from lake_core.delta.snapshot import Snapshot
from lake_core.errors import NotFound
from lake_core.expression import Predicate
from lake_core.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Line:
    """The commits that lead from one state of a table to another, as far as the one's log continues the other's."""

    commits: Sequence[tuple[int, bytes]]
    continues: bool
    """Whether the later log holds the earlier one whole; otherwise the commits are those behind the fork."""


def line_between(before: Snapshot | None, after: Snapshot) -> Line:
    fork = -1 if before is None else _fork(before, after)
    # A log that came in cut short begins where it begins.
    versions = range(fork + 1, after.version + 1) if before is not None else sorted(list_log(after.store).commits)
    found = after.store.get_many([commit_key(version) for version in versions])
    return Line(list(zip(versions, found, strict=True)), before is None or fork == before.version)


def log_etag(store: ObjectStore, version: int) -> str | None:
    """What tells a version's commit from others: equal ones have equal logs behind them."""
    try:
        return store.head(commit_key(version)).etag
    except NotFound:
        return None


def _fork(before: Snapshot, after: Snapshot) -> int:
    """The last version that two logs share, -1 for none."""
    low, high = -1, min(before.version, after.version)
    while low < high:
        middle = (low + high + 1) // 2
        # Neither has the versions that were cleaned up before the table came in.
        if log_etag(before.store, middle) == log_etag(after.store, middle):
            low = middle
        else:
            high = middle - 1
    return low


def line_reads(line: Line, metadata: Metadata) -> Sequence[Reads | Predicate]:
    reads: list[Reads | Predicate] = []
    for version, data in line.commits:
        for read in reads_of(read_commit_info(version, data), metadata):
            if read is Reads.WHOLE_TABLE:
                return [read]
            reads.append(read)
    return reads


def only_rearranges(commits: Sequence[tuple[int, bytes]]) -> bool:
    """Whether commits only rearrange rows. Raises MixedRearrangement where some do and others change them."""
    kinds = {kind for version, data in commits if (kind := rearranges(version, data)) is not None}
    if len(kinds) > 1:
        raise MixedRearrangement(
            "a session rearranged this table (optimize, Z-order) and changed its rows: as one version nobody could tell which rows are "
            "new. Publish the changes first, and optimize in a session of its own"
        )
    return kinds == {True}


def rearranges(version: int, data: bytes) -> bool | None:
    """Whether a commit rearranges rows without changing them; None for one that touches no file."""
    if b'"dataChange":false' in data or b'"dataChange": false' in data:
        run = parse_run([(version, data)], (), None)
        if not any(flag is not False for table in (run.adds, run.removes) for flag in table["dataChange"].to_pylist()):
            return True
    return False if b'{"add":' in data or b'{"remove":' in data or b'"add"' in data or b'"remove"' in data else None


def line_operation(line: Line) -> str:
    """What the commits did, in the words of the one that did most."""
    names = [str(read_commit_info(version, data).get("operation", "WRITE")) for version, data in line.commits]
    telling = [name for name in names if name not in ("CREATE TABLE", "SET TRANSACTION")] or names
    return telling[0] if len(set(telling)) == 1 else "WRITE"


def line_parameters(line: Line) -> Mapping[str, str]:
    """The parameters of the only commit; of several together there are none to tell."""
    if len(line.commits) != 1:
        return {}
    found = read_commit_info(*line.commits[0]).get("operationParameters")
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def line_metrics(line: Line) -> Mapping[str, int]:
    """The commits' numbers, added up."""
    total: dict[str, int] = {}
    for version, data in line.commits:
        found = read_commit_info(version, data).get("operationMetrics")
        for name, text in found.items() if isinstance(found, dict) else ():
            if str(text).isascii() and str(text).isdigit():
                total[name] = total.get(name, 0) + int(text)
    return total
