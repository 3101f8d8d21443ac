"""The commits between two states of a table's log, and their summary when they become one version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.commit_file import parse_run, read_commit_info
from lake_core.delta.conflict import Reads
from lake_core.delta.copied_file import ORIGIN_TAG, Copies
from lake_core.delta.errors import MixedRearrangement
from lake_core.delta.log_segment import commit_key, list_log
from lake_core.delta.read_set import read_set_of
from lake_core.delta.replay import last_of_each
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lake_core.delta.action import Metadata
    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate
    from lake_core.store import ObjectStore

ABSORBED_FIELD: Final = "lakeAbsorbed"
"""The field of `commitInfo` for the data files that several commits added and removed before they became this one.

The log does not show them otherwise, though other branches may have them.
"""

WRITES_FIELD: Final = "lakeWrites"
"""The field of `commitInfo` for how many writes became this version, where a lake made it of a session's commits."""
_DROP: Final = "DROP TABLE"


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits that lead from one state of a table to another, if the log of one continues that of the other."""

    bodies: Sequence[tuple[int, bytes]]
    """The commits' versions and bytes, oldest first."""
    continues: bool
    """Whether the later log contains the whole earlier one; otherwise the commits are those after the fork."""

    @classmethod
    def between(cls, before: Snapshot | None, after: Snapshot) -> CommitRange:
        """Read the commits after the last one that two states share; all of `after` if there is no state before."""
        fork = -1 if before is None else shared_version(before, after)
        # An imported log may not begin at version 0.
        versions = range(fork + 1, after.version + 1) if before is not None else sorted(list_log(after.store).commits)
        bodies = after.store.get_many([commit_key(version) for version in versions])
        return cls(list(zip(versions, bodies, strict=True)), before is None or fork == before.version)

    def since_drop(self) -> CommitRange:
        """Return the commits after the last one that dropped the table."""
        drops = [
            number
            for number, (version, body) in enumerate(self.bodies)
            if _DROP.encode() in body and read_commit_info(version, body).get("operation") == _DROP
        ]
        return CommitRange(self.bodies[drops[-1] + 1 :], self.continues) if drops else self

    def writes(self) -> int | None:
        """Return how many writes the commits are. One that only creates the table is none. None if that is unknown."""
        total = 0
        for version, body in self.bodies:
            info = read_commit_info(version, body)
            recorded = info.get(WRITES_FIELD)
            if isinstance(recorded, int):
                total += recorded
            elif "lakeSession" in info or ABSORBED_FIELD in info:
                return None
            elif info.get("operation") != "CREATE TABLE" or rearranges(version, body) is not None or b'"txn"' in body:
                total += 1
        return total

    def added(self) -> pa.Array:
        """Return the paths of all files that the commits added."""
        if not self.bodies:
            return pa.nulls(0, pa.string())
        return parse_run(self.bodies, (), None).adds["path"].combine_chunks()

    def copies(self) -> Copies:
        """Return the files that they added as copies of others."""
        bodies = [(version, body) for version, body in self.bodies if ORIGIN_TAG.encode() in body]
        return Copies.among(*([parse_run(bodies, (), None).adds] if bodies else []))

    def recorded_as_absorbed(self) -> list[str]:
        """Return the paths that the commits name as absorbed."""
        paths: list[str] = []
        for version, body in self.bodies:
            if ABSORBED_FIELD.encode() in body:
                recorded = read_commit_info(version, body).get(ABSORBED_FIELD)
                paths += [str(path) for path in recorded] if isinstance(recorded, list) else []
        return paths

    def absorbed(self) -> list[str]:
        """Return the paths that are lost where the commits become one.

        These are the files that they added and removed again, and those that they name as absorbed.
        """
        recorded = self.recorded_as_absorbed()
        if len(self.bodies) < 2:
            return recorded
        run = parse_run(self.bodies, (), None)
        adds, removes = (actions.take(last_of_each(actions["path"])) for actions in (run.adds, run.removes))
        added = pc.index_in(removes["path"], value_set=adds["path"])
        removes, commits = removes.filter(added.is_valid()), adds["commit"].take(added.drop_null())
        gone = removes.filter(pc.greater(removes["commit"], commits))["path"]
        return list(dict.fromkeys([*recorded, *gone.to_pylist()]))

    def replaced(self, paths: AbstractSet[str], received: AbstractSet[str]) -> list[str]:
        """Return those of the paths that were removed by a commit whose own files were not all received."""
        replaced = []
        for version, body in self.bodies:
            run = parse_run([(version, body)], (), None)
            recorded = CommitRange([(version, body)], continues=True).recorded_as_absorbed()
            gone = paths & {*run.removes["path"].to_pylist(), *recorded}
            if gone and not received >= set(run.adds["path"].to_pylist()):
                replaced += sorted(gone)
        return replaced

    def reads(self, metadata: Metadata) -> Sequence[Reads | Predicate]:
        """Return the reads of the commits."""
        reads: list[Reads | Predicate] = []
        for version, body in self.bodies:
            for read in read_set_of(read_commit_info(version, body), metadata):
                if read is Reads.WHOLE_TABLE:
                    return [read]
                reads.append(read)
        return reads

    def operation(self) -> str:
        """Return the operation of the commit that changed most."""
        names = [str(read_commit_info(version, body).get("operation", "WRITE")) for version, body in self.bodies]
        telling = [name for name in names if name not in ("CREATE TABLE", "SET TRANSACTION")] or names
        return telling[0] if len(set(telling)) == 1 else "WRITE"

    def parameters(self) -> Mapping[str, str]:
        """Return the parameters of the commit, or none if there are several commits."""
        if len(self.bodies) != 1:
            return {}
        parameters = read_commit_info(*self.bodies[0]).get("operationParameters")
        return {str(key): str(value) for key, value in parameters.items()} if isinstance(parameters, dict) else {}

    def metrics(self) -> Mapping[str, int]:
        """Add up the commits' metrics."""
        total: dict[str, int] = {}
        for version, body in self.bodies:
            metrics = read_commit_info(version, body).get("operationMetrics")
            for name, text in metrics.items() if isinstance(metrics, dict) else ():
                if str(text).isascii() and str(text).isdigit():
                    total[name] = total.get(name, 0) + int(text)
        return total

    def only_rearranges(self) -> bool:
        """Return whether the commits only rearrange rows."""
        return self._kinds() == {True}

    def is_mixed(self) -> bool:
        """Return whether some of the commits rearrange rows and others change them."""
        return len(self._kinds()) > 1

    def check_not_mixed(self) -> None:
        """Raise MixedRearrangement if some of the commits rearrange rows and others change them."""
        if self.is_mixed():
            raise MixedRearrangement(
                "the session both rearranged this table (optimize, Z-order, ids for the rows that it had) and changed "
                "its rows, and in one version its new rows could not be distinguished: "
                "publish the changes first, and do the other in another session"
            )

    def _kinds(self) -> set[bool]:
        """Return whether commits rearrange rows, for those that touch files."""
        return {kind for version, body in self.bodies if (kind := rearranges(version, body)) is not None}


def log_etag(store: ObjectStore, version: int) -> str | None:
    """Return the ETag of a version's commit, None if it is missing.

    Two logs with equal ETags are equal up to that version.
    """
    try:
        return store.head(commit_key(version)).etag
    except NotFound:
        return None


def shared_version(before: Snapshot, after: Snapshot) -> int:
    """Return the last version that two logs share, -1 for none."""
    low, high = -1, min(before.version, after.version)
    middle = high  # first, as one log mostly continues the other
    while low < high:
        # Neither log has the versions that were cleaned up before the table was imported.
        if log_etag(before.store, middle) == log_etag(after.store, middle):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


def rearranges(version: int, data: bytes) -> bool | None:
    """Return whether a commit rearranges rows without changing them; None for one that touches no file."""
    if b'"dataChange":false' in data or b'"dataChange": false' in data:
        run = parse_run([(version, data)], (), None)
        if not any(flag is not False for table in (run.adds, run.removes) for flag in table["dataChange"].to_pylist()):
            return True
    return False if b'{"add":' in data or b'{"remove":' in data or b'"add"' in data or b'"remove"' in data else None
