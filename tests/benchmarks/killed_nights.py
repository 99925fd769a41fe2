"""Kill nights at random moments, resume them, and compare them with the same night undisturbed.

    python tests/benchmarks/killed_nights.py [--nights 50] [--jobs 1] [--seed 7]

On the fake device, over two benchmarks of the built-in suite, there is a night, then a second one with a variant 5 %
slower. The second is killed with SIGKILL at a random moment and resumed by ``perfsvc nightly --resume``. The claims:
verdicts, findings, stages and message equal those of an undisturbed second night, under the same run and seed; the
receiver got one key for all its messages; and nothing that was stored was measured again.
"""

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from workbench import SUITE, Claim, finish, table

SETTINGS = """\
suite = "kernels"
database = "perfsvc.db"

[run]
devices = ["fake:script.json"]
select = ["transpose/naive", "transpose/copy", "vector_add"]
replicas = 2

[notify]
targets = { team = "TEAM_URL" }
"""
USUAL, SLOW = {"seconds": 1e-4}, {"seconds": 1.05e-4}
SLOWED = "transpose/naive"
RUN = "select run_id, seed from nights join runs on runs.id = run_id where nights.id = 2"
HELD = "select count(*) from measurements where run_id = 2"
RESULTS = (
    (
        "select name, metric, verdict, ratio, cause from verdicts join cases on cases.id = case_id "
        "where run_id = 2 order by 1, 2"
    ),
    (
        "select name, replica, status, count(*) from measurements join cases on cases.id = case_id "
        "where run_id = 2 group by 1, 2 order by 1, 2"
    ),
    "select name, noise_within, noise_between from noise join cases on cases.id = case_id where run_id = 2 order by 1",
    (
        "select name, cause, verdict, ratio from confirmations join cases on cases.id = case_id "
        "where run_id = 2 order by 1"
    ),
    "select id, cause, state, first_run_id, last_run_id from findings order by id",
    "select finding_id, name, ratio from finding_cases join cases on cases.id = case_id order by 1, 2",
    "select finding_id, kind, run_id, text from finding_events order by id",
    "select night_id, title, body from messages order by 1",
    "select target, sent_at is not null from deliveries order by 1",
    "select name, number, state, exit_code from stages where night_id = 2 order by number",
    "select id, state, run_id, exit_code from nights order by id",
    "select id, state from runs order by id",
)
"""Queries of a night's results, without times, paths and random values."""


@dataclass
class Receiver:
    """Receives messages on a loopback port, and keeps the keys by path."""

    keys: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = self.keys

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                keys.setdefault(self.path, []).append(self.headers["Idempotency-Key"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@dataclass(frozen=True)
class Killed:
    """A killed and resumed night: its moment and stage, and how it differs from the undisturbed night."""

    at_s: float
    stage: str
    same: bool
    same_run: bool
    keys: int
    again: int


class Place:
    """A folder in which nights run."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self.folder, self.path = folder, f"/{folder.name}"
        address = f"json://127.0.0.1:{receiver.server.server_port}{self.path}"
        known = {name: value for name, value in os.environ.items() if name != "PERFSVC_DB"}
        self.environment = known | {"TEAM_URL": address, "PERFSVC_LOCKS": str(folder / "locks")}
        self.receiver = receiver

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a night, or resume one."""
        command = [sys.executable, "-m", "perfsvc", "nightly", *arguments]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **quiet)  # type: ignore[call-overload]

    def night(self, expected: int, *arguments: str) -> None:
        """Run a night to its end; raises ``RuntimeError`` if its exit code is not the expected one."""
        with self.start(*arguments) as process:
            printed, _ = process.communicate()
        if process.returncode != expected:
            raise RuntimeError(f"a night ended with {process.returncode}:\n{printed}")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with closing(sqlite3.connect(self.folder / "perfsvc.db")) as connection:
            return connection.execute(query).fetchall()

    @property
    def results(self) -> list[Any]:
        """Return the results of the nights."""
        return [self.rows(query) for query in RESULTS]

    @property
    def measured(self) -> list[int]:
        """Return how many cases each attempt at the second night had to measure, by its log."""
        lines = (self.folder / "nights" / "2" / "log.jsonl").read_text().splitlines()
        return [line["steps"] for line in map(json.loads, lines) if line["event"] == "measuring"]


def prepare(folder: Path, receiver: Receiver) -> None:
    """Run a night over the suite, then give each case another binary; one of them is slower."""
    folder.mkdir()
    for name in ("transpose", "vector_add"):
        shutil.copytree(SUITE / name, folder / "kernels" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "perfsvc.toml").write_text(SETTINGS)
    (folder / "script.json").write_text(json.dumps({"cases": {"*": USUAL}}))
    place = Place(folder, receiver)
    place.night(0)
    old = {digest: USUAL for (digest,) in place.rows("select distinct sha256 from binary_files where role = 'module'")}
    for source in (folder / "kernels").rglob("*.cu"):
        source.write_text(source.read_text() + "// changed\n")
    (folder / "script.json").write_text(json.dumps({"cases": {"*": USUAL, SLOWED: SLOW, **old}}))


def copied(before: Path, folder: Path, receiver: Receiver) -> Place:
    """Return a copy of a place as it was between both nights."""
    shutil.copytree(before, folder, ignore=shutil.ignore_patterns("locks"))
    return Place(folder, receiver)


def killed(place: Place, at_s: float, expected: list[Any], whole: int) -> Killed:
    """Kill the second night of a place, resume it, and return how it ended."""
    with place.start() as process:
        time.sleep(at_s)
        process.kill()
    begun = bool(place.rows("select 1 from nights where id = 2"))
    known, ((held,),) = place.rows(RUN), place.rows(HELD)
    stages = place.rows("select name from stages where night_id = 2 order by number desc limit 1")
    ended = place.rows("select 1 from nights where id = 2 and exit_code is not null")
    if not ended:
        place.night(1, *(["--resume"] if begun else []))
    measured = place.measured
    again = max(0, measured[-1] - (whole - held)) if len(measured) > 1 else 0
    return Killed(
        at_s,
        stages[0][0] if stages else "",
        place.results == expected,
        place.rows(RUN)[: len(known)] == known,
        len(set(place.receiver.keys[place.path])),
        again,
    )


def claims(nights: list[Killed]) -> list[Claim]:
    """Return the claims."""
    return [
        Claim("nights with another result", sum(not night.same for night in nights), 0),
        Claim("nights under another run or seed", sum(not night.same_run for night in nights), 0),
        Claim("nights whose messages had another key", sum(night.keys != 1 for night in nights), 0),
        Claim("measured again though it was stored", sum(night.again for night in nights), 0),
    ]


def main() -> int:
    """Run the nights and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=50, help="how many nights are killed")
    parser.add_argument("--jobs", type=int, default=1, help="how many nights run at once")
    parser.add_argument("--seed", type=int, default=7, help="of the random moments")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    receiver, chance = Receiver(), random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="perfsvc-nights-") as name, ThreadPoolExecutor(options.jobs) as jobs:
        folder = Path(name)
        prepare(folder / "before", receiver)
        undisturbed = copied(folder / "before", folder / "undisturbed", receiver)
        began = time.monotonic()
        undisturbed.night(1)
        wall_s = time.monotonic() - began
        expected, whole = undisturbed.results, undisturbed.measured[0]

        def kill(number: int, at_s: float) -> Killed:
            place = copied(folder / "before", folder / str(number), receiver)
            return killed(place, at_s, expected, whole)

        moments = [chance.uniform(0, wall_s) for _ in range(options.nights)]
        nights = list(jobs.map(kill, range(options.nights), moments))
    stages = Counter(night.stage for night in nights)
    rows = [[stage or "before its first", str(count)] for stage, count in stages.most_common()]
    print(f"a night takes {wall_s:.1f} s and measures {whole} times; {len(nights)} were killed in these stages:\n")
    print(table(["stage", "nights"], rows))
    return finish(claims(nights), options.json, wall_s=wall_s, nights=[asdict(night) for night in nights])


if __name__ == "__main__":
    sys.exit(main())
