"""A lake and its mirror on a lakeFS server, of which a stand-in answers the API's calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lake_core import Lake, runtime
from lake_core.errors import CredentialsInUrl, InvalidUrl
from lake_core.lake.errors import ServerDiverged, ServerRefused, ServerUnavailable
from lake_core.lake.lakefs import server as server_module
from lake_core.store import MemoryStore
from tests.lake.lakefs_server import KEY, SECRET, Server, serving
from tests.lake.lakes import rows


@pytest.fixture
def target() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def server(target: MemoryStore, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A repository into which an export of the lake was restored."""
    monkeypatch.setenv(server_module.KEY_VARIABLE, KEY)
    monkeypatch.setenv(server_module.SECRET_VARIABLE, SECRET)
    monkeypatch.setattr(runtime, "sleep", lambda seconds: None)
    lake.maintenance.export(target)
    server = Server(target)
    server.restore()
    return server


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with serving(server) as url:
        yield url


def test_what_is_new_comes_onto_the_server(lake: Lake, target: MemoryStore, server: Server, url: str) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([50]))
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.put("new", b"1")
    lake.create_tag("v1", at="dev")
    target.put("data/gabc/uploaded-by-the-server", b"1")
    mirrored = lake.maintenance.mirror(target, url)
    assert mirrored.commits == 2
    assert mirrored.refs == ("dev", "main", "v1")
    ids = mirrored.exported.commits
    assert server.branches == {name: ids[commit] for name, commit in lake.list_branches().items()}
    assert server.tags == {"v1": ids[lake.list_tags()["v1"]]}


def test_a_mirror_that_is_repeated_changes_nothing(lake: Lake, target: MemoryStore, server: Server, url: str) -> None:
    lake.maintenance.mirror(target, url)
    assert not [request for request in server.requests if not request.startswith("GET")]


def test_commits_that_the_server_made_itself_are_not_lost(
    lake: Lake, target: MemoryStore, server: Server, url: str
) -> None:
    server.branches["main"] = "f" * 64
    with lake.session() as s:
        s.put("new", b"1")
    with pytest.raises(ServerDiverged, match="'main'"):
        lake.maintenance.mirror(target, url)
    assert server.branches["main"] == "f" * 64
    assert not [request for request in server.requests if not request.startswith("GET")]


def test_a_mirror_that_was_interrupted_is_continued(lake: Lake, target: MemoryStore, server: Server, url: str) -> None:
    for number in range(3):
        with lake.session() as s:
            s.put("new", b"%d" % number)
    head = server.branches["main"]
    server.most_commits = len(server.commits) + 1
    with pytest.raises(ServerRefused, match="400 no more commits"):
        lake.maintenance.mirror(target, url)
    assert server.branches["main"] == head
    server.most_commits = 1000
    lake.maintenance.mirror(target, url)
    assert server.branches["main"] == lake.maintenance.export(target).commits[lake.list_branches()["main"]]


def test_failures_that_pass_are_tried_again(lake: Lake, target: MemoryStore, server: Server, url: str) -> None:
    server.failures = [500, 503, 429]
    lake.maintenance.mirror(target, url)
    server.failures = [500] * 10
    with pytest.raises(ServerUnavailable, match="500 predicate failed"):
        lake.maintenance.mirror(target, url)


def test_a_namespace_that_is_not_the_servers_moves_no_branch(lake: Lake, server: Server, url: str) -> None:
    other = MemoryStore()
    with lake.session() as s:
        s.put("new", b"1")
    head = server.branches["main"]
    with pytest.raises(ServerUnavailable):
        lake.maintenance.mirror(other, url)
    assert server.branches["main"] == head


@pytest.mark.parametrize("answer", ["text", ["a", "list"], {"message": "no commit"}])
def test_what_is_no_lakefs_server_is_named(
    lake: Lake, target: MemoryStore, server: Server, url: str, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "answer", lambda *request: (200, answer))
    with pytest.raises(ServerRefused, match="is not a lakeFS server"):
        lake.maintenance.mirror(target, url)


def test_credentials_are_not_shown(lake: Lake, target: MemoryStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(server_module.SECRET_VARIABLE, "a-wrong-secret")
    with pytest.raises(ServerRefused, match="401") as error:
        lake.maintenance.mirror(target, url)
    assert "a-wrong-secret" not in str(error.value)
    assert "secret" not in repr(server_module.LakeFSRepository.from_url(url))
    monkeypatch.delenv(server_module.SECRET_VARIABLE)
    with pytest.raises(ServerRefused, match=server_module.SECRET_VARIABLE):
        lake.maintenance.mirror(target, url)


def test_credentials_are_not_sent_elsewhere(lake: Lake, target: MemoryStore, server: Server, url: str) -> None:
    server.failures = [302]
    with pytest.raises(ServerRefused, match="302"):
        lake.maintenance.mirror(target, url)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("lakefs://repo", InvalidUrl),
        ("http://host/repo", InvalidUrl),
        ("file:///repositories/repo", InvalidUrl),
        ("http://me:secret@host/repositories/repo", CredentialsInUrl),
    ],
)
def test_what_is_no_repository_is_refused(lake: Lake, target: MemoryStore, wrong: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        lake.maintenance.mirror(target, wrong)
    assert "me:secret" not in str(raised.value) or error is InvalidUrl
