"""Kill commands at random moments, run the next command, and look for what was lost or left behind.

    python tests/benchmarks/killed_commands.py [--kills 300] [--jobs 1] [--seed 7] [--only bisect] [--keep folder]
                                               [--postgresql]

The commands are run, run with a renamed variant, nightly, nightly --resume, import, runs exclude, sync, db prune, db
upgrade, dashboard build and bisect, on the fake device over a small suite in git. Each is killed with SIGKILL, and then
typed again (a night is resumed). The claims: the second command ends as an undisturbed one; each measurement that was
stored before is still stored; the database is sound; each level is what its measurements say; an import is stored once,
and a copy holds each measurement once; and no process, worktree, temporary file or lock is left. A resumed night also
has the verdicts, findings, stages and messages of an undisturbed one, under the same run and seed; its messages have
one key, and it measures nothing again that was stored. With --postgresql, the script starts a server of its own, and
all databases are on it.
"""

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool
from workbench import Claim, commit, finish, git, parsed, postgresql, processes_with, table, webhook

from perfsvc.store.schema.engine import resolve

if TYPE_CHECKING:
    from tests.conftest import Databases

RESULTS = Path(__file__).resolve().parents[1] / "data" / "formats" / "google-benchmark.json"
SCALE = Path(__file__).resolve().parents[1] / "e2e" / "suites" / "scale"
SETTINGS = """\
suite = "repository/kernels"
database = "{database}"

[run]
devices = ["fake:script.json"]
replicas = 2

[notify]
targets = {{ team = "TEAM_URL" }}
"""
USUAL, SLOW = {"seconds": 1e-4}, {"seconds": 1.2e-4}
CASE = "scale/beta[n=100]"
COMMITS, GOOD = 6, 3
"""The commits of the suite, and how many of them have fast binaries."""
BEGAN = "update nights set started_at = '2026-01-0{0} 02:00:00.000000' where id = {0}"
COMMANDS = {
    "run": ("run",),
    "rename": ("run", "--suite", "renamed/kernels"),
    "exclude": ("runs", "exclude", "2", "--reason", "a test"),
    "nightly": ("nightly",),
    "resume": ("nightly", "--resume"),
    "import": ("import", "google-benchmark", "results.json"),
    "sync": ("sync", "{main}", "{copy}"),
    "prune": ("db", "prune", "--samples", "1s", "--binaries", "1s", "--nights", "1s", "--force"),
    "upgrade": ("db", "upgrade", "--db", "{new}"),
    "build": ("dashboard", "build"),
    "bisect": ("bisect", CASE, "--good", "v0", "--bad", "v5"),
}
MEASURING = "select 1 from measurements join nights on nights.run_id = measurements.run_id where nights.id = 4"
CODE = "select exit_code from nights where id = 4"  # the night after those of the good commits
RUN = "select run_id, seed from nights join runs on runs.id = run_id where nights.id = 4"
HELD = "select count(*) from measurements where run_id = 4"
OF_CASES = "join cases on cases.id = case_id where run_id = 4"
OF_SERIES = f"join series on series.id = series_id {OF_CASES}"
OF_A_NIGHT = (
    "select name, metric, verdict, ratio, cause from levels {1} order by 1, 2",
    "select name, replica, status, count(*) from measurements {0} group by 1, 2, 3 order by 1, 2, 3",
    "select name, metric, status, noise_within from levels {1} order by 1, 2",
    "select name, cause, verdict, ratio from confirmations {1} order by 1",
    "select id, cause, state, first_run_id, last_run_id from findings order by id",
    "select finding_id, series_id, ratio from finding_cases order by 1, 2",
    "select finding_id, kind, run_id, text from finding_events order by id",
    "select night_id, title, body from messages order by 1",
    "select target, sent_at is not null from deliveries order by 1",
    "select name, number, state, exit_code from stages where night_id = 4 order by number",
    "select id, state, run_id, exit_code from nights order by id",
    "select id, state from runs order by id",
)
"""Queries of a night's results, without times, paths and random values, for ``OF_CASES`` and ``OF_SERIES``."""
IMPORTED = "select count(*) from runs where suite not like '%kernels'"
SAME = (
    "select uid, replica, cache, status, median_s from measurements join runs on runs.id = run_id order by 1, 2, 3, 5"
)
NIGHTS = ("nightly", "resume")
NEW = {"upgrade": "new", "sync": "copy"}
"""The databases that commands make."""
DATABASES = ("main", *NEW.values())
LEFTOVERS = (".perfsvc-new-*", "perfsvc-tmp-*")
TOKEN = "KILLED_COMMANDS_PLACE"  # noqa: S105 - marks the processes of a place, no secret
ENDING_S = 20.0
"""Within this time, the workers of a killed command must have noticed that it is gone."""


@dataclass(frozen=True)
class Kill:
    """A killed command: what was wrong with it after the next command, nothing if all is well."""

    command: str
    at_s: float
    wrong: tuple[str, ...]


class Place:
    """A folder with a suite in git, and databases: files in the folder, or databases of a PostgreSQL server.

    Args:
        folder: the folder.
        server: the server that has the databases; None for files.
        hook: the address of a webhook, and the messages that arrived there.
    """

    def __init__(
        self, folder: Path, server: "Databases | None", hook: tuple[str, Sequence[dict[str, Any]]] = ("json://-", ())
    ) -> None:
        self.folder = folder
        self._hook = hook
        self.temporary = folder / "tmp"
        self._server = server
        self._names = {name: server.create() if server else f"{name}.db" for name in DATABASES}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PERFSVC_")},
            "PERFSVC_CACHE": str(folder / "cache"),
            "PERFSVC_LOCKS": str(folder / "locks"),
            "PERFSVC_KEYS": str(folder / "keys"),
            "XDG_DATA_HOME": str(folder / "data"),
            "TMPDIR": str(self.temporary),
            "TEAM_URL": f"{hook[0]}/{folder.name}",
            TOKEN: str(folder),
        }

    def copied(self, folder: Path) -> "Place":
        """Return a copy of this place."""
        shutil.copytree(self.folder, folder, symlinks=True)
        place = Place(folder, self._server, self._hook)
        if self._server:
            self._server.drop(place._names["main"])
            place._names["main"] = self._server.create(self._names["main"])
        place.write_settings()
        return place

    def remove(self) -> None:
        """Remove the folder and the databases."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._server:
            for name in self._names.values():
                self._server.drop(name)

    def location(self, database: str) -> str:
        """Return the name of a file in the folder, or the URL of a database."""
        name = self._names[database]
        return self._server.url(name) if self._server else name

    def write_settings(self) -> None:
        """Write the settings of this place."""
        (self.folder / "perfsvc.toml").write_text(SETTINGS.format(database=self.location("main")))

    def words(self, command: str) -> list[str]:
        """Return the words of a command."""
        locations = {name: self.location(name) for name in DATABASES}
        return [word.format(**locations) for word in COMMANDS[command]]

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[str]:
        """Start a command."""
        command = [sys.executable, "-m", "perfsvc", *arguments]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **quiet)  # type: ignore[call-overload]

    def end(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Run a command to its end, and return its exit code and what it printed."""
        with self.start(arguments) as process:
            printed, _ = process.communicate()
        return process.returncode, printed

    def kill(self, arguments: Sequence[str], at_s: float) -> None:
        """Start a command and kill it after a time."""
        with self.start(arguments) as process:
            time.sleep(at_s)
            process.kill()

    def stop_in_run(self) -> None:
        """Start a night, and kill it while it measures."""
        with self.start(self.words("nightly")) as process:
            while process.poll() is None and not self.rows(MEASURING):
                time.sleep(0.02)
            process.kill()

    def rows(self, query: str, database: str = "main") -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._connected(database) as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    def change(self, *statements: str) -> None:
        """Change rows of the database."""
        with self._connected("main") as connection:
            for statement in statements:
                connection.execute(text(statement))

    @contextlib.contextmanager
    def _connected(self, database: str) -> Iterator[Connection]:
        where = (
            resolve(self.location(database)) if self._server else f"sqlite:///{self.folder / self.location(database)}"
        )
        engine = create_engine(where, poolclass=NullPool)
        with engine.begin() as connection:
            yield connection

    @property
    def results(self) -> list[Any]:
        """The results of the fourth night, and what it did to the findings."""
        return [self.rows(query.format(OF_CASES, OF_SERIES)) for query in OF_A_NIGHT]

    @property
    def measured(self) -> list[int]:
        """How many cases each attempt at the fourth night had to measure, by its log."""
        log = self.folder / "nights" / "4" / "log.jsonl"
        lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
        return [line["steps"] for line in lines if line["event"] == "measuring"]

    @property
    def keys(self) -> set[str]:
        """The keys of the messages about this place."""
        path = f"/{self.folder.name}"
        return {post["headers"]["Idempotency-Key"] for post in self._hook[1] if post["path"] == path}

    def git(self, *arguments: str) -> str:
        """Return what git prints in the repository of the suite."""
        return git(self.folder / "repository", *arguments)

    def processes(self) -> list[str]:
        """Return the numbers of this place's processes that are alive."""
        return [process.name for process in processes_with(TOKEN, str(self.folder))]

    def left_behind(self) -> list[str]:
        """Return everything that commands left and that no command needs."""
        until = time.monotonic() + ENDING_S
        while (alive := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        left = [f"process {pid}" for pid in alive]
        left += [f"temporary file {path.name}" for path in self.temporary.iterdir()]
        left += [f"file {path.name}" for pattern in LEFTOVERS for path in self.folder.rglob(pattern)]
        trees = self.git("worktree", "list", "--porcelain").count("worktree ") - 1
        left += [f"{trees} worktrees"] if trees else []
        return left + [f"lock {path.name}" for path in self.folder.rglob("*.lock") if is_locked(path)]


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def prepare(folder: Path, server: "Databases | None", hook: tuple[str, Sequence[dict[str, Any]]]) -> Place:
    """Return a place with a suite of six commits, of which the last three are slow, and nights of the first three."""
    place = Place(folder, server, hook)
    place.temporary.mkdir(parents=True)
    suite = folder / "repository" / "kernels"
    shutil.copytree(SCALE, suite, ignore=shutil.ignore_patterns("__pycache__"))
    place.write_settings()
    shutil.copy(RESULTS, folder / "results.json")
    (folder / "script.json").write_text(json.dumps({"cases": {"*": USUAL}}))
    shutil.copytree(suite, folder / "renamed" / "kernels")
    (bench,) = (folder / "renamed").rglob("bench.py")
    bench.write_text(bench.read_text().replace('variant("beta",', 'variant("delta", formerly=("beta",),'))
    (source,) = suite.glob("*/*.cu")
    kernel = source.read_text()
    for number in range(COMMITS):
        source.write_text(f"{kernel}// {number}\n")
        commit(folder / "repository", f"commit {number}")
        place.git("tag", f"v{number}")
        if number < GOOD:
            code, printed = place.end(["nightly"])
            if code:
                raise RuntimeError(f"a night ended with {code}:\n{printed}")
    fast = place.rows("select distinct sha256 from binary_files where role = 'module'")
    cases = {"*": USUAL, "scale/beta": SLOW, **{digest: USUAL for (digest,) in fast}}
    (folder / "script.json").write_text(json.dumps({"cases": cases}))
    place.change(*(BEGAN.format(number + 1) for number in range(GOOD)))
    shutil.rmtree(folder / "data")  # it would remember other times
    return place


def stored(place: Place) -> set[tuple[Any, ...]]:
    """Return what identifies each stored measurement, and its median."""
    return set(place.rows("select run_id, case_id, replica, cache, status, median_s from measurements"))


@dataclass(frozen=True)
class Undisturbed:
    """What a command that is not killed does: its exit code, its seconds, and the results of its night."""

    code: int
    wall_s: float
    results: list[Any]
    measured: int


def killed(place: Place, name: str, at_s: float, expected: int, night: Undisturbed) -> Kill:
    """Kill a command, type it again, and return what is wrong then; ``night`` is the night that was not killed."""
    if name == "resume":
        place.stop_in_run()
    place.kill(place.words(name), at_s)
    before, known, held = stored(place), place.rows(RUN), place.rows(HELD)[0][0]
    tried = len(place.measured)
    if name == "import" and place.rows(IMPORTED) == [(1,)]:
        expected = 0  # all was stored before the kill, so there is nothing left to complain about
    if name == "exclude" and place.rows("select id from exclusions"):
        expected = 2  # it is excluded already
    code, printed = place.end(next_command(place, name))
    wrong = place.left_behind()
    if name in NIGHTS:
        ((code,),) = place.rows(CODE)
        left = night.measured - held if tried else night.measured  # a night that has not begun to measure measures all
        wrong += [f"{steps - left} measured again" for steps in place.measured[tried:] if steps > left]
        wrong += ["another result"] if place.results != night.results else []
        wrong += ["another run or seed"] if place.rows(RUN)[: len(known)] != known else []
        wrong += [f"{len(place.keys)} keys"] if len(place.keys) != 1 else []
    if code != expected:
        wrong.append(f"exit code {code} instead of {expected}: {printed[-500:]}")
    if lost := before - stored(place):
        wrong.append(f"{len(lost)} measurements are lost")
    if name == "import" and (runs := place.rows(IMPORTED)) != [(1,)]:
        wrong.append(f"{runs[0][0]} imported runs")
    if name == "sync" and place.rows(SAME) != place.rows(SAME, "copy"):
        wrong.append("copy: the copy has other measurements")
    for database in filter(None, ("main", NEW.get(name))):
        code, printed = place.end(["db", "check", "--db", place.location(database)])
        wrong += [f"{database}: {printed}"] if code else []
        _, printed = place.end(["db", "rebuild", "--db", place.location(database)])
        wrong += [] if "all levels are what the measurements say" in printed else [f"levels of {database}: {printed}"]
    return Kill(name, at_s, tuple(wrong))


def next_command(place: Place, name: str) -> Sequence[str]:
    """Return the command after a killed one: the same, or the one that goes on with the night."""
    if name not in NIGHTS:
        return place.words(name)
    codes = place.rows(CODE)
    if not codes:  # killed before the night began
        return place.words("nightly")
    return place.words("resume") if codes == [(None,)] else ("runs",)


def undisturbed(place: Place, name: str) -> Undisturbed:
    """Run a command that is not killed."""
    if name == "resume":
        place.stop_in_run()
    began = time.monotonic()
    code, _ = place.end(place.words(name))
    wall_s = time.monotonic() - began
    return Undisturbed(code, wall_s, *((place.results, place.measured[0]) if name in NIGHTS else ([], 0)))


def claims(kills: Sequence[Kill]) -> list[Claim]:
    """Return the claims."""
    return [
        Claim(what, sum(any(re.match(sign, text) for text in kill.wrong) for kill in kills), 0)
        for what, sign in (
            ("commands that ended in another way", "exit code"),
            ("kills that lost a measurement", r"\d+ measurements"),
            ("kills that damaged a database, or made its copy differ", "|".join(DATABASES)),
            ("kills after which a level was not what its measurements say", "levels of"),
            ("kills that left a process", "process"),
            ("kills that left a worktree", r"\d+ worktrees"),
            ("kills that left a temporary file", "(temporary )?file "),
            ("kills that left a lock", "lock "),
            ("kills that made an import be stored twice or not at all", r"\d+ imported"),
            ("nights with other verdicts, findings, stages or messages", "another result"),
            ("nights under another run or seed", "another run"),
            ("nights whose messages had no key or several", r"\d+ keys"),
            ("nights that measured something again that was stored", r"\d+ measured"),
        )
    ]


def main() -> int:
    """Kill the commands and print the results."""
    options = parsed(
        __doc__,
        ("--kills", 300, "how many commands are killed"),
        ("--jobs", 1, "how many are killed at once"),
        ("--seed", 7, "of the random moments"),
        ("--only", {"choices": sorted(COMMANDS), "action": "append"}, "kill only this command"),
        ("--keep", Path, "copy the files of kills with something wrong to this folder"),
        ("--postgresql", False, "keep the databases on a server of PostgreSQL"),
    )
    chance, names = random.Random(options.seed), options.only or list(COMMANDS)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perfsvc-kills-")))
        jobs = stack.enter_context(ThreadPoolExecutor(options.jobs))
        server = stack.enter_context(postgresql(folder)) if options.postgresql else None
        before = prepare(folder / "before", server, stack.enter_context(webhook()))
        usual = {name: undisturbed(before.copied(folder / name), name) for name in {"nightly", *names}}

        def kill_and_check(number: int, name: str, share: float) -> Kill:
            place = before.copied(folder / str(number))
            result = killed(place, name, share * usual[name].wall_s, usual[name].code, usual["nightly"])
            if result.wrong and options.keep:
                shutil.copytree(place.folder, options.keep / f"{number}-{name}", symlinks=True)
            place.remove()
            print(f"kill {number + 1} of {options.kills}: {name}, {list(result.wrong)}", file=sys.stderr, flush=True)
            return result

        numbers = range(options.kills)
        chosen = [names[number % len(names)] for number in numbers]
        kills = list(jobs.map(kill_and_check, numbers, chosen, [chance.random() for _ in numbers]))
    counted, wrong = Counter(kill.command for kill in kills), defaultdict(list)
    for kill in kills:
        wrong[kill.command] += kill.wrong
    rows = [[name, f"{usual[name].wall_s:.1f} s", str(counted[name]), str(len(wrong[name]))] for name in names]
    print(table(["command", "undisturbed", "kills", "wrong"], rows))
    for ended in kills:
        for what in ended.wrong:
            print(f"{ended.command} killed after {ended.at_s:.2f} s: {what}")
    return finish(claims(kills), options.json, kills=[asdict(kill) for kill in kills])


if __name__ == "__main__":
    sys.exit(main())
