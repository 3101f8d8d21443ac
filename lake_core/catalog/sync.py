"""Sync a branch of a lake to a catalog.

A sync reads what is registered, then the head of the branch, and changes what differs. Each change is on condition
that the table is still as it was read, as far as the catalog can say that: if not, everything is read again. As the
head is read after the catalog, what is written is never older than what it replaces. At the end the head is read once
more: if it has moved, the sync follows, so that one which was held up leaves nothing outdated. Nothing is written to
the lake but the checkout of what is published, if a publisher failed before it, and the logs of `branch_tables`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lake_core.backoff import Backoff
from lake_core.catalog.branch_tables import BranchTables, published_branches
from lake_core.catalog.catalog import TableChanged
from lake_core.catalog.definition import Origin, TableDefinition, catalog_schema, fingerprint, is_at
from lake_core.catalog.errors import (
    CatalogChanged,
    CatalogRefused,
    CatalogUnavailable,
    InvalidTableName,
    UnsupportedColumn,
)
from lake_core.catalog.names import check_schema_name, schema_name
from lake_core.catalog.plan import CreateTable, DropTable, LakeTable, Position, Refusal, Source, UpdateTable, plan_sync
from lake_core.catalog.positions import Positions
from lake_core.catalog.result import Synced, SyncedTable
from lake_core.delta.errors import DeltaError
from lake_core.errors import CredentialsInUrl, InvalidUrl
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.catalog.catalog import Catalog
    from lake_core.catalog.definition import RegisteredTable
    from lake_core.catalog.plan import Change, Plan
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

    Only tables that this lake registered are changed. No data file is deleted. A sync that was interrupted is completed
    by the next one, and several may run at once. If the branch was deleted, its tables are dropped from the schema.

    Args:
        lake: The lake.
        catalog: The catalog.
        schema: The schema or database. It is created if it does not exist.
        branch: The branch. Main is registered where it is. For another one the sync writes a log for each table, below
            `_lake/branches`, that engines read.
        names: Names of tables in the catalog, by path, in place of those that follow from the paths.
        location: The lake's URL as the readers of the catalog open it, such as `s3a://bucket/lake`. The logs of other
            branches name the data files below it as well.
        moved: Whether tables of this lake at other locations, or of commits that it does not have, are its own.
        dry_run: Whether to return what would be done, and do nothing. Whether tables can be cloned is not tried.

    Returns:
        What was done. Tables that cannot be registered are in `refused`; the others are registered nevertheless.

    Raises:
        RefNotFound: There is no such branch, and no table of it in the schema.
        CatalogUnavailable: The catalog gives no final answer. What was done stays.
        CatalogRefused: The catalog refuses to list what it has, or to create the schema.
        InvalidTableName: The schema cannot have this name.
        InvalidUrl: The `location` is no URL, or holds credentials.
        CatalogChanged: Others changed the catalog, or the log of a table of the branch, at each try.
        Diverged: What is published cannot be checked out. `lake adopt` brings in what another writer has committed.
    """
    check_schema_name(schema, catalog.longest_name, folds_case=catalog.folds_case)
    root = lake.url.rstrip("/") if location is None else _checked_location(location)
    published = None
    if branch != lake.repository.format.branch:
        published = BranchTables(lake.repository, branch, root)
        root = published.url
    sync = _Sync(lake, catalog, schema, branch, dict(names or {}), root, moved, published)
    if dry_run:
        return sync.look()
    for _ in range(_ROUNDS):
        synced = sync.run()
        if not (synced.tables or sync.wrote) or lake.list_branches().get(branch, "") == synced.commit:
            break
    if published is not None and not synced.commit and not synced.refused:
        published.leave(catalog.kind, schema)
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

    The tables of branches that were deleted are dropped, from the schemas that such a sync made. A branch whose name no
    schema can have is refused by its name in the result.

    Arguments and errors are those of `sync_branch`.
    """
    main = lake.repository.format.branch
    branches = lake.list_branches()
    root = lake.url.rstrip("/") if location is None else _checked_location(location)
    gone = [name for name in published_branches(lake.repository.root) if name not in branches]
    results = []
    for branch in sorted([*branches, *gone], key=lambda each: (each != main, each)):
        try:
            name = schema if branch == main else schema_name(schema, branch, catalog.longest_name)
        except InvalidTableName as error:
            results.append(Synced(branch, schema, branches.get(branch, ""), refused=[Refusal(branch, str(error))]))
            continue
        if branch in gone:
            published = BranchTables(lake.repository, branch, root)
            if not published.has_joined(catalog.kind, name):
                if not dry_run:
                    published.leave(catalog.kind, name)  # a removal that was interrupted
                continue
        results.append(
            sync_branch(
                lake, catalog, name, branch=branch, names=names, location=location, moved=moved, dry_run=dry_run
            )
        )
    return results


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
        published: BranchTables | None,
    ) -> None:
        self._lake, self._catalog, self._schema, self._branch = lake, catalog, schema, branch
        self._published = published
        self._source = Source(lake.id, branch, names, catalog.longest_name, root, moved)
        self.synced: list[SyncedTable] = []
        """The changes that were made."""
        self.wrote = False
        """Whether logs of the branch were behind the state that was synced last, or are ahead of it."""

    def look(self) -> Synced:
        """Return what a sync would do now."""
        return self._prepare()[0]

    def run(self) -> Synced:
        """Sync the head of the branch. Read everything again for as long as others change the same tables."""
        if self._published is None and self._lake.status().pending_checkout:
            self._lake.maintenance.checkout()
        changed, self.wrote = "", False
        for tries in range(1, _TRIES + 1):
            synced, steps, has_schema = self._prepare(publish=True)
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

    def _prepare(self, *, publish: bool = False) -> tuple[Synced, list[_Step], bool]:
        """Return what a sync does now, and whether the schema exists. `publish`: the logs of another branch, too."""
        registered = self._catalog.tables(self._schema)
        refs = self._lake.repository.refs()  # after the catalog: the commits that it records are published
        if self._is_gone(refs, registered or {}):
            plan = plan_sync([], registered or {}, self._source, lambda _: Position.REACHED)
            return self._of_drops(plan), _drops(plan), registered is not None
        head = refs.commit(refs.branch(self._branch))
        state = self._lake.repository.commit_state(head, self._branch)
        tables, left_out = self._tables(state)
        positions = Positions(refs, head, may_differ=self._published is not None)
        plan = plan_sync(tables, registered or {}, self._source, positions.position)
        steps, refused = self._steps(plan, state, head.id)
        unchanged = plan.unchanged + len(plan.changes) - len(steps) - len(refused)
        if publish and self._published is not None:
            failed = self._publish(self._published, refs, state, tables, plan)
            written = {step.row.path for step in steps} | {each.name for each in refused}
            unchanged -= len(failed.keys() - written)
            steps = [step for step in steps if step.definition is None or step.row.path not in failed]
            refused = [*(each for each in refused if each.name not in failed), *failed.values()]
        synced = Synced(
            self._branch,
            self._schema,
            head.id,
            tables=tuple(step.row for step in steps),
            unchanged=unchanged,
            refused=[*plan.refused, *refused],
            later=plan.later,
            left_out=left_out,
            unused_names=sorted(self._source.names.keys() - {table.path for table in tables}),
        )
        return synced, steps, registered is not None

    def _is_gone(self, refs: RefsState, registered: Mapping[str, RegisteredTable]) -> bool:
        """Return whether the branch was deleted, and the schema may have shown it."""
        if self._published is None or self._branch in refs.branches():
            return False
        origins = (table.origin for table in registered.values() if table.origin is not None)
        is_shown = any((origin.lake, origin.branch) == (self._lake.id, self._branch) for origin in origins)
        return is_shown or self._published.has_joined(self._catalog.kind, self._schema)

    def _of_drops(self, plan: Plan) -> Synced:
        """Return what a sync of a branch that was deleted does."""
        rows = tuple(step.row for step in _drops(plan))
        return Synced(self._branch, self._schema, "", tables=rows, refused=plan.refused)

    def _publish(
        self, published: BranchTables, refs: RefsState, state: StateStore, tables: Sequence[LakeTable], plan: Plan
    ) -> dict[str, Refusal]:
        """Write the logs of the branch's tables, and of those to drop. Return a refusal for each that has none."""
        published.join(self._catalog.kind, self._schema)
        paths = sorted({table.path for table in tables} | {step.row.path for step in _drops(plan)})

        def publish(path: str) -> bool | Refusal:
            try:
                return published.publish(path, refs, state, moved=self._source.moved)
            except DeltaError as error:
                return Refusal(path, f"{path} cannot be shown: {error}")

        results = dict(zip(paths, state.root.gather(*(partial(publish, path) for path in paths)), strict=True))
        self.wrote |= any(result is True for result in results.values())
        return {path: result for path, result in results.items() if isinstance(result, Refusal)}

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
        return [*steps, *_drops(plan)], refused

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


def _drops(plan: Plan) -> list[_Step]:
    """Return the steps that drop tables."""
    drops = [change for change in plan.changes if isinstance(change, DropTable)]
    paths = ["" if drop.current.origin is None else drop.current.origin.path for drop in drops]
    return [_Step(drop, SyncedTable("drop", drop.name, path)) for drop, path in zip(drops, paths, strict=True)]


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
