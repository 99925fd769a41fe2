"""Each test of the store runs on SQLite and on PostgreSQL (tests/conftest.py), in a database of its own."""

import platform
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from sqlalchemy import text

from perfsvc.model import (
    Case,
    DeviceInfo,
    Environment,
    Estimate,
    Judgement,
    Measurement,
    Provenance,
    ReplayRecord,
    Series,
    Status,
    Verdict,
    Work,
)
from perfsvc.store import Code, Entry, State, Store
from perfsvc.store.engine import transaction


@pytest.fixture(scope="session")
def template_sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A migrated database, made once for every test to copy."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    Store.open(path).close()
    return str(path)


@pytest.fixture(scope="session")
def template_postgresql(databases: Any) -> Iterator[str]:
    """The same on PostgreSQL, as the name of a database."""
    name = databases.create()
    Store.open(databases.url(name)).close()
    yield name
    databases.drop(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def new_database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[bool], str]]:
    """Makes a database for this test alone, empty or with our tables, and gives its path or URL."""
    names: list[str] = []

    def make(empty: bool) -> str:
        template = "template0" if empty else request.getfixturevalue(f"template_{kind}")
        if kind == "sqlite":
            path = tmp_path / f"{uuid.uuid4().hex}.db"
            if not empty:
                shutil.copy(template, path)
            return str(path)
        databases = request.getfixturevalue("databases")
        names.append(databases.create(template))
        return str(databases.url(names[-1]))

    yield make
    for name in names:
        request.getfixturevalue("databases").drop(name)


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
        entry = Entry(
            Measurement(**{**known, "samples_s": tuple(samples) if good else (), **given}),
            self.environment,
            Work(read_bytes=4000, written_bytes=2000, flops=10),
            Estimate(median(samples), min(samples), max(samples), len(samples)) if good else None,
            binary,
        )
        self.store.put_measurements(run, [entry])

    def put_binary(
        self, record: ReplayRecord, modules: Mapping[str, bytes], bench: bytes, sources: Mapping[str, bytes]
    ) -> int:
        return self.store.put_binaries([Code(record, modules, bench, sources)])[0]

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
