"""`lake catalog sync`, with moto's Glue and a Unity Catalog server."""

from __future__ import annotations

import uuid

import pytest

from lake_core import Lake
from lake_core.catalog.glue import GlueCatalog
from tests.catalog.foreign_tables import create_in_glue
from tests.catalog.servers import CREDENTIALS, glue_server, glue_url, unity  # noqa: F401
from tests.catalog.unity_server import UnityServer
from tests.cli.commands import run, run_json


@pytest.fixture
def glue(glue_url: str) -> list[str]:  # noqa: F811
    """The options of a sync to a database of its own."""
    database = f"db_{uuid.uuid4().hex[:12]}"
    options = ["--option", f"endpoint={glue_url}", "--option", "region=us-east-1"]
    return ["catalog", "sync", "--catalog", "glue", "--schema", database, *options]


def test_the_tables_are_registered_and_said(root: str, lake: Lake, glue: list[str]) -> None:
    database, commit = glue[5], lake.list_branches()["main"][:12]
    dry = run(root, *glue, "--dry-run")
    assert dry.splitlines() == [
        f"would create {database}.t_orders: t/orders",
        f"{database} would show main at {commit}, 0 tables unchanged",
    ]
    assert f"create {database}.t_orders: t/orders\n" in run(root, *glue)
    assert run(root, *glue) == f"{database} shows main at {commit}, 1 table unchanged\n"


def test_json_has_everything(root: str, glue: list[str]) -> None:
    report = run_json(root, *glue)
    (synced,) = report["synced"]
    assert report["dry_run"] is False
    assert synced["tables"] == [{"action": "create", "name": "t_orders", "path": "t/orders", "changed": []}]


def test_a_refused_table_is_said_with_what_to_do(root: str, glue: list[str], glue_url: str) -> None:  # noqa: F811
    catalog = GlueCatalog(region="us-east-1", endpoint=glue_url)
    catalog.create_schema(glue[5])
    create_in_glue(catalog, glue[5], "t_orders")
    refused = run(root, *glue, code=1)
    assert "refused t/orders: 't_orders' is in the catalog, and no lake registered it" in refused
    assert "create" in run(root, *glue, "--name", "t/orders=orders_of_the_lake")


def test_all_branches_are_registered_and_deleted_ones_forgotten(root: str, lake: Lake, glue: list[str]) -> None:
    lake.create_branch("dev")
    database, commit = glue[5], lake.list_branches()["dev"][:12]
    every = run(root, *glue, "--all-branches")
    assert f"create {database}_dev.t_orders: t/orders\n{database}_dev shows dev at {commit}" in every
    assert f"{database}_dev shows dev at {commit}, 1 table unchanged\n" in run(root, *glue, "--all-branches")
    assert "choose one" in run(root, *glue, "--all-branches", "--branch", "dev", code=2)
    lake.delete_branch("dev")
    dropped = f"drop {database}_dev.t_orders: t/orders\n{database}_dev shows no table of dev, which was deleted\n"
    assert run(root, *glue, "--all-branches").endswith(dropped)
    assert "the branch 'dev' does not exist" in run(root, *glue, "--branch", "dev", code=1)


def test_a_catalog_that_is_not_there_is_said(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake_core.runtime.sleep", lambda seconds: None)
    command = ["catalog", "sync", "--schema", "db", "--catalog"]
    printed = run(root, *command, "hive", "--option", "uri=thrift://127.0.0.1:9", code=1)
    assert "did not answer" in printed
    printed = run(root, *command, "unity", "--option", "uri=http://127.0.0.1:9", "--option", "catalog=c", code=1)
    assert "cannot be reached" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "the catalog 'nope' is not installed (installed are glue, hive, unity)"),
        (["hive"], "needs the option 'uri': write --option uri=VALUE, or set LAKE_HIVE_URI"),
        (["hive", "--option", "url=x"], "has no option 'url': its options are uri, timeout_seconds"),
        (["hive", "--option", "uri=http://x"], "is written as thrift://host:9083"),
        (["hive", "--option", "uri=thrift://user:secret@x"], "is written as thrift://host:9083"),
        (["hive", "--option", "uri=x", "--option", "timeout_seconds=soon"], "must be a whole number"),
        (["unity", "--option", "token=secret"], "is a secret: pass it in the environment, as LAKE_UNITY_TOKEN"),
        (["unity", "--option", "uri=http://u:secret@x", "--option", "catalog=c"], "is written as https://host:port"),
    ],
)
def test_wrong_options_are_explained_without_secrets(root: str, words: list[str], message: str) -> None:
    printed = run(root, "catalog", "sync", "--schema", "db", "--catalog", *words, code=1)
    assert message in printed
    assert "secret" not in printed.replace("is a secret", "")


def test_secrets_come_from_the_environment_and_are_not_printed(
    root: str,
    unity: UnityServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unity.token = "token-never-shown"
    command = ["catalog", "sync", "--catalog", "unity", "--schema", "db", "--option", "catalog=c"]
    monkeypatch.setenv("LAKE_UNITY_URI", unity.url)
    monkeypatch.setenv("LAKE_UNITY_TOKEN", "another-token-never-shown")
    refused = run(root, *command, code=1)
    assert "401" in refused
    assert "LAKE_UNITY_TOKEN" in refused
    assert "never-shown" not in refused
    monkeypatch.setenv("LAKE_UNITY_TOKEN", unity.token)
    assert "create db.t_orders" in run(root, *command)


def test_credentials_of_glue_are_not_printed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    options = ["--option", "endpoint=http://127.0.0.1:9", "--option", "region=us-east-1"]
    printed = run(root, "catalog", "sync", "--catalog", "glue", "--schema", "db", *options, code=1)
    assert "never-shown" not in printed
    assert "Glue cannot be reached" in printed
