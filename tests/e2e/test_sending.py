"""``perfsvc send`` and ``perfsvc serve`` as real processes that talk over HTTP.

tests/server/test_receiving.py receives runs into both databases. Here, one test stores a run in both.
"""

import gzip
import json
import socket
from urllib.parse import urlsplit

import pytest

from perfsvc.service.transfer import send as sending
from perfsvc.service.transfer.body import written
from perfsvc.store import Store

pytestmark = pytest.mark.timeout(300)


class Hub:
    """A server that collects runs, in a process of its own."""

    def __init__(self, perfsvc, database):
        self._perfsvc, self.database = perfsvc, database
        self.token = self.make_token("box")
        self._process = perfsvc.start("serve", "--port", 0, "--db", database)
        line = self._process.stdout.readline()
        assert line.startswith("serving at http://"), self._process.stderr.read()
        self.url = line.split()[-1]

    def make_token(self, name):
        made = self._perfsvc("token", "create", name, "--scope", "write", "--db", self.database, code=0)
        return made.out.strip()

    def connect(self):
        parts = urlsplit(self.url)
        return socket.create_connection((parts.hostname, parts.port), timeout=100)

    def stop(self):
        self._process.kill()
        self._process.communicate()

    def runs(self):
        with Store.open(self.database, create=False, read_only=True) as store:
            return [run.id for run in store.runs.list()]

    def log(self):
        shown = self._perfsvc("token", "log", "--format", "json", "--db", self.database, code=0)
        return [(entry["who"], entry["action"], entry["status"]) for entry in json.loads(shown.out)]


@pytest.fixture
def kind():
    """The kind of the database into which the server stores runs."""
    return "sqlite"


@pytest.fixture
def hub(request, perfsvc, kind):
    (perfsvc.folder / "perfsvc.toml").write_text('[server]\nchanges = true\nupload = "2s"\n')
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)
    location, drop = perfsvc.folder / "there.db", lambda: None
    if kind == "postgresql":
        databases = request.getfixturevalue("databases")
        name = databases.create(request.getfixturevalue("template_postgresql"))
        location, drop = databases.url(name), lambda: databases.drop(name)
    hub = Hub(perfsvc, str(location))
    yield hub
    hub.stop()
    drop()


@pytest.fixture
def send(perfsvc, hub, monkeypatch):
    """Return a function that sends the newest run, once and with a token."""
    monkeypatch.setattr(sending, "ATTEMPTS", 1)

    def send(token=hub.token, *, code=0):
        monkeypatch.setitem(perfsvc.environment, sending.VARIABLE, token)
        return perfsvc("send", "--to", hub.url, code=code)

    return send


def head(hub, body, *, path="api/v1/runs", kind="application/x-ndjson", length=None):
    """Return the beginning of a request, up to its body."""
    lines = [
        f"POST /{path} HTTP/1.1",
        f"Host: {urlsplit(hub.url).netloc}",
        f"Authorization: Bearer {hub.token}",
        f"Content-Type: {kind}",
        f"Content-Length: {length or len(body)}",
    ]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


def body_of(perfsvc):
    with Store.open(perfsvc.database, create=False, read_only=True) as store:
        return gzip.decompress(b"".join(written(store, 1)))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_run_that_is_sent_twice_is_stored_once(hub, send):
    assert "run 1 is run 1 there\n" in send().out
    assert "run 1 is run 1 there, as before" in send().out
    assert hub.runs() == [1]
    assert hub.log() == [("box", "send a run", 200), ("box", "send a run", 201)]


def test_without_a_server_the_run_stays_and_is_sent_later(perfsvc, hub, send):
    hub.stop()
    ended = send(code=5)
    assert "run 1 was not sent: Connection refused" in ended.err.replace("[Errno 111] ", "")
    assert "cure: see whether perfsvc serve runs there" in ended.err
    again = perfsvc.start("serve", "--port", urlsplit(hub.url).port, "--db", hub.database)
    try:
        assert again.stdout.readline().startswith("serving at")
        assert "run 1 is run 1 there\n" in send().out
    finally:
        again.kill()
        again.communicate()


def test_a_connection_that_ends_in_the_middle_stores_nothing(perfsvc, hub, send):
    body = body_of(perfsvc)
    with hub.connect() as connection:
        connection.sendall(head(hub, body) + body[: len(body) // 2])
    assert "run 1 is run 1 there\n" in send().out
    assert hub.runs() == [1]
    assert ("box", "send a run", 400) in hub.log()


def test_a_run_that_arrives_too_slowly_ends_with_408_and_others_are_not_delayed(perfsvc, hub, send):
    body = body_of(perfsvc)
    slow = [hub.connect() for _ in range(30)]
    for connection in slow:
        connection.sendall(head(hub, body) + body[:10])
    assert "run 1 is run 1 there\n" in send().out
    for connection in slow:
        with connection, connection.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
            assert b"did not arrive within 2 s" in answer.read()  # to the end: the server has closed the connection
    assert hub.runs() == [1]
