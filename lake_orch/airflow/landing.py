"""Landing zones: files that arrive in a folder or prefix, each in its dataset once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher, BaseOperator
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from lake_orch.airflow.dataset import LakeDataset
from lake_orch.airflow.hook import DEFAULT_CONNECTION, LakeHook
from lake_orch.airflow.links import LINKS, set_links

if TYPE_CHECKING:
    from airflow.sdk import Context

    from lake_orch.assets.landing.batch import LandedBatch
    from lake_orch.assets.landing.ledger import Ledger

_log = logging.getLogger(__name__)


class LandingOperator(BaseOperator):
    """Appends the new files of a landing zone to a dataset, in a session: one batch after another, each once.

    The batches have numbers, which are their transaction identifiers. So a batch that two runs land is there once, and
    they are landed in order, by one task. What has landed stays when the task is cleared: files are not landed again.
    """

    operator_extra_links = LINKS
    shallow_copy_attrs = ("read",)

    def __init__(
        self,
        *,
        name: str,
        url: str,
        into: LakeDataset,
        pattern: str = "*",
        settle: timedelta = timedelta(0),
        storage_options: Mapping[str, Any] | None = None,
        read: Callable[[LandedBatch], Any] | None = None,
        max_files: int = 1000,
        most_batches: int = 100,
        moved_from: str | None = None,
        assume_landed: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a task that lands files.

        Args:
            name: The permanent name of the zone.
            url: The folder or prefix, on any store that fsspec supports.
            into: The table, the pool, or a dataset of another format in which files land.
            pattern: The files to land.
            settle: How long a file must not have changed before it lands.
            storage_options: Options of fsspec. A value may be `{"env": name}`, for an environment variable.
            read: Returns the rows of a batch. By default, the extension of the files decides how they are read.
            max_files: The most files of a batch.
            most_batches: The most batches of one run. The next run lands the rest.
            moved_from: The URL that the folder had before, if it has moved.
            assume_landed: The last batch that is in a dataset which has forgotten that. An error asks for it.
            kwargs: Options of the operator.
        """
        super().__init__(**kwargs)
        self.zone = _zone_settings(name, url, pattern, settle, storage_options, max_files, moved_from, assume_landed)
        self.into, self.read, self.most_batches = into, read, most_batches

    def execute(self, context: Context) -> dict[str, Any]:
        """Land what is new, and return how many batches, files and rows that are.

        Raises:
            InvalidDefinition: A setting of the dataset is invalid or has no effect, or no files land in its format.
        """
        from lake_orch.airflow.errors import without_retry
        from lake_orch.airflow.task_run import TaskRun
        from lake_orch.assets.asset_format import AssetOutput, asset_format
        from lake_orch.assets.landing.ledger import Destination, Landed

        with without_retry():
            format, settings = asset_format(self.into.format, {}), self.into.settings()
            producer = f"landing zone {self.zone['name']!r}"
            output = AssetOutput(producer=producer, asset_key=None, metadata=settings)
            format.check(output)
            landing = format.landing(output)
            run = TaskRun.writing_to(self.into.path, self.into.connection, self.into.branch)
            if run.own is not None:
                raise ValueError("files land in a session: put the task into a lake_session")
            # Each try lands what is not there yet. So nothing of an earlier one is to be taken out.
            workspace = run.begin(lasting=f"{self.zone['name']} {run.ti.id}")
            set_links(self, run, workspace.writer.session, path=self.into.path)
            landed = {"batches": 0, "files": 0, "rows": 0}
            with workspace:
                ledger = _ledger(self.zone, self.into.connection)
                dataset = workspace.find(self.into.path, self.into.format)
                # What is only staged may never be published, so the ledger is not told of it.
                head, path = run.lake.at(run.branch), self.into.path
                published = (
                    ledger.landed_in(landing, head.open(path), run.branch) if path in head.datasets() else Landed()
                )
                staged = 0 if dataset is None else landing.last_batch(dataset, ledger.zone.app_id)
                last = published.last if staged is None else staged
                for batch in _new_batches(ledger, last, self.most_batches):
                    if dataset is not None and landing.retention(dataset) is not None:
                        destination = Destination(path, run.branch, landing.identity(dataset))
                        ledger.note_begun(destination, batch.number)
                    value = None if self.read is None else self.read(batch)
                    result = landing.write(batch, value).to(workspace)
                    landed["batches"] += 1
                    landed["files"] += len(batch.files)
                    landed["rows"] += landing.row_count(result) or 0
                    _log.info("batch %s of %s: %s files", batch.number, ledger.zone.name, len(batch.files))
        return landed


def _new_batches(ledger: Ledger, landed: int, most: int) -> list[LandedBatch]:
    """Group new files into batches, and return those that have not landed yet, in order."""
    from lake_orch.assets.landing.batch import LandedBatch

    diff = ledger.diff(ledger.zone.files(), landed)
    for file in diff.rewritten:
        _log.warning("%s was rewritten after it had landed: the first version has landed", file.key)
    while ledger.make_batch(diff.new) is not None:  # files that are in a batch already are left out
        pass
    return [LandedBatch.begin(ledger, record.number) for record in ledger.batches(after=landed)[:most]]


def landing_asset(
    name: str,
    url: str,
    *,
    connection: str = DEFAULT_CONNECTION,
    pattern: str = "*",
    settle: timedelta = timedelta(0),
    storage_options: Mapping[str, Any] | None = None,
    poll_seconds: float = 30.0,
    moved_from: str | None = None,
) -> Asset:
    """Return an asset that has an event when new files have arrived in a landing zone: a DAG may be scheduled on it.

    Args:
        name: The permanent name of the zone, as of its `LandingOperator`.
        url: The folder or prefix.
        connection: The connection of the lake beside which the ledger of the zone lies.
        pattern: The files to land.
        settle: How long a file must not have changed before it lands.
        storage_options: Options of fsspec. A value may be `{"env": name}`: what is given here is in Airflow's database.
        poll_seconds: The time between two looks at the zone.
        moved_from: The URL that the folder had before, if it has moved.
    """
    zone = _zone_settings(name, url, pattern, settle, storage_options, 1000, moved_from)
    trigger = LandingTrigger(zone=zone, connection=connection, poll_seconds=poll_seconds)
    return Asset(name=f"landing/{name}", watchers=[AssetWatcher(name=f"files of {name}", trigger=trigger)])


class LandingTrigger(BaseEventTrigger):
    """Has an event when files are in a landing zone that no batch has."""

    def __init__(self, *, zone: dict[str, Any], connection: str, poll_seconds: float) -> None:
        super().__init__()
        self.zone, self.connection, self.poll_seconds = zone, connection, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments from which the triggerer makes it again."""
        arguments = {"zone": self.zone, "connection": self.connection, "poll_seconds": self.poll_seconds}
        return "lake_orch.airflow.landing.LandingTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event whenever other files are new than at the last look."""
        seen: frozenset[str] = frozenset()
        while True:
            new = await asyncio.to_thread(self._new)
            if new - seen:
                yield TriggerEvent({"zone": self.zone["name"], "files": len(new)})
            seen = new
            await asyncio.sleep(self.poll_seconds)

    def _new(self) -> frozenset[str]:
        ledger = _ledger(self.zone, self.connection)
        return frozenset(file.key for file in ledger.diff(ledger.zone.files(), ledger.landed).new)


def _zone_settings(
    name: str,
    url: str,
    pattern: str,
    settle: timedelta,
    storage_options: Mapping[str, Any] | None,
    max_files: int,
    moved_from: str | None = None,
    assume_landed: int | None = None,
) -> dict[str, Any]:
    """Return the settings of a zone as JSON has them."""
    return {
        "name": name,
        "url": url,
        "pattern": pattern,
        "settle": settle.total_seconds(),
        "storage_options": dict(storage_options or {}),
        "max_files": max_files,
        "moved_from": moved_from,
        "assume_landed": assume_landed,
    }


def _ledger(settings: Mapping[str, Any], connection: str) -> Ledger:
    """Return the ledger of a zone, which lies beside the lake."""
    from lake_core.store import open_store
    from lake_orch.assets.landing.ledger import Ledger
    from lake_orch.assets.landing.zone import LandingZone

    zone = LandingZone(**{**settings, "settle": timedelta(seconds=settings["settle"])})
    place = LakeHook(connection).place()
    return Ledger.of(zone, open_store(place.root, storage_options=dict(place.storage_options) or None))
