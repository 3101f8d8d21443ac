"""Sensors for changes by any writer: of tables and other datasets, and of branches."""

# No `from __future__ import annotations` here: Dagster reads the annotations of sensors as objects.

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import dagster as dg

from lake_core.delta import DeltaTable
from lake_core.graveler import Commit
from lake_core.lake import Lake
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.refs.history import log
from lake_core.lake.refs.refs_state import RefsState
from lake_orch.dagster.page_links import page_links
from lake_orch.errors import InvalidDefinition
from lake_orch.location import checked_path, table_path
from lake_orch.resources import LakeResource
from lake_orch.tags import BRANCH_TAG, VERSION
from lake_pipes.metadata import BRANCH, COMMIT, PATH

_MOST_CHANGES = 1000
"""The most changes of one table in one tick. Earlier ones are reported as one change."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """The changes of a table, or of another dataset of a lake, since the last tick of the sensor."""

    path: str
    asset_key: dg.AssetKey
    version: int | None
    """The version now. None for a dataset that was dropped, or whose format counts no versions."""
    operations: Sequence[str] = ()
    """The operations in order, as the table's history names them."""
    metrics: Mapping[str, int] = field(default_factory=dict)
    """The sums of metrics: numOutputRows, numAddedFiles, …"""
    commits: int = 0
    """The number of versions, or commits of the lake, since the last tick."""
    commit: str | None = None
    """The lake's commit, if there is a lake."""
    is_dropped: bool = False
    """Whether the dataset is gone."""
    id: str = ""
    """The identity of the dataset. One that was created again at its path has another."""


@dataclass(frozen=True, slots=True)
class BranchChange:
    """The change of a branch since the last tick of the sensor."""

    branch: str
    kind: Literal["created", "moved", "deleted"]
    commit: str | None


RequestForTable: TypeAlias = Callable[[TableChange], dg.RunRequest | None]
RequestForBranch: TypeAlias = Callable[[BranchChange], dg.RunRequest | None]


def table_change_sensor(
    tables: Sequence[dg.AssetSpec | dg.AssetKey | str],
    *,
    name: str = "table_changes",
    target: Any = None,
    request: RequestForTable | None = None,
    minimum_interval_seconds: int = 30,
    **options: Any,
) -> dg.SensorDefinition:
    """Make a sensor for new versions of tables, by any writer. In a lake, datasets of all formats are watched alike.

    For each changed or dropped table, it reports an observation of the asset, with the version, commit, operations and
    data version. The data version makes assets downstream of an external table stale. With a `target`, it requests a
    run for each change. `request` returns the run to request instead, or None.

    Each change is reported once. The cursor holds the number of the lake's journal, or the versions of plain tables.
    After a reset of the cursor, and if the branch does not go on from where it was, the current state is reported. A
    table that was created again is a change, whatever its version. `options` are those of `@dg.sensor`.
    """
    watched = {_path(table): _key(table) for table in tables}
    if not watched:
        raise InvalidDefinition("table_change_sensor has no tables to watch: name at least one")

    def evaluate(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SensorResult:
        cursor: dict[str, Any] = json.loads(context.cursor) if context.cursor else {}
        changes_since_cursor = (
            _lake_changes(lake.open(), lake.branch, watched, cursor)
            if lake.is_lake()
            else _plain_changes(lake, watched, cursor)
        )
        changes = list(changes_since_cursor)
        requests = []
        for change in changes:
            run_request = None
            if request is not None:
                run_request = request(change)
            elif target is not None:
                run_request = _request_for_table(change, cursor.get("resets", 0))
            if run_request is not None:
                requests.append(run_request)
        events = [_observation(change, lake) for change in changes]
        return dg.SensorResult(run_requests=requests, asset_events=events, cursor=json.dumps(cursor))

    sensor: Any = dg.sensor(
        name=name,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=f"Reports new versions of {', '.join(list(watched)[:5])}.",
        **options,
    )
    definition: dg.SensorDefinition = sensor(evaluate)
    return definition


def _lake_changes(
    lake: Lake, branch: str, watched: Mapping[str, dg.AssetKey], cursor: dict[str, Any]
) -> Iterator[TableChange]:
    """Yield the changes on a branch since the commit in the cursor, and update the cursor."""
    refs = lake.repository.refs()
    if (cursor.get("number"), cursor.get("branch", branch)) == (refs.number, branch):
        return
    head, last = refs.branch(branch), cursor.get("commit")
    cursor |= {"number": refs.number, "branch": branch, "commit": head}
    if head == last:
        return
    new_commits, is_continued = _new_commits(refs, head, last, watched.keys())
    if last is not None and not is_continued:
        cursor["resets"] = cursor.get("resets", 0) + 1
    state = lake.at(head)
    for path, key in watched.items():
        changes = [commit for commit in new_commits if path in changed_datasets(commit)]
        record = state.registered()[path] if path in state.datasets() else None
        if not changes and (is_continued or record is None):
            continue
        if record is None and last is None:
            continue
        entries = [changed_datasets(commit)[path] for commit in changes]
        operations = [str(entry.get("operation")) for entry in entries]
        metrics = _sum(entry.get("summary") for entry in entries)
        dataset = None if record is None else state.dataset(path)
        version = None if dataset is None else dataset.format.version(dataset)
        reported = changes[-1].id if changes else head
        id = "" if record is None else record.id
        yield TableChange(path, key, version, operations, metrics, len(changes), reported, record is None, id)


def _new_commits(refs: RefsState, head: str, last: str | None, watched: Set[str]) -> tuple[list[Commit], bool]:
    """Return the commits after the last one that changed a watched dataset, oldest first.

    Return also whether the branch goes on from the last one. If it does not, only its newest commits are looked at.
    """
    changed: list[Commit] = []
    for number, commit in enumerate(log(refs, refs.commit(head), first_parent=True)):
        if commit.id == last:
            return changed[::-1], True
        if last is None and number == _MOST_CHANGES:
            break
        if not watched.isdisjoint(changed_datasets(commit)):
            changed.append(commit)
    return changed[:_MOST_CHANGES][::-1], False


def _plain_changes(
    lake: LakeResource, watched: Mapping[str, dg.AssetKey], cursor: dict[str, Any]
) -> Iterator[TableChange]:
    """Yield the changes of tables outside a lake since the versions in the cursor, and update the cursor."""
    for path, key in watched.items():
        table = lake.find_table(path)
        if table is None:
            if cursor.pop(path, None) is not None:
                yield TableChange(path, key, None, ["DROP"], commits=1, is_dropped=True)
            continue
        known, id = cursor.get(path), table.snapshot.metadata.id
        last = known and known["version"]
        if known == (present := {"version": table.version, "id": id}):
            continue
        if known is not None and known["id"] != id:
            last = -1  # all of it is new
        entries = _history(table, last)
        cursor[path] = present
        operations = [str(entry.get("operation")) for entry in entries]
        metrics = _sum(entry.get("operationMetrics") for entry in entries)
        yield TableChange(path, key, table.version, operations, metrics, len(entries), id=id)


def _history(table: DeltaTable, after: int | None) -> list[dict[str, Any]]:
    """Return the later versions that the log still has, oldest first."""
    count = min(table.version - after, _MOST_CHANGES) if after is not None and after < table.version else 1
    return [entry for entry in reversed(table.history(count)) if after is None or entry["version"] > after]


def _sum(summaries: Any) -> dict[str, int]:
    """Add up the metrics of several operations."""
    total: dict[str, int] = {}
    for metrics in summaries:
        for name, value in (metrics or {}).items():
            text = str(value)
            if text.isdecimal():
                total[name] = total.get(name, 0) + int(text)
    return total


def _observation(change: TableChange, lake: LakeResource) -> dg.AssetObservation:
    metadata: dict[str, Any] = {PATH: change.path, "lake/changes": change.commits}
    metadata |= {"lake/dropped": True} if change.is_dropped else {}
    metadata |= {} if change.version is None else {VERSION: change.version}
    if change.operations:
        metadata["lake/operations"] = ", ".join(change.operations[-20:])
    if change.commit is not None:
        metadata |= {COMMIT: change.commit, BRANCH: lake.branch}
        is_there = {} if change.is_dropped else {PATH: change.path}
        metadata |= page_links(lake.ui_url, {COMMIT: change.commit, **is_there})
    metadata |= {f"lake/{name}": value for name, value in change.metrics.items()}
    counted = change.commit if change.version is None else f"{change.version} of {change.id}"
    data_version = "dropped" if change.is_dropped else str(counted)
    return dg.AssetObservation(change.asset_key, metadata=metadata, tags={"dagster/data_version": data_version})


def _request_for_table(change: TableChange, resets: int) -> dg.RunRequest:
    """Return a request with a key of its own, also if a branch was set back to where it was before."""
    state = change.commit or (None if change.version is None else f"{change.version} of {change.id}")
    # Each drop is reported once, so its run needs no key.
    run_key = None if state is None else _run_key(f"{change.path}@{state}", resets)
    return dg.RunRequest(run_key=run_key, tags={"lake/changed": change.path[:200]})


def branch_sensor(
    *,
    name: str = "lake_branches",
    target: Any = None,
    prefix: str = "",
    request: RequestForBranch | None = None,
    minimum_interval_seconds: int = 30,
    **options: Any,
) -> dg.SensorDefinition:
    """Make a sensor for created, moved and deleted branches: to check a pull request's branch, or to clean up after it.

    It requests a run of `target` on each branch that was created or moved, with the branch in the tag `lake/branch`.
    `request` returns the run to request instead, or None. The resource's branch and branches without `prefix` are
    ignored. A run that writes to its branch moves it, and so requests the next run: `target` should only read, or
    `request` return None for `change.kind == "moved"`. `options` are those of `@dg.sensor`.
    """
    if target is None and request is None:
        raise InvalidDefinition("branch_sensor does nothing by itself: give it a target, a request, or both")

    def evaluate(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SensorResult:
        heads = {
            name: commit
            for name, commit in lake.open().list_branches().items()
            if name.startswith(prefix) and name != lake.branch
        }
        cursor: dict[str, Any] = json.loads(context.cursor) if context.cursor else {}
        changes = list(_branch_changes(cursor.get("heads", {}), heads))
        deleted = cursor.get("deleted", 0) + sum(change.commit is None for change in changes)
        requests = []
        for change in changes:
            run_request = request(change) if request else _request_for_branch(change, deleted)
            if run_request is not None:
                requests.append(run_request)
        position = {"heads": heads, "deleted": deleted}
        return dg.SensorResult(run_requests=requests, cursor=json.dumps(position, sort_keys=True))

    sensor: Any = dg.sensor(
        name=name,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description="Reports created, moved and deleted branches of the lake.",
        **options,
    )
    definition: dg.SensorDefinition = sensor(evaluate)
    return definition


def _branch_changes(last_heads: Mapping[str, str], heads: Mapping[str, str]) -> Iterator[BranchChange]:
    for branch, commit in sorted(heads.items()):
        if branch not in last_heads:
            yield BranchChange(branch, "created", commit)
        elif last_heads[branch] != commit:
            yield BranchChange(branch, "moved", commit)
    for branch in sorted(last_heads.keys() - heads.keys()):
        yield BranchChange(branch, "deleted", None)


def _request_for_branch(change: BranchChange, deleted: int) -> dg.RunRequest | None:
    """Return a request with a key of its own, also for a branch that was deleted and created again."""
    if change.commit is None:
        return None
    run_key = _run_key(f"{change.branch}@{change.commit}", deleted)
    return dg.RunRequest(run_key=run_key, tags={BRANCH_TAG: change.branch})


def _run_key(name: str, generation: int) -> str:
    """Return a run's key. Dagster starts no run for a key that was used before."""
    return f"{name}#{generation}" if generation else name


def external_table(key: str | Sequence[str] | dg.AssetKey, path: str | None = None, **options: Any) -> dg.AssetSpec:
    """Declare an asset for a table of other writers.

    `table_change_sensor` observes its versions. `options` are those of `dg.AssetSpec`.
    """
    asset_key = dg.AssetKey.from_coercible(key)
    metadata = {**(options.pop("metadata", None) or {}), PATH: table_path(asset_key.path, {PATH: path} if path else {})}
    return dg.AssetSpec(asset_key, metadata=metadata, kinds=options.pop("kinds", {"deltalake"}), **options)


def _path(table: dg.AssetSpec | dg.AssetKey | str) -> str:
    if isinstance(table, dg.AssetSpec):
        return table_path(table.key.path, table.metadata)
    return checked_path(table) if isinstance(table, str) else table_path(table.path, {})


def _key(table: dg.AssetSpec | dg.AssetKey | str) -> dg.AssetKey:
    if isinstance(table, dg.AssetSpec):
        return table.key
    return dg.AssetKey(checked_path(table).removeprefix("tables/").split("/")) if isinstance(table, str) else table
