"""Sync a branch of a lake to a catalog.

A sync reads what is registered, then the head of the branch, and changes what differs. Each change is on condition
that the table is still as it was read, as far as the catalog can say that: if not, everything is read again. As the
head is read after the catalog, what is written is never older than what it replaces. At the end the head is read once
more: if it has moved, the sync follows, so that one which was held up leaves nothing outdated. Nothing is written to
the lake but the checkout of what is published, if a publisher failed before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lake_core.backoff import Backoff
from lake_core.catalog.catalog import TableChanged
from lake_core.catalog.definition import Origin, TableDefinition, catalog_schema, fingerprint, is_at
from lake_core.catalog.errors import (
    BranchNotReadable,
    CatalogChanged,
    CatalogRefused,
    CatalogUnavailable,
    TablesRefused,
    UnsupportedColumn,
)
from lake_core.catalog.names import check_schema_name, schema_name
from lake_core.catalog.plan import CreateTable, DropTable, LakeTable, Position, Refusal, Source, UpdateTable, plan_sync
from lake_core.delta.errors import DeltaError
from lake_core.errors import CredentialsInUrl, InvalidUrl
from lake_core.lake.refs.reached import CommitLinks
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.catalog.catalog import Catalog
    from lake_core.catalog.definition import RegisteredTable
    from lake_core.catalog.plan import Change, Plan
    from lake_core.graveler import Commit
    from lake_core.lake import Lake
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.state.state_store import StateStore

TABULAR: Final = "delta"
"""The format of datasets that catalogs know as tables."""
_PASSWORD: Final = re.compile(r"://[^/@]*:[^/]*@")
_TRIES: Final = 6
_ROUNDS: Final = 5
"""How often a sync follows a branch that moves meanwhile."""
_BACKOFF: Final = Backoff(0.1, 3.0)


@dataclass(frozen=True, slots=True)
class SyncedTable:
    """A change that a sync made in the catalog, or would make."""

    action: str
    """`create`, `update` or `drop`."""
    name: str
    """The table's name in the catalog."""
    path: str
    """Its path in the lake."""
    changed: tuple[str, ...] = ()
    """What an update changes: `schema`, `location`, `path`, or `version` if the table only has a new version."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of syncing a branch to a schema."""

    branch: str
    schema: str
    commit: str
    """The head of the branch that the catalog shows now."""
    tables: Sequence[SyncedTable] = ()
    """The changes."""
    unchanged: int = 0
    """The number of tables that the catalog had as they are."""
    refused: Sequence[Refusal] = ()
    """The tables that were left as they are, each with the reason."""
    later: Sequence[str] = ()
    """The names of tables that a sync of a later commit has written."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Datasets that are no tables, by path, with their formats."""
    unused_names: Sequence[str] = ()
    """Paths for which a name was chosen, and at which there is no table."""

    def check(self) -> None:
        """Raise TablesRefused if a table was refused."""
        if self.refused:
            lines = "".join(f"\n- {each.reason}" for each in self.refused)
            raise TablesRefused(f"these tables are not registered in {self.schema!r}, or not as they are:{lines}")


@dataclass(frozen=True, slots=True)
class _Step:
    """A change, and the definition that it writes."""

    change: Change
    row: SyncedTable
    definition: TableDefinition | None = None


def sync_branch(
    lake: Lake,
    catalog: Catalog,
    schema: str,
    *,
    branch: str = "main",
    names: Mapping[str, str] | None = None,
    location: str | None = None,
    moved: bool = False,
    dry_run: bool = False,
) -> Synced:
    """Make a schema of a catalog show the tables of a branch, and forget those that it no longer has.

    Only tables that this lake registered are changed. No file is deleted. A sync that was interrupted is completed by
    the next one, and several may run at once.

    Args:
        lake: The lake.
        catalog: The catalog.
        schema: The schema or database. It is created if it does not exist.
        branch: The branch. Only main has folders that other engines read.
        names: Names of tables in the catalog, by path, in place of those that follow from the paths.
        location: The lake's URL as the readers of the catalog open it, such as `s3a://bucket/lake`.
        moved: Whether tables of this lake at other locations, or of commits that it does not have, are its own.
        dry_run: Whether to return what would be done, and do nothing.

    Returns:
        What was done. Tables that cannot be registered are in `refused`; the others are registered nevertheless.

    Raises:
        BranchNotReadable: The branch has no folders that other engines read.
        RefNotFound: There is no such branch.
        CatalogUnavailable: The catalog gives no final answer. What was done stays.
        CatalogRefused: The catalog refuses to list what it has, or to create the schema.
        InvalidTableName: The schema cannot have this name.
        InvalidUrl: The `location` is no URL, or holds credentials.
        CatalogChanged: Others changed the catalog at each try.
        Diverged: What is published cannot be checked out. `lake adopt` brings in what another writer has committed.
    """
    check_readable(lake, branch)
    check_schema_name(schema, catalog.longest_name, folds_case=catalog.folds_case)
    root = lake.url.rstrip("/") if location is None else _checked_location(location)
    sync = _Sync(lake, catalog, schema, branch, dict(names or {}), root, moved)
    if dry_run:
        return sync.look()
    for _ in range(_ROUNDS):
        synced = sync.run()
        if not synced.tables or lake.list_branches().get(branch) == synced.commit:
            break
    return replace(synced, tables=tuple(sync.synced))


def sync_branches(
    lake: Lake,
    catalog: Catalog,
    schema: str,
    *,
    names: Mapping[str, str] | None = None,
    location: str | None = None,
    moved: bool = False,
    dry_run: bool = False,
) -> list[Synced]:
    """Sync every branch to a schema of its own: main to `schema`, and `dev` to `<schema>_dev`.

    A branch whose tables have no folders that other engines read is refused by its name in the result.

    Arguments and errors are those of `sync_branch`.
    """
    main = lake.repository.format.branch
    results = []
    for branch, commit in sorted(lake.list_branches().items(), key=lambda each: each[0] != main):
        if branch == main:
            results.append(
                sync_branch(
                    lake, catalog, schema, branch=main, names=names, location=location, moved=moved, dry_run=dry_run
                )
            )
            continue
        name = schema_name(schema, branch, catalog.longest_name)
        try:
            check_readable(lake, branch)
        except BranchNotReadable as error:
            results.append(Synced(branch, name, commit, refused=[Refusal(branch, str(error))]))
    return results


def check_readable(lake: Lake, branch: str) -> None:
    """Check that the tables of a branch have folders that other engines read. Raises BranchNotReadable, RefNotFound."""
    lake.repository.refs().branch(branch)
    main = lake.repository.format.branch
    if branch != main:
        raise BranchNotReadable(
            f"the tables of the branch {branch!r} have no folders that other engines read, only those of {main!r} do: "
            f"merge it into {main!r}, read it by lake:// URLs, or clone its tables into folders of their own"
        )


def _checked_location(location: str) -> str:
    """Return a URL of the lake for others. Raises InvalidUrl, CredentialsInUrl."""
    if _PASSWORD.search(location):
        raise CredentialsInUrl("the location must not hold credentials: everybody who reads the catalog would see them")
    if ":/" not in location and not location.startswith("/"):
        raise InvalidUrl(f"the location {location!r} is no URL: write it as s3a://bucket/lake")
    return location.rstrip("/")


class _Sync:
    """A sync of a branch to a schema."""

    def __init__(
        self,
        lake: Lake,
        catalog: Catalog,
        schema: str,
        branch: str,
        names: Mapping[str, str],
        root: str,
        moved: bool,
    ) -> None:
        self._lake, self._catalog, self._schema, self._branch = lake, catalog, schema, branch
        self._source = Source(lake.id, branch, names, catalog.longest_name, root, moved)
        self.synced: list[SyncedTable] = []
        """The changes that were made."""

    def look(self) -> Synced:
        """Return what a sync would do now."""
        return self._prepare()[0]

    def run(self) -> Synced:
        """Sync the head of the branch. Read everything again for as long as others change the same tables."""
        if self._lake.status().pending_checkout:
            self._lake.maintenance.checkout()
        changed = ""
        for tries in range(1, _TRIES + 1):
            synced, steps, has_schema = self._prepare()
            try:
                if steps and not has_schema:
                    self._catalog.create_schema(self._schema)
                refused = [refusal for step in steps if (refusal := self._apply(step)) is not None]
                rows = [step.row for step in steps if step.row.path not in {refusal.name for refusal in refused}]
                return replace(synced, tables=rows, refused=[*synced.refused, *refused])
            except TableChanged as error:
                changed = str(error)
                _BACKOFF.wait(tries)
            except CatalogUnavailable as error:
                raise CatalogUnavailable(f"{error} ({count_of(len(self.synced), 'change')} made before)") from None
        raise CatalogChanged(
            f"others changed {changed!r} in {self._schema!r} at each of {_TRIES} tries, or it is there and you may not "
            "see it: run the sync again later, or choose another name by --name"
        )

    def _apply(self, step: _Step) -> Refusal | None:
        """Make a change. Return a refusal if the catalog refuses this table."""
        try:
            match step.change, step.definition:
                case CreateTable(), TableDefinition() as definition:
                    self._catalog.create(self._schema, definition)
                case UpdateTable(current=current), TableDefinition() as definition:
                    self._catalog.update(self._schema, current, definition)
                case DropTable(current=current), _:
                    self._catalog.drop(self._schema, current)
        except CatalogRefused as error:
            return Refusal(step.row.path, f"{step.row.path}: {error}")
        self.synced.append(step.row)
        return None

    def _prepare(self) -> tuple[Synced, list[_Step], bool]:
        """Return what a sync does now, and whether the schema exists."""
        registered = self._catalog.tables(self._schema)
        refs = self._lake.repository.refs()  # after the catalog: the commits that it records are published
        head = refs.commit(refs.branch(self._branch))
        state = self._lake.repository.commit_state(head, self._branch)
        tables, left_out = self._tables(state)
        plan = plan_sync(tables, registered or {}, self._source, _Positions(refs, head).position)
        steps, refused = self._steps(plan, state, head.id)
        synced = Synced(
            self._branch,
            self._schema,
            head.id,
            tables=tuple(step.row for step in steps),
            unchanged=plan.unchanged + len(plan.changes) - len(steps) - len(refused),
            refused=[*plan.refused, *refused],
            later=plan.later,
            left_out=left_out,
            unused_names=sorted(self._source.names.keys() - {table.path for table in tables}),
        )
        return synced, steps, registered is not None

    def _tables(self, state: StateStore) -> tuple[list[LakeTable], dict[str, str]]:
        """Return the tables of a commit, and the formats of its other datasets."""
        datasets = state.datasets()
        records = [record for record in datasets.values() if record.format == TABULAR]
        views = [state.dataset(record.path) for record in records]
        versions = state.root.gather(*(partial(view.format.version, view) for view in views)) if views else ()
        tables = [
            LakeTable(record.path, record.id, version, f"{self._source.root}/{record.path}")
            for record, version in zip(records, versions, strict=True)
            if version is not None
        ]
        return tables, {path: record.format for path, record in datasets.items() if record.format != TABULAR}

    def _steps(self, plan: Plan, state: StateStore, head: str) -> tuple[list[_Step], list[Refusal]]:
        """Read the definitions of the tables to write. Return the steps, and the tables that cannot be written."""
        written = [change for change in plan.changes if isinstance(change, CreateTable | UpdateTable)]
        calls = (partial(self._definition, change, state, head) for change in written)
        definitions = self._lake.repository.root.gather(*calls) if written else ()
        steps: list[_Step] = []
        refused: list[Refusal] = []
        for change, definition in zip(written, definitions, strict=True):
            path = change.table.path
            if isinstance(definition, Refusal):
                refused.append(definition)
                continue
            try:
                self._catalog.check(definition)
            except UnsupportedColumn as error:
                refused.append(Refusal(path, f"{path}: {error}"))
                continue
            if isinstance(change, CreateTable):
                steps.append(_Step(change, SyncedTable("create", change.name, path), definition))
            elif changed := _changed(change.current, definition, in_place=self._catalog.updates_in_place):
                steps.append(_Step(change, SyncedTable("update", change.name, path, changed), definition))
        for drop in plan.changes:
            if isinstance(drop, DropTable):
                path = "" if drop.current.origin is None else drop.current.origin.path
                steps.append(_Step(drop, SyncedTable("drop", drop.name, path)))
        return steps, refused

    def _definition(self, change: CreateTable | UpdateTable, state: StateStore, head: str) -> TableDefinition | Refusal:
        """Read the definition of a table. Return a refusal for a table that this package cannot read."""
        table = change.table
        try:
            metadata = state.delta(table.path).metadata
        except DeltaError as error:
            return Refusal(table.path, f"{table.path} cannot be read: {error}")
        schema, description = catalog_schema(metadata), metadata.description or None
        origin = Origin(
            lake=self._source.lake,
            branch=self._branch,
            path=table.path,
            dataset=table.dataset,
            commit=head,
            version=table.version,
            fingerprint=fingerprint(table.location, schema, metadata.partition_columns, description),
        )
        return TableDefinition(change.name, table.location, schema, metadata.partition_columns, description, origin)


def _changed(current: RegisteredTable, definition: TableDefinition, *, in_place: bool) -> tuple[str, ...]:
    """Return what an update changes. Empty if the catalog need not be written."""
    before, after = current.origin, definition.origin
    assert before is not None, "only tables of a lake are updated"
    changed = []
    if before.path != after.path:
        changed.append("path")
    if not is_at(current.location, definition.location):
        changed.append("location")
    if before.fingerprint != after.fingerprint and not changed:
        changed.append("schema")
    if not changed and in_place:
        changed.append("version")
    return tuple(changed)


class _Positions:
    """Where commits are, seen from a head."""

    def __init__(self, refs: RefsState, head: Commit) -> None:
        self._links, self._head = CommitLinks(refs), head
        self._known: dict[str, Position] = {}

    def position(self, commit: str) -> Position:
        """Return where a commit is."""
        if commit not in self._known:
            if self._is_reached(self._head.id, commit):
                self._known[commit] = Position.REACHED
            else:
                is_later = self._is_reached(commit, self._head.id)
                self._known[commit] = Position.LATER if is_later else Position.UNKNOWN
        return self._known[commit]

    def _is_reached(self, start: str, commit: str) -> bool:
        """Return whether a commit is another one, or one of its ancestors."""
        target = self._links.get(commit)
        if target is None:
            return False
        waiting, seen = [start], {start}
        while waiting:
            if (id := waiting.pop()) == commit:
                return True
            link = self._links.get(id)
            if link is None or link.generation <= target.generation:
                continue
            parents = [parent for parent in link.parents if parent not in seen]
            seen.update(parents)
            waiting.extend(parents)
        return False
