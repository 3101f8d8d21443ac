"""Repositories of version 2 that icechunk 2.3 wrote read as icechunk reads them, at every commit."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import zarr

from lake_core.icechunk import Repository, RepoStatus, Session, UpdateType
from lake_core.icechunk.config_file import decode_config_v2, encode_config_v2
from lake_core.icechunk.errors import IcechunkError, RefNotFound
from lake_core.icechunk.flexbuffer import decode_flexbuffer
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.manifest import ReferenceKind, VirtualChunk
from lake_core.icechunk.repo_info_file import decode_repo_info, encode_repo_info
from lake_core.icechunk.snapshot import ArrayNode
from lake_core.icechunk.update import UPDATE_TYPES
from lake_core.store import LocalStore
from tests.icechunk.cases import digest
from tests.skip_rule import CASES as ALL_CASES
from tests.skip_rule import NO_CASES

CASES = ALL_CASES / "icechunk2"
CONTAINER = "file:///ICECHUNK2_CASE/virtual/"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=NO_CASES)

NAMES = sorted(path.name.removesuffix(".expected.json") for path in CASES.glob("*.expected.json"))
SOUND = [name for name in NAMES if not name.startswith("bad-")]
each_case = pytest.mark.parametrize("name", SOUND)


def expected(name: str) -> dict[str, Any]:
    return dict(json.loads((CASES / f"{name}.expected.json").read_text("utf-8")))


def open_case(name: str) -> Repository:
    return Repository.open(
        CASES / name, authorize_virtual_chunk_access={CONTAINER: LocalStore(CASES / name / "virtual")}
    )


def micros(when: datetime | None) -> int:
    assert when is not None
    return round(when.timestamp() * 1e6)


@each_case
def test_branches_and_tags(name: str) -> None:
    repository, facts = open_case(name), expected(name)
    assert repository.spec_version == facts["spec_version"]
    assert {branch: repository.lookup_branch(branch) for branch in repository.list_branches()} == facts["branches"]
    assert {tag: repository.lookup_tag(tag) for tag in repository.list_tags()} == facts["tags"]
    for tag in facts["deleted_tags"]:
        with pytest.raises(RefNotFound, match="deleted"):
            repository.lookup_tag(tag)


def status(of: RepoStatus) -> dict[str, Any]:
    return {
        "availability": of.availability.value,
        "set_at": micros(of.set_at),
        "reason": of.limited_availability_reason,
    }


@each_case
def test_status_metadata_flags_and_configuration(name: str) -> None:
    repository, facts = open_case(name), expected(name)
    info = repository.assets.layout.info()
    assert status(repository.status) == facts["status"]
    assert repository.metadata == facts["metadata"]
    flags = {flag.id: flag.setting for flag in repository.feature_flags() if flag.setting is not None}
    unknown = {5: True} if 5 in (facts["enabled_feature_flags"] or ()) and 5 not in flags else {}
    assert sorted(number for number, setting in {**flags, **unknown}.items() if setting) == (
        facts["enabled_feature_flags"] or []
    )
    assert sorted(number for number, setting in flags.items() if not setting) == (facts["disabled_feature_flags"] or [])
    assert (None if info.config is None else decode_flexbuffer(info.config)) == facts["config"]
    assert (Repository.fetch_config(CASES / name) is None) == (facts["config"] is None)


@each_case
def test_a_configuration_is_written_as_it_was_read(name: str) -> None:
    config = open_case(name).assets.layout.info().config
    if config is not None:
        written = decode_flexbuffer(encode_config_v2(decode_config_v2(config, "repo")))
        assert _without_nulls(written) == _without_nulls(decode_flexbuffer(config))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


@each_case
def test_history(name: str) -> None:
    repository, facts = open_case(name), expected(name)
    assert {branch: [info.id for info in repository.ancestry(branch=branch)] for branch in facts["history"]} == facts[
        "history"
    ]


@each_case
def test_listed_snapshots(name: str) -> None:
    repository, facts = open_case(name), expected(name)
    assert {encode_id(each) for each in repository.assets.layout.info().snapshots} == facts["snapshots"].keys()
    for snapshot_id, listed in facts["snapshots"].items():
        info = repository.lookup_snapshot(snapshot_id)
        assert (info.parent_id, info.message, info.metadata) == (
            listed["parent"],
            listed["message"],
            listed["metadata"],
        )
        assert micros(info.written_at) == listed["flushed_at"]
        entry = repository.assets.layout.info().snapshots[repository._existing(snapshot_id)]
        assert [encode_id(each) for each in entry.pruned_logs] == listed.get("pruned_ancestor_tx_logs", [])


@each_case
def test_operations(name: str) -> None:
    log = list(open_case(name).ops_log())
    facts = expected(name)["ops_log"]
    assert [(type(update.kind).__name__, micros(update.updated_at)) for update in log] == [
        (each["type"], each["at"]) for each in facts
    ]
    for update, each in zip(log, facts, strict=True):
        for key, value in each.items():
            if key in ("type", "at"):
                continue
            attribute = {"previous": "previous_snap_id", "new": "new_snap_id", "frm": "from_version"}.get(key, key)
            attribute = {"to": "to_version"}.get(attribute, attribute)
            if key == "is_set":
                assert (update.kind.new_value is not None) == value  # type: ignore[attr-defined]
            elif key == "status":
                assert status(update.kind.status) == value  # type: ignore[attr-defined]
            else:
                assert (getattr(update.kind, attribute) or 0) == (value or 0), (each, key)


def test_the_kinds_of_updates_have_the_names_of_icechunk() -> None:
    assert [getattr(UpdateType, kind.__name__) for kind in UPDATE_TYPES] == list(UPDATE_TYPES)


@each_case
@pytest.mark.filterwarnings("ignore")
def test_nodes_and_values(name: str) -> None:
    repository = open_case(name)
    for snapshot_id, commit in expected(name)["commits"].items():
        session = repository.readonly_session(snapshot_id=snapshot_id)
        nodes = {path: session.node(path) for path in session.node_paths()}
        arrays = {path: node for path, node in nodes.items() if isinstance(node, ArrayNode)}
        assert sorted(arrays) == sorted(commit["arrays"])
        assert sorted(nodes.keys() - arrays.keys()) == sorted(commit["groups"])
        for path, facts in commit["arrays"].items():
            check_array(session, path, facts)
        if isinstance(commit["groups"], dict):
            for path, facts in commit["groups"].items():
                assert encode_id(session.node(path).node_id) == facts["id"]  # type: ignore[union-attr]


def check_array(session: Session, path: str, facts: Any) -> None:
    sha256 = facts.get("sha256") if isinstance(facts, dict) else facts
    node = session.array(path)
    if isinstance(facts, dict):
        assert encode_id(node.node_id) == facts["id"]
        assert list(node.shape) == facts["shape"]
        assert facts["num_chunks"] in (None, list(node.grid))  # None where the file is of version 1
        kinds = session.references(node).kind
        counts = {kind.name.lower(): int((kinds == kind).sum()) for kind in ReferenceKind}
        assert {kind: count for kind, count in counts.items() if count} == facts["refs"]
        manifests = [[encode_id(ref.manifest_id), [list(extent) for extent in ref.extents]] for ref in node.manifests]
        assert manifests == facts["manifests"]
        for key, location in facts.get("locations", {}).items():
            chunk = session.reference(node, tuple(map(int, key.split("/"))))
            assert isinstance(chunk, VirtualChunk)
            assert {each: getattr(chunk, each) for each in location} == location
    if node.chunk_runs is None:
        array = zarr.open_array(session.store, path=path.strip("/"), mode="r")
        if sha256 is not None:
            assert digest(array) == sha256, path
        if isinstance(facts, dict) and "error" not in json.dumps(facts.get("values")) and "values" in facts:
            values = np.array(facts["values"], array.dtype).reshape(array.shape)
            assert np.array_equal(np.asarray(array[...]), values, equal_nan=array.dtype.kind in "fc")


@each_case
def test_differences(name: str) -> None:
    repository = open_case(name)
    for facts in expected(name)["diffs"]:
        difference = repository.diff(from_snapshot_id=facts["from"], to_snapshot_id=facts["to"])
        for kind in (
            *("new_groups", "new_arrays", "deleted_groups", "deleted_arrays"),
            *("updated_groups", "updated_arrays"),
        ):
            assert sorted(getattr(difference, kind)) == facts.get(kind, []), (facts["from"], facts["to"], kind)
        assert difference.updated_chunks == facts.get("updated_chunks", {})
        assert list(map(list, difference.moved_nodes)) == facts.get("moved_nodes", [])


@pytest.mark.parametrize("name", sorted({*NAMES} - {*SOUND}))
def test_damage_is_an_error_that_names_the_object(name: str) -> None:
    with pytest.raises(IcechunkError, match="repo"):
        Repository.open(CASES / name)


@each_case
def test_the_state_is_the_same_after_it_was_written(name: str) -> None:
    before = decode_repo_info((CASES / name / "repo").read_bytes())
    after = decode_repo_info(encode_repo_info(before))
    assert dict(before.snapshots) == dict(after.snapshots)
    assert list(before.updates) == list(after.updates)
    for each in ("branches", "tags", "deleted_tags", "status", "metadata", "before_updates", "config"):
        assert getattr(before, each) == getattr(after, each)
    assert (before.enabled_flags, before.disabled_flags) == (after.enabled_flags, after.disabled_flags)
