"""Each test of the store runs on SQLite and on PostgreSQL, in a database of its own.

PostgreSQL is the server that PERFSVC_TEST_POSTGRESQL names (a URL whose user may create databases), else a throwaway
one that is started here, on a socket in a temporary folder. Without any, tests skip with that reason, or fail where
PERFSVC_REQUIRE_POSTGRESQL is 1, as in CI.
"""

import os
import platform
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url, text

from perfsvc.model import (
    Case,
    DeviceInfo,
    Environment,
    Estimate,
    Judgement,
    Measurement,
    Provenance,
    Series,
    Status,
    Verdict,
    Work,
)
from perfsvc.store import State, Store
from perfsvc.store.engine import transaction

ADMIN = "postgres"


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
    settings = {"listen_addresses": "", "unix_socket_directories": home, "fsync": "off", "max_connections": "40"}
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
    for _ in range(300):
        assert process.poll() is None, log.read_text()
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())


def administer(server: str, statement: str, *names: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def beside(server: str, database: str) -> str:
    return make_url(server).set(database=database).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def template_sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A migrated database, made once for every test to copy."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    Store.open(path).close()
    return str(path)


@pytest.fixture(scope="session")
def template_postgresql(server: str) -> Iterator[str]:
    """The same on PostgreSQL, as the name of a database."""
    name = f"perfsvc_template_{uuid.uuid4().hex}"
    administer(server, "CREATE DATABASE {} TEMPLATE template0", name)
    Store.open(beside(server, name)).close()
    yield name
    administer(server, "DROP DATABASE {}", name)


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def new_database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[bool], str]]:
    """Makes a database for this test alone, empty or with our tables, and gives its path or URL."""
    names: list[str] = []

    def make(empty: bool) -> str:
        template = "template0" if empty else request.getfixturevalue(f"template_{kind}")
        name = f"perfsvc_{uuid.uuid4().hex}"
        if kind == "sqlite":
            path = tmp_path / f"{name}.db"
            if not empty:
                shutil.copy(template, path)
            return str(path)
        administer(request.getfixturevalue("server"), "CREATE DATABASE {} TEMPLATE {}", name, template)
        names.append(name)
        return beside(request.getfixturevalue("server"), name)

    yield make
    for name in names:
        administer(request.getfixturevalue("server"), "DROP DATABASE {}", name)


@pytest.fixture
def empty(new_database: Callable[[bool], str]) -> str:
    """An empty database."""
    return new_database(True)


@pytest.fixture
def place(new_database: Callable[[bool], str]) -> str:
    """A database with our tables and no rows."""
    return new_database(False)


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place) as opened:
        yield opened


GPU = DeviceInfo(
    kind="cuda",
    spec="cuda:GPU-1",
    uuid="GPU-1",
    model="NVIDIA H100",
    target="sm_90",
    compute_capability="9.0",
    multiprocessors=132,
    clock_hz=1.98e9,
    memory_bytes=80 * 2**30,
    warp_size=32,
)
TILED = Case("transpose", "tiled", (("n", 4096), ("dtype", "f32")))
NAIVE = replace(TILED, variant="naive")
ENVIRONMENT = Environment(driver="580.1", toolkit="nvcc 13.0.88", power_limit_w=700.0)


@dataclass(frozen=True)
class Story:
    """Writes runs as a service would, in few words."""

    store: Store
    gpu: DeviceInfo = GPU
    environment: Environment = ENVIRONMENT
    tiled: Case = TILED
    naive: Case = NAIVE

    def provenance(self, **given: Any) -> Provenance:
        known = {"started": datetime(2025, 1, 1, tzinfo=UTC), "command_line": "perfsvc run", "suite": "kernels"}
        return Provenance(**{**known, "host": platform.node(), **given})

    def begin(self, **given: Any) -> int:
        return self.store.begin_run(self.provenance(**given))

    def run(self, *cases: Case, state: State = State.FINISHED, **given: Any) -> int:
        """A run that measured some cases, ``tiled`` if none is named."""
        run = self.begin(**given)
        for case in cases or (self.tiled,):
            self.put(run, case)
        self.store.end_run(run, state)
        return run

    def put(
        self,
        run: int,
        case: Case,
        *,
        samples: Sequence[float] = (1e-3, 2e-3, 3e-3),
        device: str = GPU.uuid,
        binary: int | None = None,
        **given: Any,
    ) -> None:
        """A measurement; one that is not ok has no samples."""
        self.store.put_device(replace(self.gpu, uuid=device))
        good = given.get("status", Status.OK) is Status.OK and len(samples) > 0
        known = {"case": case, "device": device, "replica": 0, "status": Status.OK}
        self.store.put_measurement(
            run,
            Measurement(**{**known, "samples_s": tuple(samples) if good else (), **given}),
            environment=self.environment,
            work=Work(read_bytes=4000, written_bytes=2000, flops=10),
            estimate=Estimate(median(samples), min(samples), max(samples), len(samples)) if good else None,
            binary=binary,
        )

    def series(self, case: Case, **given: Any) -> Series:
        return Series(**{"case": case, "device": GPU.uuid, "device_model": GPU.model, **given})

    def judgement(self, case: Case, verdict: Verdict = Verdict.NEW, **given: Any) -> Judgement:
        return Judgement(self.series(case, **given), verdict)

    def judge(self, run: int, case: Case, verdict: Verdict, **given: Any) -> None:
        self.store.put_verdicts(run, [self.judgement(case, verdict, **given)])

    def execute(self, statement: str, **values: Any) -> list[Any]:
        """What an administrator types, past the store."""
        with transaction(self.store._engine, writes=True) as connection:
            result = connection.execute(text(statement), values)
            return list(result) if result.returns_rows else []


@pytest.fixture
def story(store: Store) -> Story:
    return Story(store)
