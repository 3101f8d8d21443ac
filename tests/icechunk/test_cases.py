"""Repositories that icechunk itself wrote read as icechunk reads them, at every commit."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import zarr

from lake_core.icechunk import Repository, Session
from lake_core.icechunk.errors import DamagedObject, IcechunkError
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.manifest import ReferenceKind
from lake_core.icechunk.snapshot import ArrayNode
from tests.icechunk.cases import CASES, digest, expected, names, open_case
from tests.skip_rule import NO_CASES

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=NO_CASES)
SOUND = [name for name in names(damaged=False) if name != "duplicate-path"]
each_case = pytest.mark.parametrize("name", SOUND)


@each_case
def test_branches_and_tags(name: str) -> None:
    repository, facts = open_case(name), expected(name)
    assert {branch: repository.lookup_branch(branch) for branch in repository.list_branches()} == facts["branches"]
    assert {tag: repository.lookup_tag(tag) for tag in repository.list_tags()} == facts["tags"]
    for tag in facts["deleted_tags"]:
        with pytest.raises(IcechunkError):
            repository.lookup_tag(tag)


@each_case
def test_history(name: str) -> None:
    repository, facts = open_case(name), expected(name)
    assert {branch: [info.id for info in repository.ancestry(branch=branch)] for branch in facts["history"]} == facts[
        "history"
    ]
    assert {tag: [info.id for info in repository.ancestry(tag=tag)] for tag in facts["tag_history"]} == facts[
        "tag_history"
    ]


@each_case
def test_commits(name: str) -> None:
    repository = open_case(name)
    for snapshot_id, commit in expected(name)["commits"].items():
        info = repository.lookup_snapshot(snapshot_id)
        assert (info.parent_id, info.message, info.metadata) == (
            commit["parent"],
            commit["message"],
            commit["metadata"],
        )
        assert info.written_at.isoformat() == commit["written_at"]
        assert {file.id: [file.size_bytes, file.num_chunk_refs] for file in info.manifests} == commit["manifests"]


@each_case
def test_nodes(name: str) -> None:
    repository = open_case(name)
    for snapshot_id, commit in expected(name)["commits"].items():
        session = repository.readonly_session(snapshot_id=snapshot_id)
        nodes = {path: session.node(path) for path in session.node_paths()}
        assert sorted(path for path, node in nodes.items() if isinstance(node, ArrayNode)) == sorted(commit["arrays"])
        assert sorted(path for path, node in nodes.items() if not isinstance(node, ArrayNode)) == sorted(
            commit["groups"]
        )
        if isinstance(commit["groups"], dict):
            for path, attributes in commit["groups"].items():
                assert dict(zarr.open_group(session.store, mode="r", path=path.strip("/")).attrs) == attributes


@each_case
def test_references(name: str) -> None:
    repository = open_case(name)
    for snapshot_id, commit in expected(name)["commits"].items():
        session = repository.readonly_session(snapshot_id=snapshot_id)
        for path, facts in commit["arrays"].items():
            if isinstance(facts, dict) and "refs" in facts:
                assert references(session, path) == facts["refs"], path


def references(session: Session, path: str) -> dict[str, Any]:
    array = session.array(path)
    manifests, kinds, outside = [], dict.fromkeys(ReferenceKind, 0), 0
    for ref in array.manifests:
        stored = session.assets.manifest(ref.manifest_id).array(array.node_id)
        assert stored is not None
        columns = stored.references(len(array.shape))
        for kind in kinds:
            kinds[kind] += int((columns.kind == kind).sum())
        outside += int((~columns.inside([(0, end) for end in array.grid])).sum())
        manifests.append(
            {
                "id": encode_id(ref.manifest_id),
                "extents": [list(extent) for extent in ref.extents],
                "refs": len(columns),
            }
        )
    return {
        **{kind.name.lower(): count for kind, count in kinds.items()},
        "out_of_bounds": outside,
        "manifests": manifests,
    }


@each_case
@pytest.mark.filterwarnings("ignore")
def test_values(name: str) -> None:
    repository = open_case(name)
    for snapshot_id, commit in expected(name)["commits"].items():
        store = repository.readonly_session(snapshot_id=snapshot_id).store
        for path, facts in commit["arrays"].items():
            sha256 = facts.get("sha256") if isinstance(facts, dict) else facts
            if sha256 is not None:
                array = zarr.open_array(store, path=path.strip("/"), mode="r")
                assert digest(array) == sha256, path
            if isinstance(facts, dict) and "chunks" in facts:
                assert chunks(store, path, facts["chunks"]), path


def chunks(store: Any, path: str, facts: dict[str, Any]) -> bool:
    array = zarr.open_array(store, path=path.strip("/"), mode="r")
    for key, values in facts.items():
        index = tuple(int(part) for part in key.split("/"))
        window = tuple(
            slice(number * size, (number + 1) * size) for number, size in zip(index, array.chunks, strict=True)
        )
        if isinstance(values, dict):
            with pytest.raises(IcechunkError):
                array[window]
        else:
            assert np.asarray(array[window]).ravel().tolist() == values
    return True


@each_case
@pytest.mark.filterwarnings("ignore")
def test_chunks_of_arrays_too_large_to_read(name: str) -> None:
    repository = open_case(name)
    for snapshot_id, commit in expected(name)["commits"].items():
        store = repository.readonly_session(snapshot_id=snapshot_id).store
        for path, facts in commit["arrays"].items():
            for key, sha256 in (facts.get("chunk_sha256", {}) if isinstance(facts, dict) else {}).items():
                array = zarr.open_array(store, path=path.strip("/"), mode="r")
                index = tuple(int(part) for part in key.split("/"))
                window = tuple(
                    slice(number * size, (number + 1) * size) for number, size in zip(index, array.chunks, strict=True)
                )
                assert hashlib.sha256(np.asarray(array[window]).tobytes()).hexdigest() == sha256, (path, key)


@each_case
def test_differences(name: str) -> None:
    repository = open_case(name)
    for facts in expected(name)["diffs"]:
        if "error" in facts:
            with pytest.raises(IcechunkError):
                repository.diff(from_snapshot_id=facts["from"], to_snapshot_id=facts["to"])
            continue
        difference = repository.diff(from_snapshot_id=facts["from"], to_snapshot_id=facts["to"])
        for kind in (
            "new_groups",
            "new_arrays",
            "deleted_groups",
            "deleted_arrays",
            "updated_groups",
            "updated_arrays",
        ):
            assert sorted(getattr(difference, kind)) == facts.get(kind, []), (facts["from"], facts["to"], kind)
        expected_chunks = facts.get("updated_chunks", {})
        assert difference.updated_chunks.keys() == expected_chunks.keys()
        for path, coordinates in expected_chunks.items():
            if isinstance(coordinates, dict):
                assert len(difference.updated_chunks[path]) == coordinates["count"]
            else:
                assert difference.updated_chunks[path] == coordinates, (facts["from"], facts["to"])


def test_a_snapshot_with_two_nodes_of_one_path_is_refused() -> None:
    session = open_case("duplicate-path").readonly_session("main")
    with pytest.raises(DamagedObject, match="two nodes of the path"):
        session.node("/a")


READS = {"read /nat": "/nat", "read /g/inl": "/g/inl"}
"""Steps of the damaged cases that read a whole array."""
RIGHT_HERE = {"bad-compression-0-raw", "bad-refs-extra"}
"""Damage that icechunk does not read through, and need not stop a reader."""


@pytest.mark.parametrize("name", names(damaged=True))
@pytest.mark.parametrize("step", READS)
def test_damage_is_an_error_and_never_a_wrong_value(name: str, step: str) -> None:
    facts = expected(name)
    answer = facts["icechunk"].get(step)
    sha256 = facts["undamaged"]["arrays"][READS[step]]
    if answer == "right" or name in RIGHT_HERE:
        assert digest(read(open_case(name), READS[step])) == sha256
    else:
        with pytest.raises(IcechunkError):
            digest(read(open_case(name), READS[step]))


def read(repository: Repository, path: str) -> Any:
    return zarr.open_array(repository.readonly_session("main").store, path=path.strip("/"), mode="r")


@pytest.mark.parametrize("name", [name for name in names(damaged=True) if name != "bad-repo-object"])
def test_the_history_of_a_damaged_repository_ends(name: str) -> None:
    facts = expected(name)
    if not any(part in name for part in ("bad-ref-garbage", "parent-cycle", "spec-version", "snapshot-missing")):
        assert [info.id for info in open_case(name).ancestry(branch="main")] == facts["undamaged"]["history"]
        return
    with pytest.raises(IcechunkError):
        list(open_case(name).ancestry(branch="main"))


def test_the_missing_log_of_a_commit_is_named() -> None:
    repository = open_case("bad-log-missing")
    newest, parent = next(pairwise(repository.ancestry(branch="main")))
    with pytest.raises(DamagedObject, match=f"transactions/{newest.id}"):
        repository.diff(from_snapshot_id=parent.id, to_snapshot_id=newest.id)
