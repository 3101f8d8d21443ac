"""The settings of a session, on local threads and on a cluster."""

from __future__ import annotations

import pytest

from lake_core.spark.session import is_local, start_settings

LOCAL = ("spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions")


@pytest.mark.parametrize("master", [None, "local", "local[4]"])
def test_a_driver_of_local_threads_listens_on_the_loopback_interface(master: str | None) -> None:
    settings = start_settings(master)
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_the_executors_of_a_cluster_reach_the_driver(master: str) -> None:
    assert not set(LOCAL) & set(start_settings(master))


def test_the_settings_of_the_caller_come_first() -> None:
    settings = start_settings("local", {"spark.master": "yarn", "spark.driver.host": "driver"})
    assert (settings["spark.master"], settings["spark.driver.host"]) == ("yarn", "driver")
    assert not is_local(settings["spark.master"])
