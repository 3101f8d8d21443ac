"""What is no table becomes a file: as it is, as text or as JSON, in the folder and the session that tables have."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import json
import pickle
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_core import Lake
from lake_core.errors import NotFound
from lake_core.graveler import Commit
from lake_core.store import LocalStore, ObjectMeta
from lake_orch import (
    DeltaIOManager,
    FileIOManager,
    InvalidDefinition,
    LakeResource,
    PartitionSliceError,
    TableOwned,
    UnsupportedData,
    testing,
)
from lake_orch.assets.files.owner import Files, claim
from lake_orch.assets.owner import Owner
from tests.lake.lakefs_repository import WHEN, RepositoryOfLakeFS

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")


@pytest.fixture(
    params=[*(pytest.param(target, marks=pytest.mark.exhaustive) for target in ("plain", "lake")), "session"]
)
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def root(tmp_path: Path, target: str) -> str:
    if target != "plain":
        Lake.create(tmp_path / "lake")
    return str(tmp_path / "lake")


@pytest.fixture
def plain(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def resources(root: str, **options: Any) -> dict[str, Any]:
    lake = LakeResource(root=root)
    return {"lake": lake, "io_manager": FileIOManager(lake=lake, **options), "tables": DeltaIOManager(lake=lake)}


def get(root: str, key: str) -> bytes:
    return bytes(LakeResource(root=root).read_files(None).get(key))


def keys(root: str) -> list[str]:
    return [meta.key for meta in LakeResource(root=root).read_files(None).list("") if not meta.key.startswith("_lake")]


def materialize(target: str, assets: list[Any], root: str, **options: Any) -> dg.ExecuteInProcessResult:
    run = testing.materialize if target == "session" else dg.materialize
    return run(assets, resources=resources(root), **options)


@pytest.mark.parametrize("target", ["plain", "lake", "session"], indirect=True)
def test_values_come_back_as_they_were(root: str, target: str) -> None:
    loaded: dict[str, Any] = {}
    report = {"rows": 7, "names": ["ä", None], "nested": {"x": 1.5, "y": True}}

    @dg.asset
    def image() -> bytes:
        return b"\x00\x01"

    @dg.asset
    def page() -> str:
        return "<p>ä</p>"

    @dg.asset(key=["reports", "today"])
    def today() -> dict[str, Any]:
        return report

    @dg.asset(metadata={"lake/path": "out/numbers.json"})
    def numbers() -> list[int]:
        return [1, 2]

    @dg.asset(ins={"today": dg.AssetIn(["reports", "today"])})
    def reader(image: bytes, page: str, today: dict[str, Any], numbers: list[int]) -> None:
        loaded.update(image=image, page=page, today=today, numbers=numbers)

    result = materialize(target, [image, page, today, numbers, reader], root)
    assert result.success
    assert loaded == {"image": b"\x00\x01", "page": "<p>ä</p>", "today": report, "numbers": [1, 2]}
    assert keys(root) == ["files/image.bin", "files/page.txt", "files/reports/today.json", "out/numbers.json"]
    assert json.loads(get(root, "files/reports/today.json")) == report
    metadata = {event.asset_key: event.materialization.metadata for event in result.get_asset_materialization_events()}
    image_metadata = metadata[dg.AssetKey("image")]
    assert (image_metadata["lake/path"].value, image_metadata["lake/bytes_written"].value) == ("files/image.bin", 2)
    assert ("lake/state" in image_metadata) is (target != "session"), "what is staged is not told apart for good"
    assert ("lake/commit" in image_metadata) is (target == "lake")
    assert ("dagster/uri" in image_metadata) is (target == "plain")


def test_a_value_of_another_type_takes_the_place_of_the_former(root: str, target: str) -> None:
    values = iter([{"a": 1}, "text"])

    @dg.asset
    def changing() -> Any:
        return next(values)

    @dg.asset
    def reader(changing) -> None:
        assert changing == "text"

    materialize(target, [changing], root)
    assert materialize(target, [changing, reader], root).success
    assert keys(root) == ["files/changing.txt"]


def test_a_retried_step_writes_its_file_once(root: str, target: str) -> None:
    @dg.multi_asset(outs={"first": dg.AssetOut(), "second": dg.AssetOut()}, retry_policy=dg.RetryPolicy(max_retries=1))
    def two(context: dg.AssetExecutionContext):
        yield dg.Output("one", "first")
        if context.retry_number == 0:
            raise RuntimeError("half-way")
        yield dg.Output("two", "second")

    assert materialize(target, [two], root).success
    assert keys(root) == ["files/first.txt", "files/second.txt"]
    if target == "lake":
        assert len(Lake.open(root).log()) == 3, "the lake's own commit, and one for each file"


def test_a_failed_run_with_a_session_leaves_no_file(plain: str) -> None:
    Lake.create(plain)

    @dg.asset
    def written() -> str:
        return "x"

    @dg.asset(deps=[written])
    def failing() -> None:
        raise RuntimeError("no")

    result = testing.materialize([written, failing], resources=resources(plain), raise_on_error=False)
    assert not result.success
    assert keys(plain) == []


def test_partitions_have_a_file_each(root: str, target: str) -> None:
    loaded: dict[str, Any] = {}

    @dg.asset(partitions_def=DAYS)
    def daily(context: dg.AssetExecutionContext) -> dict[str, Any]:
        return {"day": context.partition_key}

    @dg.asset(partitions_def=DAYS)
    def same(daily: dict[str, Any]) -> None:
        loaded["one"] = daily

    @dg.asset(ins={"daily": dg.AssetIn(metadata={"allow_missing_partitions": True})})
    def whole(daily: dict[str, dict[str, Any]]) -> None:
        loaded["all"] = daily

    for key in ("2024-01-01", "2024-01-02"):
        assert materialize(target, [daily, same], root, partition_key=key).success
    assert materialize(target, [daily, whole], root, selection=[whole]).success
    assert keys(root) == ["files/daily/2024-01-01.json", "files/daily/2024-01-02.json"]
    assert loaded["one"] == {"day": "2024-01-02"}
    assert loaded["all"] == {"2024-01-01": {"day": "2024-01-01"}, "2024-01-02": {"day": "2024-01-02"}}
    with pytest.raises(NotFound, match="materialize the asset first"):
        materialize(target, [daily, same], root, selection=[same], partition_key="2024-01-03")


def test_a_run_over_several_partitions_gives_a_value_for_each(plain: str) -> None:
    values = iter([True, False])

    @dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    def daily(context: dg.AssetExecutionContext) -> Any:
        return {key: f"of {key}" for key in context.partition_keys} if next(values) else "one"

    job = dg.Definitions(assets=[daily], resources=resources(plain)).resolve_implicit_global_asset_job_def()
    tags = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-03"}
    assert job.execute_in_process(tags=tags).success
    assert get(plain, "files/daily/2024-01-02.txt") == b"of 2024-01-02"
    with pytest.raises(PartitionSliceError, match="not a dict with a value for each"):
        job.execute_in_process(tags=tags)


def test_names_that_are_no_paths_are_quoted(plain: str) -> None:
    names = ["a/b", "..", "x|y", ".hidden", "ü"]
    both = dg.MultiPartitionsDefinition({"name": dg.StaticPartitionsDefinition(["a/b", ".."]), "day": DAYS})

    @dg.asset(partitions_def=both)
    def cells(context: dg.AssetExecutionContext) -> str:
        return "x"

    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("names", names)
        for name in names[:1] + names[1:2]:
            key = dg.MultiPartitionKey({"name": name, "day": "2024-01-01"})
            assert dg.materialize([cells], partition_key=key, resources=resources(plain), instance=instance).success
        assets = [
            dg.asset(
                lambda context: context.partition_key,
                name="n",
                partitions_def=dg.DynamicPartitionsDefinition(name="names"),
            )
        ]
        for name in names:
            assert dg.materialize(assets, partition_key=name, resources=resources(plain), instance=instance).success
    stored_keys = keys(plain)
    assert "files/n/a%2Fb.txt" in stored_keys
    assert "files/n/%2E..txt" in stored_keys
    assert "files/cells/2024-01-01/a%2Fb.txt" in stored_keys
    assert sorted(get(plain, key).decode() for key in stored_keys if key.startswith("files/n/")) == sorted(names)


def test_pickle_is_only_for_those_who_ask(plain: str) -> None:
    @dg.asset
    def thing() -> Any:
        return {1, 2}

    @dg.asset
    def reader(thing: Any) -> None:
        assert thing == {1, 2}

    with pytest.raises(UnsupportedData, match="set, and pickle is not allowed here: anyone who can write the file"):
        dg.materialize([thing], resources=resources(plain))
    assert keys(plain) == []
    assert dg.materialize([thing, reader], resources=resources(plain, allow_pickle=True)).success
    assert pickle.loads(get(plain, "files/thing.pickle")) == {1, 2}
    with pytest.raises(UnsupportedData, match="is a pickle"):
        dg.materialize([thing, reader], selection=[reader], resources=resources(plain))


@pytest.mark.parametrize("value", [{1: "a"}, {"a": float("nan")}, [(1, 2)], {"a": {"b": {3}}}])
def test_what_json_would_change_is_refused(plain: str, value: Any) -> None:
    @dg.asset
    def thing() -> Any:
        return value

    with pytest.raises(UnsupportedData, match="is not valid JSON"):
        dg.materialize([thing], resources=resources(plain))
    assert keys(plain) == []


def test_outputs_of_ops_need_a_path_and_dynamic_ones_get_one_each(plain: str) -> None:
    loaded = []

    @dg.op(out=dg.DynamicOut(str, metadata={"lake/path": "out/part.txt"}))
    def parts():
        for number in range(2):
            yield dg.DynamicOutput(f"part {number}", mapping_key=f"k{number}")

    @dg.op(out=dg.Out(io_manager_key="nothing"))
    def collect(values: list[str]) -> None:
        loaded.extend(values)

    @dg.op
    def nowhere() -> str:
        return "x"

    @dg.job(resource_defs={**resources(plain), "nothing": dg.mem_io_manager})
    def job():
        collect(parts().collect())

    @dg.job(resource_defs=resources(plain))
    def bad():
        nowhere()

    assert job.execute_in_process().success
    assert sorted(loaded) == ["part 0", "part 1"]
    assert keys(plain) == ["out/part/k0.txt", "out/part/k1.txt"]
    with pytest.raises(InvalidDefinition, match="lake/path"):
        bad.execute_in_process()


def test_a_file_can_be_read_at_another_ref(plain: str) -> None:
    lake = Lake.create(plain)
    values = iter(["old", "new"])
    loaded = {}

    @dg.asset
    def text() -> str:
        return next(values)

    @dg.asset(ins={"text": dg.AssetIn(metadata={"lake/ref": "v1"})})
    def reader(text: str) -> None:
        loaded["text"] = text

    dg.materialize([text], resources=resources(plain))
    lake.create_tag("v1", at="main")
    dg.materialize([text, reader], resources=resources(plain))
    assert loaded == {"text": "old"}
    assert get(plain, "files/text.txt") == b"new"


@pytest.mark.parametrize("name", ["lake/where", "lake/version"])
def test_a_setting_that_has_no_effect_on_a_file_is_refused(plain: str, name: str) -> None:
    @dg.asset
    def text() -> str:
        return "text"

    @dg.asset(ins={"text": dg.AssetIn(metadata={name: 1})})
    def reader(text: str) -> None: ...

    with pytest.raises(InvalidDefinition, match=r"no effect: the settings of this input are .*, lake/ref"):
        dg.materialize([text, reader], resources=resources(plain))


def test_the_data_version_is_that_of_the_content(plain: str) -> None:
    values = iter(["a", "a", "b"])

    @dg.asset
    def text() -> str:
        return next(values)

    versions = []
    for _ in range(3):
        (event,) = dg.materialize([text], resources=resources(plain)).get_asset_materialization_events()
        versions.append(event.materialization.tags["dagster/data_version"])
    assert versions[0] == versions[1] != versions[2]


def test_a_lake_from_lakefs_is_read_whatever_its_commits_say_of_their_time(tmp_path: Path) -> None:
    repository = RepositoryOfLakeFS(LocalStore(tmp_path / "lake"))
    before = repository.commit("main", {"files/limit.json": repository.put("1", b"7")})
    for when in ("noon", "2024-01-01T12:00:00"):
        commit = Commit.create("me", "m", WHEN, before.metarange_id, metadata={"at": when}, parents=[before])
        repository.commits[commit.id] = commit
        repository.branches["main"] = commit.id
        before = commit
    repository.dump()
    Lake.import_lakefs(tmp_path / "lake")

    @dg.asset
    def twice(limit: int) -> int:
        return 2 * limit

    materialize("lake", [dg.SourceAsset("limit"), twice], str(tmp_path / "lake"))
    assert get(str(tmp_path / "lake"), "files/twice.json") == b"14"


# Owners


def owned_asset(key: str, value: Any = None, parts: Any = None, **metadata: Any) -> dg.AssetsDefinition:
    """Return an asset that writes its key, or the key and the partition, unless it is given a value."""

    @dg.asset(key=key.split("/"), partitions_def=parts, metadata=metadata)
    def made(context: dg.AssetExecutionContext) -> Any:
        return value or (f"{key} {context.partition_key}" if parts else key)

    return made


COUNTRIES = dg.StaticPartitionsDefinition(["de", "us"])
SALES, GERMAN, TOTAL = owned_asset("sales", parts=COUNTRIES), owned_asset("sales/de"), owned_asset("sales/total")


def test_a_file_of_a_partition_is_not_replaced_by_another_asset(root: str, target: str) -> None:
    assert materialize(target, [SALES], root, partition_key="de").success
    before = keys(root)
    with pytest.raises(TableOwned, match=r"files/sales/de\.txt was made by asset sales, and asset sales/de would repl"):
        materialize(target, [GERMAN], root)
    assert (keys(root), get(root, "files/sales/de.txt")) == (before, b"sales de")
    assert materialize(target, [TOTAL], root).success, "no partition has this file"
    assert materialize(target, [SALES], root, partition_key="us").success
    assert materialize(target, [SALES], root, partition_key="de").success


def test_a_partition_does_not_replace_the_file_of_another_asset(root: str, target: str) -> None:
    assert materialize(target, [GERMAN], root).success
    with pytest.raises(TableOwned, match="was made by asset sales/de, and asset sales would replace it"):
        materialize(target, [SALES], root, partition_key="de")
    assert get(root, "files/sales/de.txt") == b"sales/de"
    assert materialize(target, [SALES], root, partition_key="us").success
    assert materialize(target, [GERMAN], root).success
    with pytest.raises(TableOwned):
        materialize(target, [SALES], root, partition_key="de")


@pytest.mark.parametrize("parts", [None, COUNTRIES])
def test_two_assets_with_one_path(root: str, target: str, parts: Any) -> None:
    options = {"partition_key": "de"} if parts else {}
    one, two, three = (
        owned_asset(key, parts=parts, **{"lake/path": path})
        for key, path in {"one": "out/x", "two": "out/x.json", "three": "out/x.html"}.items()
    )
    assert materialize(target, [one], root, **options).success
    with pytest.raises(TableOwned, match="was made by asset one, and asset two would replace it"):
        materialize(target, [two], root, **options)
    assert materialize(target, [three], root, **options).success
    assert keys(root) == (["out/x/de.html", "out/x/de.txt"] if parts else ["out/x.html", "out/x.txt"])
    if parts:
        with pytest.raises(TableOwned):
            materialize(target, [two], root, partition_key="us")


def test_a_file_of_another_extension_is_not_deleted(plain: str) -> None:
    materialize("plain", [owned_asset("one", {"a": 1}, **{"lake/path": "out/x.json"})], plain)
    with pytest.raises(TableOwned, match=r"out/x\.json was made by asset one"):
        materialize("plain", [owned_asset("two", "text", **{"lake/path": "out/x"})], plain)
    assert keys(plain) == ["out/x.json"]


def test_assets_whose_partitions_are_folders_of_one_another(root: str, target: str) -> None:
    both = dg.MultiPartitionsDefinition({"country": COUNTRIES, "day": DAYS})
    cells, of_de = owned_asset("cells", parts=both), owned_asset("cells/de", parts=DAYS)
    key = dg.MultiPartitionKey({"country": "de", "day": "2024-01-01"})
    assert materialize(target, [cells], root, partition_key=key).success
    with pytest.raises(TableOwned, match="was made by asset cells, and"):
        materialize(target, [of_de], root, partition_key="2024-01-01")
    assert materialize(target, [of_de], root, partition_key="2024-01-02").success
    later = dg.MultiPartitionKey({"country": "de", "day": "2024-01-02"})
    with pytest.raises(TableOwned, match="was made by asset cells/de, and"):
        materialize(target, [cells], root, partition_key=later)
    assert materialize(target, [cells], root, partition_key=key).success
    assert materialize(target, [of_de], root, partition_key="2024-01-02").success


def test_a_file_is_taken_over_or_shared_where_that_is_asked_for(root: str, target: str) -> None:
    path = {"lake/path": "out/x"}
    old, new = owned_asset("old", **path), owned_asset("new", **path)
    materialize(target, [old], root)
    assert materialize(target, [owned_asset("guest", **path, **{"lake/owner": "shared"})], root).success
    assert get(root, "out/x.txt") == b"guest"
    materialize(target, [owned_asset("new", **path, **{"lake/owner": "take"})], root)
    assert materialize(target, [new], root).success
    with pytest.raises(TableOwned, match="was made by asset new"):
        materialize(target, [old], root)
    with pytest.raises(InvalidDefinition, match="lake/owner of asset old is 'me'"):
        materialize(target, [owned_asset("old", **path, **{"lake/owner": "me"})], root)


def test_files_of_partitions_are_taken_over(root: str, target: str) -> None:
    taking = {"lake/path": "files/sales", "lake/owner": "take"}
    materialize(target, [SALES], root, partition_key="de")
    materialize(target, [owned_asset("sales/de", **{"lake/owner": "take"})], root)
    with pytest.raises(TableOwned, match="was made by asset sales/de"):
        materialize(target, [SALES], root, partition_key="de")
    materialize(target, [owned_asset("renamed", parts=COUNTRIES, **taking)], root, partition_key="us")
    with pytest.raises(TableOwned, match="was made by asset renamed"):
        materialize(target, [SALES], root, partition_key="us")
    materialize(target, [owned_asset("renamed", parts=COUNTRIES, **taking)], root, partition_key="de")
    with pytest.raises(TableOwned, match="was made by asset renamed"):
        materialize(target, [GERMAN], root)


def test_a_file_from_before_belongs_to_the_first_asset_that_writes_it(plain: str) -> None:
    store = LocalStore(plain)
    for name in ("de", "us", "total"):
        store.put(f"files/sales/{name}.txt", b"old" if name != "us" else b"sales us")
    materialize("plain", [SALES], plain, partition_key="us")
    assert materialize("plain", [TOTAL], plain).success, "it was not refused before"
    assert materialize("plain", [GERMAN], plain).success
    with pytest.raises(TableOwned):
        materialize("plain", [SALES], plain, partition_key="de")
    with pytest.raises(TableOwned, match="was made by asset sales, and"):
        materialize("plain", [owned_asset("sales/us")], plain)


def test_the_file_of_another_asset_is_not_read(root: str, target: str) -> None:
    loaded: list[Any] = []

    @dg.asset(ins={"sales": dg.AssetIn(metadata={"allow_missing_partitions": True})})
    def reader(sales: dict[str, str]) -> None:
        loaded.append(sales)

    @dg.asset(ins={"value": dg.AssetIn(["sales", "de"])})
    def reader_of_german(value: str) -> None: ...

    materialize(target, [GERMAN], root)
    materialize(target, [SALES], root, partition_key="us")
    assert materialize(target, [SALES, reader], root, selection=[reader]).success
    assert loaded == [{"us": "sales us"}]
    materialize(target, [owned_asset("sales", parts=COUNTRIES, **{"lake/owner": "take"})], root, partition_key="de")
    with pytest.raises(NotFound, match=r"no file of asset sales/de: files/sales/de\.txt was made by asset sales\. "):
        materialize(target, [GERMAN, reader_of_german], root, selection=[reader_of_german])


def test_a_definition_may_name_the_file_that_something_else_writes(plain: str) -> None:
    loaded = []

    @dg.asset
    def reader(limits: str) -> None:
        loaded.append(limits)

    materialize("plain", [owned_asset("crm/limits")], plain)
    spec = dg.AssetSpec("limits", metadata={"lake/path": "files/crm/limits.txt"})
    assert materialize("plain", [spec, reader], plain).success
    assert loaded == ["crm/limits"]


def test_a_backfill_records_its_owner_once(plain: str) -> None:
    lake = Lake.create(plain)
    daily = owned_asset("daily", parts=DAYS)
    for day in range(1, 6):
        materialize("lake", [daily], plain, partition_key=f"2024-01-0{day}")
    assert len(list(lake.at("main").list("_lake_owners/"))) == 1


def test_first_runs_at_once_record_one_owner(plain: str) -> None:
    lake = Lake.create(plain)
    handle = lake.open_session("main")
    location = Files("files/daily", "", 1)
    writers = [handle.join(task=day, attempt=0) for day in ("a", "b")]
    for writer in writers:
        claim(writer, location, [], Owner("daily", "here"), "keep")
    for writer in writers:
        with writer:
            writer.put(f"files/daily/{writers.index(writer)}.txt", b"x")
    handle.publish()
    assert len(list(lake.at("main").list(""))) == 3


def test_the_later_of_two_assets_that_claim_a_file_at_once_is_refused(plain: str) -> None:
    class OtherIsFaster(LocalStore):
        def _put(self, key: str, *options: Any) -> ObjectMeta:
            if not LocalStore(plain).exists(key):
                claim(LocalStore(plain), files, [], Owner("one"), "keep")
            return super()._put(key, *options)

    files = Files("files/x", "")
    with pytest.raises(TableOwned, match="was made by asset one, and asset two would replace it"):
        claim(OtherIsFaster(plain), files, [], Owner("two"), "keep")


def test_a_failed_run_leaves_no_owner(plain: str) -> None:
    lake = Lake.create(plain)

    @dg.asset(deps=[TOTAL])
    def failing() -> None:
        raise RuntimeError("no")

    testing.materialize([TOTAL, failing], resources=resources(plain), raise_on_error=False)
    assert list(lake.at("main").list("")) == []


@pytest.mark.parametrize(("first", "second", "is_other"), [("a", "b", True), ("a", "a", False), (None, "b", False)])
def test_code_locations_are_told_apart(plain: str, first: str | None, second: str, is_other: bool) -> None:
    store, files = LocalStore(plain), Files("files/x", "")
    claim(store, files, [], Owner("x", first), "keep")
    if is_other:
        with pytest.raises(TableOwned, match="of code location 'a', and asset x of code location 'b'"):
            claim(store, files, [], Owner("x", second), "keep")
    else:
        claim(store, files, [], Owner("x", second), "keep")


def test_the_folder_of_the_owners_holds_no_files_of_assets(plain: str) -> None:
    with pytest.raises(InvalidDefinition, match="_lake_owners holds the owners of files"):
        materialize("plain", [owned_asset("x", **{"lake/path": "_lake_owners/x"})], plain)
    assert keys(plain) == []


def test_a_list_is_one_value(tmp_path: Path) -> None:
    lake = LakeResource(root=str(tmp_path))
    seen: list[object] = []

    @dg.asset
    def names() -> list[str]:
        return ["a", "b"]

    @dg.asset
    def reader(names: list[str]) -> None:
        seen.append(names)

    assert dg.materialize([names, reader], resources={"io_manager": FileIOManager(lake=lake)}).success
    assert seen == [["a", "b"]]
