"""Simulate half a year of nights on two hosts: each planted event reaches people exactly once, and nothing else does.

Two hosts with a fake GPU each share a database, a suite and a webhook. Every day both run a night at the simulated time
(``time_machine``). Planted are two regressions of one case after each other, a Python variant that becomes slower and
one that becomes faster, a host without nights for ten days, a GPU that is gone for three days, and a disturbed night
that a person excludes. Needs no GPU.

    python tests/benchmarks/simulated_hosts.py [--days 180] [--seed 1] [--folder FOLDER] [--json hosts.json]
"""

import argparse
import contextlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import patch

import time_machine
from simulated.workplace import BETWEEN, WITHIN
from workbench import Claim, finish

from perfsvc import suite
from perfsvc.build.toolchain import FakeToolchain
from perfsvc.config.load import load
from perfsvc.measure.host.device_queue import never
from perfsvc.measure.host.servers import worker_servers
from perfsvc.model import FindingState, digest
from perfsvc.service.exclusions import exclude
from perfsvc.service.findings.actions import set_state
from perfsvc.service.nightly.begin import NightRequest
from perfsvc.service.nightly.night import nightly
from perfsvc.store import Store
from perfsvc.suite import Selection

DAYS = 180
LEAST = 24
"""The fewest days in which each planted event still has the days around it that it needs."""
HOSTS = {"alpha": "Fake GPU", "beta": "Fake GPU"}
"""The model of each host's GPU."""
FIRST_DAY = datetime(2026, 1, 5, 2, tzinfo=UTC)

KERNELS = '''"""Kernels of simulated nights: the fake device decides how long they take."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output


def inputs(rng, n):
    return {"a": rng.standard_normal(n, dtype=np.float32)}


def reference(a):
    return 2.0 * a.astype(np.float64)


benchmark = Benchmark(
    axes={"n": (64,)},
    smoke={"n": 64},
    inputs=inputs,
    outputs={"out": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=n),
    variants=[
        Variant(f"v{number}", source=f"v{number}.cu", entry="scale", grid=1, block=64, args=("out", "a", "n"))
        for number in range(VARIANTS)
    ],
)
'''
KERNEL = 'extern "C" __global__ void scale(float* out, const float* a, int n) {}\n'
PYTHON = '''"""A Python variant of simulated nights."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

REPEAT = 1


def inputs(rng, n):
    return {"a": rng.standard_normal(n, dtype=np.float32)}


def reference(a):
    return 2.0 * a.astype(np.float64)


def double(arrays, stream):
    for _ in range(REPEAT):
        arrays["out"][:] = 2 * arrays["a"][:]


benchmark = Benchmark(
    axes={"n": (64,)},
    smoke={"n": 64},
    inputs=inputs,
    outputs={"out": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=n),
    variants=[Variant("python", run=double)],
)
'''
SETTINGS = """\
suite = "{suite}"
database = "{database}"

[run]
devices = ["fake:{script}"]

[dashboard]
enabled = false

[notify]
targets = {{ team = "TEAM_URL" }}
remind = "never"

[expect]
every = "1d"



"""


@dataclass(frozen=True)
class Change:
    """A commit before the nights of a day: a case takes ``factor`` times as long as before from then on."""

    day: int
    case: str
    factor: float


@dataclass(frozen=True)
class Report:
    """A part of a message that must arrive exactly once, in the days from ``day`` to ``day + delay``.

    Attributes:
        kind: the word in brackets after the number of the finding (``new``, ``moved again``), or the heading of a list.
        about: a regular expression that the part of the message contains.
    """

    day: int
    kind: str
    about: str
    delay: int = 0

    def is_answered_by(self, part: "Received") -> bool:
        """Return whether a part of a message is this report."""
        in_time = self.day <= part.day <= self.day + self.delay
        return in_time and part.kind == self.kind and bool(re.search(self.about, part.text, re.DOTALL))


@dataclass(frozen=True)
class Planted:
    """A planted event, the commits that make it happen, and what people must receive about it."""

    name: str
    reports: tuple[Report, ...]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Received:
    """A part of a message that the webhook got on a day: one finding, or the failures of the night."""

    day: int
    kind: str
    text: str


class World:
    """The repository, the database, and a folder with settings and a script of the fake GPU for each host.

    It has two benchmarks of kernels with ``variants`` each, and ``functions`` benchmarks of one Python variant.
    """

    def __init__(
        self, folder: Path, seed: int, hosts: Mapping[str, str] = HOSTS, *, variants: int = 4, functions: int = 3
    ) -> None:
        self._hosts = hosts
        self.folder, self.suite, self.database = folder, folder / "repository" / "kernels", folder / "perfsvc.db"
        self._seed = seed
        self._seconds: dict[str, float] = {}  # of each binary and each bench.py of Python variants, by digest
        self._case: dict[str, str] = {}  # of each digest
        self._now: dict[str, float] = {}  # of each case
        for number in range(2):
            self._write(f"b{number}/bench.py", KERNELS.replace("VARIANTS", str(variants)))
            for variant in range(variants):
                self._write(f"b{number}/v{variant}.cu", f"// b{number} v{variant}\n{KERNEL}")
        for number in range(functions):
            self._write(f"p{number}/bench.py", f"{PYTHON}\nNAME = 'p{number}'\n")
        self._git("init", "--quiet", "--initial-branch", "main")
        specs = suite.discover(self.suite).resolve(Selection(), "smoke")[0]
        self._specs = {f"{spec.case.benchmark}/{spec.case.variant}": spec for spec in specs}
        self._now = {case: self.usual_s(case) for case in self.cases}
        self._commit("Begin")
        for host in hosts:
            (folder / host).mkdir(exist_ok=True)

    @property
    def cases(self) -> list[str]:
        """The benchmark and the variant of each case."""
        return sorted(self._specs)

    def usual_s(self, case: str) -> float:
        """Return how long a case took at first, on a host without a slowdown."""
        return 1e-4 * (1.1 + self.cases.index(case) / 10)

    def request(self, host: str) -> NightRequest:
        """Return the request of a night of a host, with its settings file as a user would write it."""
        file = self.folder / host / "perfsvc.toml"
        file.write_text(SETTINGS.format(suite=self.suite, database=self.database, script=file.with_name("gpu0.json")))
        return NightRequest(load(file).settings)

    def change(self, changes: Sequence[Change]) -> None:
        """Make the changes in one commit; each case gets new code."""
        for change in changes:
            self._now[change.case] *= change.factor
            benchmark, variant = change.case.split("/")
            path = self.suite / benchmark / ("bench.py" if variant == "python" else f"{variant}.cu")
            text = path.read_text()
            if variant == "python":
                repeat = next(line for line in text.splitlines() if line.startswith("REPEAT = "))
                text = text.replace(repeat, f"REPEAT = {int(repeat.split()[-1]) + 1}")
            else:
                text += f"// day {change.day}\n"
            path.write_text(text)
        self._commit(", ".join(f"Change {change.case}" for change in changes))

    def _commit(self, message: str) -> None:
        """Commit everything, and note how long the present code of each case takes."""
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message)
        compiler = FakeToolchain()
        for case, spec in self._specs.items():
            if spec.units:
                code = digest(compiler.compile(spec.units[0]))
            else:
                code = digest((self.suite / spec.case.benchmark / "bench.py").read_bytes())
            self._seconds.setdefault(code, self._now[case])
            self._case[code] = case

    def play(self, host: str, day: int, stage: str, slowdown: float) -> None:
        """Write the script of a host's GPU for a night; noise differs in each stage."""
        script = {
            "model": self._hosts[host],
            "uuid": f"FAKE-{host}",
            "seed": int(digest(f"{self._seed}/{host}/{day}/{stage}".encode())[:8], 16),
            "cases": {
                code: {"seconds": seconds * slowdown, "within": WITHIN, "between": BETWEEN}
                for code, seconds in self._seconds.items()
            },
        }
        (self.folder / host / "gpu0.json").write_text(json.dumps(script))

    def _write(self, name: str, text: str) -> None:
        path = self.suite / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _git(self, *words: str) -> None:
        who = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
        subprocess.run(["git", "-C", self.suite.parent, *who, *words], check=True, capture_output=True)


@contextlib.contextmanager
def webhook() -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """Yield the address of a web server on loopback, and the messages that it gets."""
    posts: list[Mapping[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"json://127.0.0.1:{server.server_port}", posts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Plan:
    """The days, and everything that is planted in them; days are counted from 0.

    Attributes:
        silent: the days without nights of the host beta.
        lost: the days without the GPU of the host alpha.
        disturbed: the day on which everything takes longer on alpha; a person excludes its run.
        accepted: the day on which a person accepts both steps of the first case.
    """

    days: int
    silent: range
    lost: range
    disturbed: int
    accepted: int
    planted: tuple[Planted, ...]

    def changes(self, day: int) -> list[Change]:
        """Return the changes that are committed before the nights of a day."""
        return [change for event in self.planted for change in event.changes if change.day == day]


def planned(days: int = DAYS) -> Plan:
    """Return what happens in so many days, at least ``LEAST``."""

    def at(day: int) -> int:
        return round(day * days / DAYS)

    first, second, slow, back, faster = at(20), at(30), at(50), at(60), at(70)
    silent, lost, disturbed, late = range(at(80), at(90)), range(at(130), at(135)), at(110), at(150)
    one, other = "b0/v0", "p0/python"
    return Plan(
        days,
        silent,
        lost,
        disturbed,
        at(40),
        (
            Planted("a first step", (Report(first, "new", one),), (Change(first, one, 1.1),)),
            Planted("a second step", (Report(second, "moved again", one),), (Change(second, one, 1.25),)),
            Planted(
                "a slower Python variant, taken back",
                (Report(slow, "new", other, 1), Report(back, "Resolved", other, 1)),
                (Change(slow, other, 3.0), Change(back, other, 1 / 3)),
            ),
            Planted("a faster Python variant", (), (Change(faster, "p1/python", 0.8),)),
            Planted(
                "a silent host",
                (Report(silent.start, "new", "host beta", 2), Report(silent.stop, "Resolved", "host beta")),
            ),
            Planted(
                "a disturbed night, excluded",
                (Report(disturbed, "new", "environment.*FAKE-alpha"),),
            ),
            Planted(
                "a lost GPU",
                (
                    Report(lost.start, "new", "missing, FAKE-alpha"),
                    Report(lost.stop, "Resolved", "FAKE-alpha"),
                ),
            ),
            Planted("a late step", (Report(late, "new", "b1/v1"),), (Change(late, "b1/v1", 1.08),)),
        ),
    )


def live(world: World, plan: Plan, address: str, posts: Sequence[Mapping[str, str]]) -> Iterator[Received]:
    """Live the days: both hosts run a night on each, unless the plan prevents it; yield what arrives."""
    lost = world.folder / "alpha" / "gpu0.json.lost"
    with worker_servers() as servers, patch.dict(os.environ, {"TEAM_URL": address}):
        for day in range(plan.days):
            if changes := plan.changes(day):
                world.change(changes)
            if day == plan.accepted:
                accept(world.database)
            if day in plan.lost:
                lost.touch()
            else:
                lost.unlink(missing_ok=True)
            for number, host in enumerate(HOSTS):
                if host == "beta" and day in plan.silent:
                    continue
                slowdown = 1.3 if (host, day) == ("alpha", plan.disturbed) else 1.0
                before = len(posts)
                with at_home(host, FIRST_DAY + timedelta(days=day, hours=number)):
                    world.play(host, day, "measuring", slowdown)
                    night = nightly(world.request(host), Stages(world, host, day, slowdown), servers, never)
                    if slowdown != 1.0:
                        exclude_run(world.database, night.run)
                for post in posts[before:]:
                    yield from parts_of(post["message"], day)


@contextlib.contextmanager
def at_home(host: str, now: datetime) -> Iterator[time_machine.Traveller]:
    """Let this process believe that it runs on a host at a time; yield what changes the time."""
    with (
        time_machine.travel(now, tick=True) as clock,
        patch.object(platform, "node", return_value=host),
        patch.object(socket, "gethostname", return_value=host),
    ):
        yield clock


def parts_of(body: str, day: int) -> Iterator[Received]:
    """Yield the parts of a message: each finding, and each line of a list under a heading."""
    for part in body.split("\n\n")[1:]:  # the first one names the night
        first, *lines = part.splitlines()
        if heading := re.fullmatch(r"Finding \d+ \((.*?)\): .*", first):
            yield Received(day, heading[1], part)
        else:
            yield from (Received(day, first, line) for line in lines if line.startswith("- "))


def accept(database: Path) -> None:
    """Accept all open findings, as a user would."""
    with Store.open(database) as store:
        for finding in store.findings.active():
            set_state(store, finding.id, FindingState.ACCEPTED, reason="it is here to stay")


class Stages:
    """A ``Progress`` that gives confirmations noise of their own, because to measure again is to draw again."""

    def __init__(self, world: World, host: str, day: int, slowdown: float) -> None:
        self._again = lambda stage: world.play(host, day, stage, slowdown)

    def begin(self, stage: str, total: int) -> None:
        """Write the script of the confirmation, if anything is measured again."""
        if stage == "confirming" and total:
            self._again(stage)

    def step(self, what: str) -> None:
        """Ignore the step."""

    def report(self, line: str, **facts: object) -> None:
        """Ignore the message."""


def exclude_run(database: Path, run: int) -> None:
    """Exclude a run, as a user would who knows what disturbed it."""
    with Store.open(database) as store:
        exclude(store, run, (), reason="another job used the GPU")


def check(plan: Plan, received: Sequence[Received]) -> list[Claim]:
    """Return the claims: each planted report arrived exactly once, and nothing else arrived."""
    answered: set[Received] = set()
    claims = []
    for event in plan.planted:
        for report in event.reports:
            arrived = [part for part in received if report.is_answered_by(part)]
            answered |= set(arrived)
            what = f"{event.name}: {report.kind!r} on another number of days than one"
            claims.append(Claim(what, abs(len(arrived) - 1), 0))
    others = [part for part in received if part not in answered]
    for part in others:
        print(f"NOT PLANTED on day {part.day}, {part.kind}: {part.text}")
    return [*claims, Claim("parts of messages that nothing planted explains", len(others), 0)]


def main() -> int:
    """Live the days, print what arrives, and check the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=DAYS, help=f"how many days, at least {LEAST}")
    parser.add_argument("--seed", type=int, default=1, help="of all noise")
    parser.add_argument("--folder", type=Path, help="keep everything in this folder")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    if options.days < LEAST:
        parser.error(f"in fewer than {LEAST} days the planted events would overlap")
    plan, received = planned(options.days), []
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        os.environ |= {"PERFSVC_CACHE": str(folder / "cache"), "PERFSVC_LOCKS": str(folder / "locks")}
        address, posts = stack.enter_context(webhook())
        for part in live(World(folder.resolve(), options.seed), plan, address, posts):
            print(f"day {part.day}, {part.kind}: {part.text.splitlines()[0]}", flush=True)
            received.append(part)
    return finish(check(plan, received), options.json, received=[asdict(part) for part in received])


if __name__ == "__main__":
    sys.exit(main())
