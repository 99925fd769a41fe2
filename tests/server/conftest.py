"""The server in this process, on a database with planted nights: SQLite and PostgreSQL."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from perfsvc.config import ServerSettings, Settings
from perfsvc.model import Verdict
from perfsvc.server.app import make_app
from perfsvc.server.serving import Serving
from perfsvc.service.dashboard.live import LivePages
from perfsvc.store import Store
from tests.pages.conftest import HOSTILE, NAIVE, TILED, Nights, planted

BASE = "http://localhost"


def client(
    store: Store, *, peer: tuple[str, int] = ("testclient", 50000), changes: bool = False, **settings: Any
) -> TestClient:
    """Return a client of a new server for a database, which sees the client at the address ``peer``.

    Args:
        changes: whether the server may change the database.
    """
    every = Settings(server=ServerSettings(changes=changes, **settings))
    pages = LivePages(store, forms=changes)
    app = make_app(Serving(store, every, pages, None, Path("/nowhere"), store if changes else None))
    return TestClient(app, base_url=BASE, client=peer, follow_redirects=False, raise_server_exceptions=False)


@contextmanager
def own(kind: str, request: pytest.FixtureRequest, folder: Path, *, nights: bool = False) -> Iterator[Store]:
    """Open a database of a kind, ``sqlite`` (in a folder) or ``postgresql``, for a test that changes it.

    Args:
        nights: whether it has the planted nights; else it is empty.
    """
    if kind == "sqlite":
        if nights:
            shutil.copy(request.getfixturevalue("planted_sqlite"), folder / "there.db")
        with Store.open(folder / "there.db") as store:
            yield store
        return
    databases = request.getfixturevalue("databases")
    if nights:
        name, give_back = databases.create(request.getfixturevalue("planted_name")), databases.drop
    else:
        emptied = request.getfixturevalue("emptied")
        name, give_back = emptied.take(), emptied.give_back
    with Store.open(databases.url(name)) as store:
        yield store
    give_back(name)


@pytest.fixture(scope="session")
def planted_sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("served") / "perfsvc.db"
    with Store.open(path) as store:
        planted(Nights(store))
    return str(path)


@pytest.fixture(scope="session")
def planted_name(databases: Any, template_postgresql: str) -> Iterator[str]:
    """Return the name of the database of the planted nights on PostgreSQL."""
    name = databases.create(template_postgresql)
    with Store.open(databases.url(name)) as store:
        planted(Nights(store))
    yield name
    databases.drop(name)


@pytest.fixture(scope="session")
def planted_postgresql(databases: Any, planted_name: str) -> str:
    return str(databases.url(planted_name))


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def planted_url(request: pytest.FixtureRequest) -> str:
    """Return the database of the planted nights, which tests only read."""
    url: str = request.getfixturevalue(f"planted_{request.param}")
    return url


@pytest.fixture(scope="session")
def web(planted_url: str) -> Iterator[TestClient]:
    """Return a client of a server on each kind of database, which keeps its answers from test to test."""
    with Store.open(planted_url, create=False, read_only=True) as store:
        yield client(store)


@pytest.fixture(scope="session")
def served(planted_sqlite: str) -> Iterator[Callable[..., TestClient]]:
    """Return a function that makes a client of a server on SQLite with some settings."""
    with Store.open(planted_sqlite, create=False, read_only=True) as store:
        yield lambda **settings: client(store, **settings)


@pytest.fixture(scope="session")
def local(served: Callable[..., TestClient]) -> TestClient:
    """Return a client of a server on SQLite with the default settings, which keeps its answers from test to test."""
    return served()


@pytest.fixture
def nights(tmp_path: Path) -> Iterator[Nights]:
    """Return an empty database to store nights in."""
    with Store.open(tmp_path / "perfsvc.db") as store:
        yield Nights(store)


@pytest.fixture
def names() -> SimpleNamespace:
    return SimpleNamespace(tiled=TILED, naive=NAIVE, hostile=HOSTILE, regression=Verdict.REGRESSION)
