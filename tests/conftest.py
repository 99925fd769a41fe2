"""A PostgreSQL server for tests, receivers of messages, and reports of Nsight Compute.

What tests do over and over with one result is done once: SQLAlchemy compiles a statement once for all databases, and
the tables of a SQLite database are made as the first migration left them.

The server is the one that PERFSVC_TEST_POSTGRESQL names (a URL whose user may create databases), else a throwaway one
that is started here, on a socket in a temporary folder. Without any, tests skip on a developer's machine and fail
in CI. psycopg is imported where it is used: a GPU box needs none of this.
"""

import contextlib
import errno
import gc
import io
import json
import lzma
import multiprocessing
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import pytest
from sqlalchemy import Engine, event, make_url
from sqlalchemy.util import LRUCache

gc.set_threshold(50_000, 20, 20)  # collecting tests makes many objects and hardly any garbage

ADMIN = "postgres"
WHOLE_COMMANDS = Path(__file__).parent / "e2e"
KEY = "5e" * 32
"""The key of all tests, with which the dumps in tests/data/schemas are signed."""


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a browser, and as slow the tests of whole commands and those on PostgreSQL.

    What commands print and store is in the quick tests too: in the record of behaviour, tests/golden, and in tests that
    are marked quick, because nothing else reaches what they do. What runs on PostgreSQL runs on SQLite as well.
    """
    for item in items:
        is_whole = item.path.is_relative_to(WHOLE_COMMANDS) and not item.get_closest_marker("quick")
        if is_whole or "postgresql" in item.name.partition("[")[2]:
            item.add_marker(pytest.mark.slow)
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


def pytest_collection_finish() -> None:
    """Spare the garbage collector all that lives until the end, such as the tests themselves."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file with the key of all tests: they neither read nor make the developer's own, nor remember nights there."""
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.touch(mode=0o600)
    file.write_text(f"{KEY}\n")
    with mock.patch.dict(os.environ, {"PERFSVC_KEYS": str(file), "XDG_DATA_HOME": str(file.parent / "data")}):
        yield file


class _FullFile(io.FileIO):
    """A file on a full disk: half of what is written fits."""

    def write(self, content: bytes) -> int:  # type: ignore[override]
        super().write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when perfsvc writes a file."""
    monkeypatch.setattr("perfsvc.files.open", _FullFile, raising=False)


def required() -> bool:
    return os.environ.get("PERFSVC_REQUIRE_POSTGRESQL") == "1"


def programs() -> Path | None:
    """The folder of initdb and postgres: on PATH, or where Debian keeps its newest."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version)
    return folders[-1] if folders else None


def version(folder: Path) -> float:
    return float(folder.parent.name) if folder.parent.name.replace(".", "").isdigit() else 0.0


def unprivileged() -> dict[str, object]:
    """PostgreSQL refuses to run as root: who runs it instead, as arguments of subprocess."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = known.get(ADMIN) or known["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server whose user may create databases."""
    named = os.environ.get("PERFSVC_TEST_POSTGRESQL")
    if named:
        yield named
        return
    bin_folder = programs()
    if bin_folder is None:
        reason = "no PostgreSQL: apt-get install postgresql, or set PERFSVC_TEST_POSTGRESQL"
        pytest.fail(reason) if required() else pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="perfsvc-pg-") as name:
        yield from throwaway(bin_folder, Path(name))


def throwaway(bin_folder: Path, home: Path) -> Iterator[str]:
    who = unprivileged()
    if who:
        os.chown(home, who["user"], who["group"])
    run = {"cwd": home, "stdin": subprocess.DEVNULL, **who}
    made = subprocess.run(
        [bin_folder / "initdb", "-D", home / "data", "-U", ADMIN, "-A", "trust", "-N", "-E", "UTF8", "--locale=C"],
        capture_output=True,
        text=True,
        check=False,
        **run,
    )
    assert made.returncode == 0, made.stderr
    careless = dict.fromkeys(("fsync", "synchronous_commit", "full_page_writes", "jit", "autovacuum"), "off")
    settings = {"listen_addresses": "", "unix_socket_directories": home, "max_connections": "40", **careless}
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [bin_folder / "postgres", "-D", home / "data", *options], stdout=log, stderr=log, **run
        )
    try:
        url = f"postgresql://{ADMIN}@/{ADMIN}?host={home}"
        wait_for(url, process, home / "log")
        yield url
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=30)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    for _ in range(300):
        assert process.poll() is None, log.read_text()
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())


@dataclass(frozen=True)
class Databases:
    """The databases of a server, made and dropped by name."""

    server: str

    def create(self, template: str = "template0") -> str:
        """The name of a new database."""
        name = f"perfsvc_{uuid.uuid4().hex}"
        self._administer("CREATE DATABASE {} TEMPLATE {}", name, template)
        return name

    def drop(self, name: str) -> None:
        self._administer("DROP DATABASE {}", name)

    def url(self, name: str) -> str:
        return make_url(self.server).set(database=name).render_as_string(hide_password=False)

    def _administer(self, statement: str, *names: str) -> None:
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.server, autocommit=True) as connection:
            # What a test's thread has left open would forbid to copy or drop a database.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ANY(%s)", [list(names)]
            )
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@pytest.fixture(scope="session")
def databases(server: str) -> Databases:
    return Databases(server)


@pytest.fixture(scope="session")
def template_postgresql(databases: Databases) -> Iterator[str]:
    """Return the name of a migrated database on PostgreSQL, to create others from in a tenth of the time."""
    from perfsvc.store import Store

    name = databases.create()
    Store.open(databases.url(name)).close()
    yield name
    databases.drop(name)


SHAPE = """
SELECT (SELECT string_agg(version_num, '') FROM alembic_version), md5(string_agg(part::text, ',' ORDER BY part::text))
FROM (
    SELECT relname, relkind, attname, atttypid, attnotnull, atthasdef
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relnamespace = 'public'::regnamespace AND attnum > 0
    UNION ALL
    SELECT conname, contype, pg_get_constraintdef(oid), NULL, NULL, NULL FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace
) AS part
"""
"""The revision of a database, and a digest of all columns, indexes and constraints."""
USED = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
    AND relname <> 'alembic_version'
"""
"""The tables that have or had rows."""
COUNT_ANEW = """
SELECT setval(format('%I.%I', schemaname, sequencename), 1, false) FROM pg_sequences WHERE last_value IS NOT NULL
"""


class EmptyDatabases:
    """Databases on PostgreSQL with our tables and no rows; what a test gives back is emptied for the next test.

    Creating and dropping a database takes the server fifty times as long as emptying it.
    """

    def __init__(self, databases: Databases, template: str) -> None:
        self._databases = databases
        self._template = template
        self._free: list[str] = []
        with self._connected(template) as connection:
            self._shape = connection.execute(SHAPE).fetchone()

    def take(self) -> str:
        return self._free.pop() if self._free else self._databases.create(self._template)

    def give_back(self, name: str) -> None:
        """Empty a database; drop it if a test has changed its tables."""
        if self._is_emptied(name):
            self._free.append(name)
        else:
            self._databases.drop(name)

    def end(self) -> None:
        while self._free:
            self._databases.drop(self._free.pop())

    def _is_emptied(self, name: str) -> bool:
        import psycopg
        from psycopg import sql

        with self._connected(name) as connection:
            if connection.execute(SHAPE).fetchone() != self._shape:
                return False
            try:
                connection.execute("SET session_replication_role = replica")  # rows go in any order
            except psycopg.errors.InsufficientPrivilege:
                return False
            for (used,) in connection.execute(USED).fetchall():
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(used)))
                connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(used)))  # as if none had been there
            connection.execute(COUNT_ANEW)
            return not connection.execute(USED).fetchall()

    def _connected(self, name: str):
        import psycopg

        return psycopg.connect(self._databases.url(name), autocommit=True)


@pytest.fixture(scope="session")
def emptied(databases: Databases, template_postgresql: str) -> Iterator[EmptyDatabases]:
    held = EmptyDatabases(databases, template_postgresql)
    yield held
    held.end()


class Compiled(LRUCache):
    """Statements that were compiled for one engine, for all engines of its kind: a key without the engine's dialect.

    A test has a database of its own, and so an engine, which would compile every statement anew. That takes ten times
    as long as it takes SQLite to answer.
    """

    def get(self, key, default=None):
        return super().get(key[1:], default)

    def __setitem__(self, key, value):
        super().__setitem__(key[1:], value)


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Every store's engine has the statements that any was asked for in these tests."""
    from perfsvc.store.schema import engine as of_stores

    connect = of_stores.connect
    compiled = {name: Compiled(capacity=2000) for name in (of_stores.SQLITE, of_stores.POSTGRESQL)}

    def connected(url, **options) -> Engine:
        made = connect(url, **options)
        made.update_execution_options(compiled_cache=compiled[made.dialect.name])
        if made.dialect.name == of_stores.SQLITE:  # a test need not wait 16 ms for the disk when it closes a database
            event.listen(made, "connect", lambda opened, _record: opened.execute("PRAGMA synchronous = OFF"))
        return made

    with mock.patch("perfsvc.store.store.connect", connected):
        yield


class Migrated:
    """Makes the tables of an empty SQLite database in one go, as all migrations left them the first time."""

    def __init__(self) -> None:
        from perfsvc.store.keeping import upgrades

        self._upgrades, self._migrate = upgrades, upgrades._migrate_in
        self._known: dict[str, list[str]] = {}

    def __call__(self, connection) -> None:
        if connection.dialect.name != self._upgrades.SQLITE or not self._upgrades._is_empty(connection):
            self._migrate(connection)
            return
        driver, head = connection.connection.driver_connection, self._upgrades.head()
        if head in self._known:
            for statement in self._known[head]:
                driver.execute(statement)
        else:
            self._migrate(connection)
            self._known[head] = list(driver.iterdump())[1:-1]  # less the transaction around them


@pytest.fixture(scope="session")
def migrated() -> Migrated:
    return Migrated()


@pytest.fixture(scope="module", autouse=True)
def migrated_once(request, migrated) -> Iterator[None]:
    """Tables are migrated once for all SQLite databases, except where migrations are tested.

    Elsewhere it is no more than how each test begins, and takes most of a second.
    """
    if request.path.name in {"test_schema.py", "test_upgrades.py"}:
        yield
        return
    with mock.patch("perfsvc.store.keeping.upgrades._migrate_in", migrated):
        yield


REPORTS = Path(__file__).parent / "data" / "ncu"


@pytest.fixture(scope="session")
def ncu_report(tmp_path_factory) -> Callable[[str], Path]:
    """A report of tests/data/ncu by its name, as Nsight Compute wrote it."""
    folder = tmp_path_factory.mktemp("ncu")

    def unpacked(name: str) -> Path:
        path = folder / f"{name}.ncu-rep"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(lzma.decompress((REPORTS / f"{name}.ncu-rep.xz").read_bytes()))
        return path

    return unpacked


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Callable]:
    """Call a function in another process, as ``elsewhere(function, *arguments, **options)``.

    NVIDIA's library of reports keeps 200 MB until its process ends.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda *given, **options: pool.submit(*given, **options).result()


@dataclass(frozen=True)
class Received:
    """A request that a receiver got."""

    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def json(self):
        return json.loads(self.content)


class Receiver(ThreadingHTTPServer):
    """A web server on loopback that keeps what it gets.

    Attributes:
        answers: what the next requests get, one after the other, and 200 once they are used up: an HTTP status,
            ``hang`` (no answer before the test ends), ``close`` (the connection, without an answer) or ``drip`` (an
            answer that never ends, a byte at a time).
        received: all requests so far, whatever they got.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answers: list[int | str] = []
        self.received: list[Received] = []
        self.over = threading.Event()

    def address(self, schema: str = "json", path: str = "hook/a-secret-token") -> str:
        """Where Apprise is to send."""
        return f"{schema}://127.0.0.1:{self.server_port}/{path}"


class _Answering(BaseHTTPRequestHandler):
    """Answers one request as the receiver was told."""

    server: Receiver

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server.answers.pop(0) if self.server.answers else 200
        self.server.received.append(Received(self.path, dict(self.headers), content))
        match answer:
            case "hang":
                self.server.over.wait(60)
            case "drip":
                self.wfile.write(b"HTTP/1.0 200 OK\r\nX-Drip: ")
                while not self.server.over.wait(0.05):
                    self.wfile.write(b".")
            case int():
                self.send_response(answer)
                self.end_headers()

    def do_GET(self):
        self.server.received.append(Received(self.path, dict(self.headers), b""))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.end_headers()

    def log_message(self, *_):
        """Nothing is printed."""


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver of messages."""
    with Receiver() as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            serving.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of messages, for the time of a test."""
    with receiving() as server:
        yield server
