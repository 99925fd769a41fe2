"""Each test of the store has a database of its own, on SQLite, and on PostgreSQL too if it is ``ON_BOTH``."""

import contextlib
import platform
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event, text, update

from perfsvc.model import (
    TIME,
    CacheState,
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
    Noise,
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
from perfsvc.store.cases import load_series
from perfsvc.store.levels import write_levels
from perfsvc.store.schema.engine import transaction
from perfsvc.store.schema.tables import Levels, SeriesRows


@pytest.fixture(scope="session")
def template_sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a migrated database, which every test copies."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    Store.open(path).close()
    return str(path)


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


@pytest.fixture(scope="session")
def pasts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the folder of databases after nights with which several tests begin, and what executing them returned."""
    return tmp_path_factory.mktemp("pasts"), {}


@pytest.fixture
def after(pasts: tuple[Path, dict[str, Any]], place: str) -> Callable[[str, Callable[[], Any]], Any]:
    """Return a function that begins a test on SQLite after nights that other tests share.

    It takes the name of the nights and a function that executes them, which only the first test calls. That function
    returns the state of its random numbers, so that tests continue the same sequence.
    """
    folder, given = pasts

    def begin(name: str, live: Callable[[], Any]) -> Any:
        is_first = name not in given
        if is_first:
            given[name] = live()
        files = (place, folder / name) if is_first else (folder / name, place)
        with contextlib.ExitStack() as stack:
            source, target = (stack.enter_context(contextlib.closing(sqlite3.connect(file))) for file in files)
            source.backup(target)
        return given[name]

    return begin


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Return the path of a SQLite database with rows in every table."""
    path = tmp_path / "full.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(DUMP.read_text())
    return path


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
DUMP = Path(__file__).parents[2] / "data" / "schemas" / "0001.sql"
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
        self.store.series.register(cases)
        for case in cases or (self.tiled,):
            self.put(run, case)
        self.store.runs.end(run, state)
        return run

    def put(self, run: int, case: Case, **given: Any) -> None:
        """Store a measurement; one that is not ok has no samples."""
        self.put_entries(run, [self.entry(case, **given)])

    def put_entries(self, run: int, entries: Sequence[MeasurementEntry]) -> None:
        for device in {entry.measurement.device for entry in entries}:
            self._put_device(replace(self.gpu, uuid=device))
        self.store.measurements.put(run, entries)
        with self.store.database.writing() as connection:
            write_levels(connection, run)  # as at the end of the run, for tests that do not end it

    def entry(
        self, case: Case, *, samples: Sequence[float] = (1e-3, 2e-3, 3e-3), binary: int | None = None, **given: Any
    ) -> MeasurementEntry:
        good = given.get("status", Status.OK) is Status.OK and len(samples) > 0
        known = {"case": case, "device": GPU.uuid, "replica": 0, "status": Status.OK}
        return MeasurementEntry(
            Measurement(**{**known, "samples_s": tuple(samples) if good else (), **given}),
            self.environment,
            Work(read_bytes=4000, written_bytes=2000, flops=10, precision="fp32"),
            Estimate(median(samples), min(samples), max(samples), len(samples)) if good else None,
            binary,
        )

    def set_noise(
        self, run: int, case: Case, noise: Noise, device: str = GPU.uuid, cache: CacheState = CacheState.COLD
    ) -> None:
        """Store another noise of a case in an ended run than its samples have."""
        noises = {
            "noise_within": noise.within,
            "noise_between": noise.between,
            "noise_places": noise.places,
            "lowest_place_s": noise.lowest_place_s,
            "highest_place_s": noise.highest_place_s,
        }
        with self.store.database.writing() as connection:
            known = load_series(connection, SeriesRows.metric == TIME)
            (number,) = (at for at, of in known.items() if (of.case, of.device, of.cache) == (case, device, cache))
            where = Levels.run_id == run, Levels.series_id == number
            connection.execute(update(Levels).where(*where).values(noises))

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
        replicas = enumerate((seconds * (1 + share),) * 5 for share in noise)
        self.put_entries(run, [self.entry(case, replica=place, samples=times, **given) for place, times in replicas])

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


@pytest.fixture
def cases(request: pytest.FixtureRequest, story: Story) -> list[Case]:
    return [replace(story.tiled, variant=f"v{place}") for place in range(getattr(request, "param", 2))]


six_cases = pytest.mark.parametrize("cases", [6], indirect=True)
"""Marks a test with so many cases that a GPU may have moved as a whole."""


def times(cases: Sequence[Case], *slow: str, by: float = 1.2) -> dict[Case, float]:
    """The seconds of each case; some variants are slower by a factor."""
    return {case: 1e-4 * (by if case.variant in slow else 1) for case in cases}


QUIET = SimpleNamespace(begin=lambda stage, total: None, step=lambda what: None, report=lambda line: None)
"""Progress that nobody watches."""


@contextlib.contextmanager
def counted(store: Store) -> Iterator[list[tuple[str, Any]]]:
    """Give the list of all statements that the store executes meanwhile, each with its parameters."""
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    event.listen(store.database.engine, "before_cursor_execute", note)
    yield statements
    event.remove(store.database.engine, "before_cursor_execute", note)


def plain(of: Mapping[Any, Any]) -> str:
    """Return histories or quantities as text that can be compared."""
    values = {key: [getattr(each, name) for name in each.__slots__] for key, each in of.items()}
    return repr({key: [v.tolist() if isinstance(v, np.ndarray) else v for v in row] for key, row in values.items()})
