"""Datasets of VirtualiZarr in repositories: read as the files are, appended by whole chunks, refused where not."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import h5py
import icechunk
import numpy as np
import pytest
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser, KerchunkJSONParser, ZarrParser

from lake_core import Lake
from lake_core.icechunk import (
    Repository,
    RepositoryConfig,
    Session,
    VirtualChunkContainer,
    local_filesystem_store,
    unreadable_sources,
)
from lake_core.icechunk.errors import InvalidVirtualReference, MismatchedVariable, VirtualChunkError
from lake_core.icechunk.xarray import to_icechunk

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
FILES = ObjectStoreRegistry({"file://": LocalStore()})
LOADED = ("time", "lat", "lon")
PACKED: dict[str, Any] = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -9999}


@dataclass(frozen=True)
class Archive:
    """A folder of NetCDF files, and a repository that may refer to them."""

    folder: Path
    repository: Repository

    @property
    def access(self) -> dict[str, None]:
        return {f"file://{self.folder}/": None}

    def write(self, day: int, days: int = 1, **encoding: Any) -> xr.Dataset:
        """Write a file of some days, and return what is in it."""
        values = np.random.default_rng(day).integers(-500, 500, (days, 4, 6)) / 100 + 273.15
        times = np.datetime64("2026-01-01", "ns") + np.arange(day, day + days) * np.timedelta64(1, "D")
        dataset = xr.Dataset(
            {"sst": (("time", "lat", "lon"), values.astype("f4"), {"units": "K"})},
            {"time": times, "lat": np.arange(4.0), "lon": np.arange(6.0)},
            {"title": "temperatures"},
        )
        settings = {"zlib": True, "chunksizes": (1, 2, 6), **encoding}
        dataset.to_netcdf(self.path(day), engine="h5netcdf", encoding={"sst": settings})
        return xr.load_dataset(self.path(day), engine="h5netcdf")

    def path(self, day: int) -> Path:
        return self.folder / f"day-{day}.nc"

    def virtual(self, day: int, loaded: Sequence[str] = LOADED) -> xr.Dataset:
        return open_virtual_dataset(
            f"file://{self.path(day)}", registry=FILES, parser=HDFParser(), loadable_variables=list(loaded)
        )

    def commit(self, day: int, **options: Any) -> None:
        session = self.repository.writable_session("main")
        to_icechunk(self.virtual(day), session, **options)
        session.commit(f"day {day}")

    def session(self) -> Session:
        return Repository.open(
            str(self.repository.storage.url()), authorize_virtual_chunk_access=self.access
        ).readonly_session("main")

    def read(self) -> xr.Dataset:
        return xr.open_zarr(self.session().store, consolidated=False).load()


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    folder = tmp_path / "files"
    folder.mkdir()
    place = f"file://{folder}/"
    config = RepositoryConfig()
    config.set_virtual_chunk_container(VirtualChunkContainer(place, local_filesystem_store(str(folder))))
    repository = Repository.create(
        str(tmp_path / "repository"),
        config=config,
        spec_version=request.param,
        authorize_virtual_chunk_access={place: None},
    )
    return Archive(folder, repository)


@pytest.mark.parametrize("encoding", [{}, PACKED, {"shuffle": True}, {"zlib": False}], ids=repr)
def test_a_cube_of_files_is_read_as_they_are(archive: Archive, encoding: Mapping[str, Any]) -> None:
    days = [archive.write(day, **encoding) for day in range(3)]
    for day in range(3):
        archive.commit(day, append_dim="time")
    xr.testing.assert_identical(archive.read().drop_encoding(), xr.concat(days, "time").drop_encoding())


def test_only_references_are_stored(archive: Archive) -> None:
    archive.write(0)
    archive.commit(0)
    assert archive.session().all_virtual_chunk_locations() == [f"file://{archive.folder}/day-0.nc"]


def test_the_other_library_reads_it(archive: Archive) -> None:
    if archive.repository.spec_version != 1:
        return  # the library that is installed here reads version 1
    expected = archive.write(0)
    archive.commit(0)
    access = icechunk.containers_credentials({f"file://{archive.folder}/": None})
    root = archive.repository.storage.url().removeprefix("file://")
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(root), authorize_virtual_chunk_access=access)
    got = xr.open_zarr(theirs.readonly_session("main").store, consolidated=False).load()
    xr.testing.assert_identical(got.drop_encoding(), expected.drop_encoding())


def test_a_file_that_changed_is_told_and_not_read(archive: Archive) -> None:
    archive.write(0)
    archive.commit(0)
    later = (datetime.now(UTC) + timedelta(minutes=1)).timestamp()
    os.utime(archive.path(0), (later, later))
    with pytest.raises(VirtualChunkError, match="has changed"):
        archive.read()


def test_changed_missing_and_cut_files_are_listed(archive: Archive) -> None:
    for day in range(4):
        archive.write(day)
        archive.commit(day, append_dim="time")
    later = (datetime.now(UTC) + timedelta(minutes=1)).timestamp()
    os.utime(archive.path(0), (later, later))
    archive.path(1).unlink()
    before = archive.path(2).stat()
    os.truncate(archive.path(2), 5000)
    os.utime(archive.path(2), ns=(before.st_atime_ns, before.st_mtime_ns))
    words = {"day-0.nc": "has changed", "day-1.nc": "is missing", "day-2.nc": "is too short"}
    reasons = unreadable_sources(archive.session())
    assert {
        url.rpartition("/")[2]: words[url.rpartition("/")[2]] in why for url, why in reasons.items()
    } == dict.fromkeys(words, True)


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ({"zlib": False}, "codecs"),
        (PACKED, "data_type"),
        ({**PACKED, "scale_factor": 0.1}, "data_type"),
        ({"chunksizes": (1, 4, 6)}, "chunk_grid"),
    ],
    ids=["codec", "packing", "other packing", "chunks"],
)
def test_files_whose_chunks_are_read_in_another_way_are_refused(
    archive: Archive, encoding: Mapping[str, Any], said: str
) -> None:
    archive.write(0)
    archive.commit(0)
    archive.write(1, **encoding)
    session = archive.repository.writable_session("main")
    with pytest.raises(MismatchedVariable, match=said):
        to_icechunk(archive.virtual(1), session, append_dim="time")
    assert not session.has_uncommitted_changes


def test_numbers_with_another_scale_are_refused(archive: Archive) -> None:
    archive.write(0, **PACKED)
    archive.commit(0)
    archive.write(1, **{**PACKED, "scale_factor": 0.02})
    with pytest.raises(MismatchedVariable, match="scale_factor"):
        archive.commit(1, append_dim="time")


def test_a_part_of_a_chunk_cannot_be_appended_to(archive: Archive) -> None:
    archive.write(0, days=3, chunksizes=(2, 4, 6))
    archive.commit(0)
    archive.write(3, days=2, chunksizes=(2, 4, 6))
    with pytest.raises(MismatchedVariable, match="multiples of 2"):
        archive.commit(3, append_dim="time")


def test_a_region_refers_to_other_files(archive: Archive) -> None:
    days = [archive.write(day) for day in range(3)]
    for day in range(3):
        archive.commit(day, append_dim="time")
    archive.write(7)
    session = archive.repository.writable_session("main")
    to_icechunk(archive.virtual(7)[["sst"]].drop_vars(LOADED), session, region={"time": slice(1, 2)})
    session.commit("another day")
    other = xr.load_dataset(archive.path(7), engine="h5netcdf")["sst"].values
    assert np.array_equal(archive.read()["sst"], np.concatenate([days[0]["sst"], other, days[2]["sst"]]))


def test_chunks_that_a_file_lacks_are_missing_afterwards(archive: Archive) -> None:
    archive.write(0)
    archive.commit(0)
    virtual = archive.virtual(0)
    refs = virtual.virtualize.to_kerchunk(format="dict")
    chosen = {name: ref for name, ref in refs["refs"].items() if name.startswith((".", "sst")) and name != "sst/0.0.0"}
    path = archive.folder / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": chosen}))
    partial = open_virtual_dataset(f"file://{path}", registry=FILES, parser=KerchunkJSONParser(), loadable_variables=[])
    session = archive.repository.writable_session("main")
    to_icechunk(partial[["sst"]], session, mode="a")
    session.commit("without a chunk")
    assert bool(archive.read()["sst"][0, :2].isnull().all())


def test_references_of_kerchunk_are_read_as_the_files_are(archive: Archive) -> None:
    expected = archive.write(0)
    path = archive.folder / "refs.json"
    archive.virtual(0, []).virtualize.to_kerchunk(str(path), format="json")
    of_kerchunk = open_virtual_dataset(
        f"file://{path}", registry=FILES, parser=KerchunkJSONParser(), loadable_variables=[]
    )
    session = archive.repository.writable_session("main")
    to_icechunk(of_kerchunk, session)
    session.commit("references")
    assert np.array_equal(archive.read()["sst"], expected["sst"])


def test_the_chunk_of_a_scalar_in_references_of_kerchunk_is_read(archive: Archive) -> None:
    np.array([7], "<i4").tofile(archive.folder / "bytes")
    array = {"shape": [], "chunks": [], "dtype": "<i4", "fill_value": 0, "order": "C", "compressor": None}
    refs = {
        ".zgroup": json.dumps({"zarr_format": 2}),
        "crs/.zarray": json.dumps({**array, "filters": None, "zarr_format": 2}),
        "crs/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": []}),
        "crs/0": [str(archive.folder / "bytes"), 0, 4],
    }
    path = archive.folder / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    session = archive.repository.writable_session("main")
    to_icechunk(open_virtual_dataset(f"file://{path}", FILES, KerchunkJSONParser(), loadable_variables=[]), session)
    session.commit("a scalar")
    assert archive.read()["crs"].item() == 7


def test_scalars_and_arrays_without_chunks_are_read(archive: Archive) -> None:
    expected = xr.Dataset({"crs": ((), np.int32(7), {"epsg": 4326}), "sst": (("time",), np.arange(1.0, 3.0))})
    expected.to_netcdf(archive.path(0), engine="h5netcdf")
    with h5py.File(archive.path(0), "a") as file:
        file.create_dataset("rain", (2,), "f4", chunks=(1,), fillvalue=5)
        file["rain"].dims[0].attach_scale(file["time"])
    session = archive.repository.writable_session("main")
    to_icechunk(archive.virtual(0, []), session)
    session.commit("a scalar")
    assert archive.read()["crs"].item() == 7
    assert archive.read()["rain"].values.tolist() == [5, 5]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_stores_of_zarr_are_appended_without_access_to_their_chunks(archive: Archive, zarr_format: int) -> None:
    stores = []
    for day in range(2):
        dataset = archive.write(day).assign_coords(station=("lat", np.array(["a", "bb", "c", "d"], object)))
        dataset = dataset.drop_vars("station") if zarr_format == 2 else dataset  # VirtualiZarr cannot read objects
        dataset.drop_encoding().to_zarr(archive.folder / f"{day}.zarr", zarr_format=zarr_format, consolidated=False)  # type: ignore[call-overload]
        stores.append(dataset)
        unauthorized = Repository.open(archive.repository.storage)
        session = unauthorized.writable_session("main")
        virtual = open_virtual_dataset(
            f"file://{archive.folder}/{day}.zarr", FILES, ZarrParser(), loadable_variables=["time"]
        )
        to_icechunk(virtual, session, append_dim="time")
        session.commit(f"day {day}")
    expected = xr.concat(stores, "time", data_vars="minimal")
    xr.testing.assert_identical(archive.read().drop_encoding(), expected.drop_encoding())


def test_a_missing_value_of_nan_is_equal_to_itself(archive: Archive) -> None:
    for day in range(2):
        archive.write(day, missing_value=np.nan, _FillValue=np.nan)
        archive.commit(day, append_dim="time")
    assert archive.read().sizes["time"] == 2


@pytest.mark.parametrize("holder", ["attrs", "encoding"])
def test_a_fill_value_that_was_set_by_hand_is_masked(archive: Archive, holder: str) -> None:
    archive.write(0)
    with h5py.File(archive.path(0), "a") as file:
        file["sst"][0, 0, 0] = -9999
        del file["sst"].attrs["_FillValue"]
    virtual = archive.virtual(0)
    getattr(virtual["sst"].variable, holder)["_FillValue"] = -9999.0
    session = archive.repository.writable_session("main")
    to_icechunk(virtual, session)
    session.commit("masked")
    assert np.isnan(archive.read()["sst"].values).sum() == 1


def test_coordinates_of_two_dimensions_stay_coordinates(archive: Archive) -> None:
    dataset = archive.write(0).assign_coords(area=(("lat", "lon"), np.arange(24.0).reshape(4, 6)))
    dataset.to_netcdf(archive.path(0), engine="h5netcdf")
    archive.commit(0)
    assert set(archive.read().coords) == {"time", "lat", "lon", "area"}


def test_a_file_that_no_container_holds_is_refused_whole(archive: Archive, tmp_path: Path) -> None:
    archive.write(0)
    archive.path(0).rename(tmp_path / "elsewhere.nc")
    virtual = open_virtual_dataset(
        f"file://{tmp_path}/elsewhere.nc", registry=FILES, parser=HDFParser(), loadable_variables=list(LOADED)
    )
    session = archive.repository.writable_session("main")
    with pytest.raises(InvalidVirtualReference):
        to_icechunk(virtual, session)
    assert not session.has_uncommitted_changes


def test_an_encoding_of_chunks_in_files_is_refused(archive: Archive) -> None:
    archive.write(0)
    with pytest.raises(MismatchedVariable, match="stay as they are in their files"):
        archive.commit(0, encoding={"sst": {"dtype": "f8"}})


def test_arrays_of_unequal_lengths_are_not_appended_to(archive: Archive) -> None:
    archive.write(0)
    archive.commit(0, append_dim="time")
    session = archive.repository.writable_session("main")
    archive.write(1)
    to_icechunk(archive.virtual(1)[["sst"]].drop_vars("time"), session, append_dim="time")
    session.commit("a day without its time")
    archive.write(2)
    with pytest.raises(MismatchedVariable, match="lengths 1, 2"):
        archive.commit(2, append_dim="time")


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_virtual_cube_is_published_with_a_lake(tmp_path: Path, spec_version: int) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    place = f"file://{folder}/"
    archive = Archive(folder, None)  # type: ignore[arg-type]
    expected = archive.write(0)
    config = RepositoryConfig()
    config.set_virtual_chunk_container(VirtualChunkContainer(place, local_filesystem_store(str(folder))))
    lake = Lake.create(str(tmp_path / "lake"))
    with lake.session() as session:
        cube = session.create_icechunk("sst", config=config, spec_version=spec_version)
        to_icechunk(archive.virtual(0), cube.session)
    published = lake.icechunk("sst", authorize_virtual_chunk_access={place: None})
    got = xr.open_zarr(published.store, consolidated=False).load()
    xr.testing.assert_identical(got.drop_encoding(), expected.drop_encoding())
