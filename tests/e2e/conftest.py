import atexit
import contextlib
import copy
import functools
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from perfsvc.cli import main
from perfsvc.measure.host.pool import worker_servers
from perfsvc.process.fork_servers import ForkServers

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is for what a shell starts in the background, and so it would be for every command that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SUITES = Path(__file__).parent / "suites"
FORKING = (
    "perfsvc.measure.host.pool.worker_servers",
    "perfsvc.service.confirm.confirm_case.worker_servers",
    "perfsvc.service.bisect.bisect.worker_servers",
)
"""Where commands start the fork servers of their workers."""


@functools.cache
def shared_servers() -> ForkServers:
    """Fork servers for all tests of this process: a new one imports for most of a second before it can fork."""
    servers = worker_servers()
    atexit.register(servers.__exit__, None, None, None)
    return servers


@contextlib.contextmanager
def sharing_servers():
    """Fork the workers of commands from the shared servers, which stay when a command ends."""
    with contextlib.ExitStack() as patched:
        for name in FORKING:
            patched.enter_context(mock.patch(name, return_value=contextlib.nullcontext(shared_servers())))
        yield


@dataclass(frozen=True)
class Ended:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    def require(self, code: int | None) -> "Ended":
        """This, if it ended with that code."""
        assert code is None or self.code == code, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


def text_of(stream: io.StringIO | io.TextIOWrapper) -> str:
    """Return all that was written to a stream in memory."""
    if isinstance(stream, io.StringIO):
        return stream.getvalue()
    stream.seek(0)
    return stream.read()


class Workplace:
    """An empty folder with a database, a cache and a script of its own, in which the command line is run.

    Calling it runs a command in this process, which is quick; ``process`` and ``start`` run it in a new one. Commands
    in this process share fork servers.

    Attributes:
        own_servers: whether commands in this process start fork servers of their own.
    """

    suites = SUITES

    def __init__(self, folder: Path, cache: Path, *, own_servers: bool = False) -> None:
        self.own_servers = own_servers
        self.folder = folder
        self.script = folder / "script.json"
        self.database = folder / "perfsvc.db"
        # A developer's settings do not reach the tests, but the keys that conftest.py made for them do.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name == "PERFSVC_KEYS" or not name.startswith("PERFSVC_")
        }
        self.environment = inherited | {
            "PERFSVC_CACHE": str(cache),
            "PERFSVC_DB": str(self.database),
            "PERFSVC_LOCKS": str(folder / "locks"),  # tests that run at once share no GPU
            "XDG_DATA_HOME": str(folder / "data"),  # each remembers its own nights
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }

    def start(self, *arguments, **options) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "perfsvc", *map(str, arguments)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def __call__(self, *arguments, code: int | None = None, encoding: str = "") -> Ended:
        """Run a command whose standard streams have an encoding; without one they take every text as it is."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding) if encoding else io.StringIO() for _ in range(2))
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self.environment, clear=True),
            mock.patch.object(sys, "argv", ["perfsvc", *map(str, arguments)]),
            mock.patch.object(sys.modules["__main__"], "__package__", None),  # else click names it in a usage line
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.nullcontext() if self.own_servers else sharing_servers(),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        return Ended(ended.value.code or 0, *map(text_of, (out, err))).require(code)

    def process(self, *arguments, code: int | None = None) -> Ended:
        """The same in a process of its own."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=100)
        return Ended(process.returncode, out, err).require(code)

    def wait_for(self, run: subprocess.Popen | None, measurements: int) -> None:
        """Wait until a run has stored so many measurements: a started one, or None for one of another thread."""
        stored = 0
        while stored < measurements:
            assert run is None or run.poll() is None, run.communicate()
            time.sleep(0.1)
            with contextlib.suppress(sqlite3.OperationalError):  # the tables may not be there yet
                stored = self.rows("SELECT count(*) FROM measurements")[0][0]

    def play(self, cases: dict, **script) -> None:
        """Writes the fake device's script."""
        self.script.write_text(json.dumps({"cases": cases, **script}))

    def fake(self, *arguments, suite: str = "scale", code: int | None = None) -> Ended:
        """Runs a suite on the fake device."""
        return self("run", "--device", f"fake:{self.script}", "--suite", SUITES / suite, *arguments, code=code)

    def cpu(self, *arguments, suite: str, code: int | None = None) -> Ended:
        """Runs a suite on the CPU device."""
        return self("run", "--device", "cpu", "--suite", SUITES / suite, *arguments, code=code)

    def own(self, suite: str) -> Path:
        """A suite in this folder, outside any repository, so that no uncommitted change counts."""
        return Path(shutil.copytree(SUITES / suite, self.folder / suite))

    def rebuild(self, suite: Path) -> None:
        """Other binaries of every case of such a suite, of the same speed."""
        for source in suite.glob("*/*.cu"):
            source.write_text(source.read_text() + "// changed\n")

    def modules(self, run: int = 1) -> dict[str, str]:
        """Return the digest of each variant's binary in a run."""
        query = (
            "select distinct variant, sha256 from binary_files join measurements using (binary_id) "
            "join cases on cases.id = case_id where role = 'module' and run_id = ?"
        )
        return dict(self.rows(query, run))

    def rows(self, query: str, *values) -> list[tuple]:
        """What a SQL query finds in the database."""
        connection = sqlite3.connect(self.database)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One for all the processes of these tests (pytest-xdist gives each a folder beside the others')."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "perfsvc-cache"


@pytest.fixture
def perfsvc(tmp_path, cache):
    return Workplace(tmp_path, cache)


@pytest.fixture(scope="session")
def new_workplace(tmp_path_factory, cache):
    """Makes a workplace for tests that share what was measured in it and only read."""
    return lambda: Workplace(tmp_path_factory.mktemp("workplace"), cache)


@pytest.fixture(scope="session")
def prepared(new_workplace):
    """Return a function that returns a workplace as a function prepared it: the first time only, it calls the function.

    Each test has the workplace to itself. It lies in the same folder for all of them, and is set back before each.
    """
    folders: dict[Callable[[Workplace], None], tuple[Workplace, Path]] = {}

    def workplace(prepare: Callable[[Workplace], None]) -> Workplace:
        if prepare not in folders:
            made = new_workplace()
            prepare(made)
            kept = Path(f"{made.folder}-kept")
            shutil.copytree(made.folder, kept, symlinks=True)
            folders[prepare] = made, kept
        else:
            made, kept = folders[prepare]
            shutil.rmtree(made.folder)
            shutil.copytree(kept, made.folder, symlinks=True)
        return copy.deepcopy(made)

    return workplace
