"""Each test of the store has a database of its own, on SQLite, and on PostgreSQL too if it is ``ON_BOTH``."""

import contextlib
import platform
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import text

from perfsvc.model import (
    Case,
    Cause,
    ChangeKind,
    DeviceInfo,
    Direction,
    Environment,
    Estimate,
    Judgement,
    Kind,
    Measurement,
    Provenance,
    ReplayRecord,
    RootCause,
    Series,
    Status,
    Suspect,
    Verdict,
    Work,
    digest,
)
from perfsvc.service.compare.compare import judge_run
from perfsvc.store import CaseCode, MeasurementEntry, RunState, Store
from perfsvc.store.schema.all_tables import metadata
from perfsvc.store.schema.engine import transaction
from tests.conftest import USED


@pytest.fixture(scope="session")
def template_sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a migrated database, which every test copies."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    Store.open(path).close()
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def migrated_once(request: pytest.FixtureRequest, migrated: Any) -> Iterator[None]:
    """Make the tables of SQLite databases from those of the first migration, except where migrations are tested."""
    if request.path.name in {"test_schema.py", "test_upgrades.py"}:
        yield
        return
    with mock.patch("perfsvc.store.keeping.upgrades._migrate_in", migrated):
        yield


ON_BOTH = pytest.mark.usefixtures("on_both")
"""For tests of what a database does itself (types, locks, constraints, limits), and for one test of each kind of
query."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"kind", "on_both"} <= set(metafunc.fixturenames):
        metafunc.parametrize("kind", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def on_both() -> None:
    """Ask for the test on both databases."""


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def new_database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[bool], str]]:
    """Return a function that creates a database for this test, empty or with our tables, and returns its URL."""
    with contextlib.ExitStack() as given:

        def make(empty: bool) -> str:
            if kind == "sqlite":
                path = tmp_path / f"{uuid.uuid4().hex}.db"
                if not empty:
                    shutil.copy(request.getfixturevalue("template_sqlite"), path)
                return str(path)
            databases = request.getfixturevalue("databases")
            if empty:
                name, give_back = databases.create(), databases.drop
            else:
                emptied = request.getfixturevalue("emptied")
                name, give_back = emptied.take(), emptied.give_back
            given.callback(give_back, name)
            return str(databases.url(name))

        yield make


@pytest.fixture
def empty(new_database: Callable[[bool], str]) -> str:
    """Return the path or URL of an empty database."""
    return new_database(True)


@pytest.fixture
def place(new_database: Callable[[bool], str]) -> str:
    """Return the path or URL of a database with our tables and no rows."""
    return new_database(False)


class StoredPasts:
    """Databases after nights with which several tests begin: created once, and copied for the other tests.

    Args:
        folder: for SQLite's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[tuple[str, str], tuple[Any, Any]] = {}

    def lived(self, kind: str, place: str, name: str, live: Callable[[], Any]) -> Any:
        """Fill a database as ``live`` does, and return what it returned; only the first call calls it."""
        if (kind, name) not in self._held:
            given = live()
            self._held[kind, name] = self._keep(kind, place), given
            return given
        held, given = self._held[kind, name]
        if kind == "sqlite":
            _copy_file(held, place)
        else:
            _copy_rows(held, place)
        return given

    def _keep(self, kind: str, place: str) -> Any:
        if kind != "sqlite":
            return _keep_rows(place)
        held = str(self._folder / f"{len(self._held)}.db")
        _copy_file(place, held)
        return held


def _copy_file(source: str, target: str) -> None:
    with contextlib.closing(sqlite3.connect(source)) as held, contextlib.closing(sqlite3.connect(target)) as copy:
        held.backup(copy)


def _keep_rows(place: str) -> tuple[dict[str, bytes], list[tuple[str, int]]]:
    """Return the rows of each table, in the order of their references, and the state of each sequence."""
    import psycopg

    rows = {}
    with psycopg.connect(place) as connection, connection.cursor() as cursor:
        used = {name for (name,) in cursor.execute(USED)}
        for table in (one.name for one in metadata().sorted_tables if one.name in used):
            with cursor.copy(f"COPY {table} TO STDOUT (FORMAT BINARY)") as copied:
                rows[table] = b"".join(copied)
        return rows, cursor.execute(
            "SELECT sequencename, last_value FROM pg_sequences WHERE last_value IS NOT NULL"
        ).fetchall()


def _copy_rows(held: tuple[dict[str, bytes], list[tuple[str, int]]], place: str) -> None:
    import psycopg

    rows, counted = held
    with psycopg.connect(place) as connection, connection.cursor() as cursor:
        for table, content in rows.items():
            with cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copied:
                copied.write(content)
        for name, last in counted:
            cursor.execute("SELECT setval(%s, %s)", (name, last))


@pytest.fixture(scope="session")
def histories(tmp_path_factory: pytest.TempPathFactory) -> StoredPasts:
    return StoredPasts(tmp_path_factory.mktemp("histories"))


@pytest.fixture
def after(histories: StoredPasts, kind: str, place: str) -> Callable[[str, Callable[[], Any]], Any]:
    """Return a function that begins a test after nights that other tests share.

    It takes the name of the nights and a function that executes them. That function returns the state of its random
    numbers, so that tests continue the same sequence.
    """
    return partial(histories.lived, kind, place)


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
BENCH = b"# bench.py"
ENVIRONMENT = Environment(driver="580.1", toolkit="nvcc 13.0.88", power_limit_w=700.0)


@dataclass(frozen=True)
class Story:
    """Stores runs as a service would, in few words."""

    store: Store
    gpu: DeviceInfo = GPU
    environment: Environment = ENVIRONMENT
    tiled: Case = TILED
    naive: Case = NAIVE
    _devices: set[DeviceInfo] = field(default_factory=set, init=False)

    def provenance(self, **given: Any) -> Provenance:
        known = {"started": datetime(2025, 1, 1, tzinfo=UTC), "command_line": "perfsvc run", "suite": "kernels"}
        return Provenance(**{**known, "host": platform.node(), **given})

    def begin(self, **given: Any) -> int:
        return self.store.runs.begin(self.provenance(**given))

    def run(self, *cases: Case, state: RunState = RunState.FINISHED, **given: Any) -> int:
        """Store a run that measured some cases, ``tiled`` if none is named, and return its id."""
        run = self.begin(**given)
        for case in cases or (self.tiled,):
            self.put(run, case)
        self.store.runs.end(run, state)
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
        """Store a measurement; one that is not ok has no samples."""
        self._put_device(replace(self.gpu, uuid=device))
        good = given.get("status", Status.OK) is Status.OK and len(samples) > 0
        known = {"case": case, "device": device, "replica": 0, "status": Status.OK}
        entry = MeasurementEntry(
            Measurement(**{**known, "samples_s": tuple(samples) if good else (), **given}),
            self.environment,
            Work(read_bytes=4000, written_bytes=2000, flops=10, precision="fp32"),
            Estimate(median(samples), min(samples), max(samples), len(samples)) if good else None,
            binary,
        )
        self.store.measurements.put(run, [entry])

    def _put_device(self, device: DeviceInfo) -> None:
        if device not in self._devices:
            self.store.devices.put(device)
            self._devices.add(device)

    def put_binary(
        self, record: ReplayRecord, modules: Mapping[str, bytes], bench: bytes, sources: Mapping[str, bytes]
    ) -> int:
        return self.store.binaries.put([CaseCode(record, modules, bench, sources)])[0]

    def binary(
        self, case: Case, code: bytes = b"code", *, source: bytes = b"", bench: bytes = BENCH, steps: Any = ()
    ) -> int:
        """Store a binary with this code and return its id."""
        record = ReplayRecord(case, Kind.KERNEL, (), steps, (digest(code),), digest(bench), seed=7)
        return self.put_binary(record, {digest(code): code}, bench, {"tiled.cu": source or code})

    def put_replicas(
        self, run: int, case: Case, seconds: float, noise: Sequence[float] = (0.0, 0.0, 0.0), **given: Any
    ) -> None:
        """Store a measurement for each replica, whose times differ from the seconds by a share."""
        for replica, share in enumerate(noise):
            self.put(run, case, replica=replica, samples=(seconds * (1 + share),) * 5, **given)

    def end_and_judge(self, run: int, state: RunState = RunState.FINISHED, **given: Any) -> list[Judgement]:
        self.store.runs.end(run, state)
        judgements = judge_run(self.store, run, **{"threshold": None, **given})
        self.store.verdicts.put(run, judgements)
        return list(judgements)

    def series(self, case: Case, **given: Any) -> Series:
        return Series(**{"case": case, "device": GPU.uuid, "device_model": GPU.model, **given})

    def judgement(self, case: Case, verdict: Verdict = Verdict.NEW, **given: Any) -> Judgement:
        return Judgement(self.series(case, **given), verdict)

    def judge(self, run: int, case: Case, verdict: Verdict, **given: Any) -> None:
        self.store.verdicts.put(run, [self.judgement(case, verdict, **given)])

    def raise_finding(
        self, run: int, suspects: Sequence[Suspect], evidence: str = "", root_cause: str = ""
    ) -> list[int]:
        """The findings that hold the suspects of one root cause after a run."""
        updates = self.store.findings.update(run, [], [RootCause(root_cause, evidence, tuple(suspects))])
        return sorted({*updates.raised, *updates.joined, *updates.reopened, *updates.seen})

    def recover(self, run: int, recovered: Sequence[tuple[int, Series]]) -> list[int]:
        """The findings that are resolved because series of them are back at their old levels in a run."""
        first_steps = [(finding, series, 1) for finding, series in recovered]
        return list(self.store.findings.update(run, first_steps, []).resolved)

    def execute(self, statement: str, **values: Any) -> list[Any]:
        """Execute SQL directly, without the store."""
        with transaction(self.store.database.engine, writes=True) as connection:
            result = connection.execute(text(statement), values)
            return list(result) if result.returns_rows else []


@pytest.fixture
def story(store: Store) -> Story:
    return Story(store)


@pytest.fixture
def new_story() -> Callable[[Store], Story]:
    """Return a function that begins a story in another database."""
    return Story


@pytest.fixture
def tiled(story: Story) -> Series:
    return story.series(story.tiled)


@pytest.fixture
def naive(story: Story) -> Series:
    return story.series(story.naive)


@pytest.fixture
def five_nights(story: Story) -> list[int]:
    """Five runs that measured both cases, the first of them the level of both."""
    numbers = [story.run(story.tiled, story.naive) for _ in range(5)]
    story.store.verdicts.put(1, [story.judgement(case) for case in (story.tiled, story.naive)])
    return numbers


def suspect(
    series: Series,
    ratio: float = 1.2,
    *,
    cause: Cause = Cause.KERNEL,
    change: ChangeKind = ChangeKind.REGRESSION,
    direction: Direction = Direction.SLOWER,
    baseline: int = 1,
    run: int | None = None,
) -> Suspect:
    """A series that is slower by a factor than in a baseline run."""
    judged = Judgement(
        series, Verdict.REGRESSION, "", ratio, ratio - 0.1, ratio + 0.1, baseline, run, 1e-3, ratio * 1e-3, cause=cause
    )
    return Suspect(judged, change, direction)


QUIET = SimpleNamespace(begin=lambda stage, total: None, step=lambda what: None, report=lambda line: None)
"""Progress that nobody watches."""
