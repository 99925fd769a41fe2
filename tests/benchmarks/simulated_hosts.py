"""Simulate half a year of nights on two hosts: each planted event reaches people exactly once, and nothing else does.

Two hosts with a fake GPU each share a database, a suite and a webhook. Every day both run a night at the simulated time
(``time_machine``). Planted are two regressions of one case after each other, a Python variant that becomes slower and
one that becomes faster, a wrong result, a crash, a hang and a missing case that are mended, a data file and a variable
that make a case slower for some days, a slower driver, a host without nights for ten days, a GPU that is gone for five
days, a disturbed night that a person excludes, and a regression that nobody answers. Needs no GPU.

    python tests/benchmarks/simulated_hosts.py [--days 180] [--seed 1] [--folder FOLDER] [--json hosts.json]
"""

import contextlib
import os
import platform
import re
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import time_machine
from simulated.workplace import SOURCE, Repository, Stages, kernels, python_function
from workbench import Claim, finish, parsed, webhook

from perfsvc.config.load import load
from perfsvc.measure.host.device_queue import never
from perfsvc.measure.host.pool import worker_servers
from perfsvc.model import FindingState
from perfsvc.service.exclusions import exclude
from perfsvc.service.findings.actions import set_state
from perfsvc.service.nightly.begin import NightRequest
from perfsvc.service.nightly.night import nightly
from perfsvc.store import Store

DAYS = 180
LEAST = 36
"""The fewest days in which each planted event still has the days around it that it needs."""
HOSTS = {"alpha": "Fake GPU", "beta": "Fake GPU"}
"""The model of each host's GPU."""
FIRST_DAY = datetime(2026, 1, 5, 2, tzinfo=UTC)
UNANSWERED = "Still open, and no person has done anything with it"

SETTINGS = """\
suite = "{suite}"
database = "{database}"

[dashboard]
enabled = false

[notify]
targets = {{ team = "TEAM_URL" }}
remind = "{remind}"

[expect]
every = "1d"

[run]
devices = ["fake:{script}"]
{more}
"""

RANDOM = "rng.standard_normal(n, dtype=np.float32)"
REPEAT_BY = "int(os.environ.get('SIMULATED_REPEAT', '1'))"

SHORT = 'limit = "3s"\nseconds = "1s"\n'
"""Settings of ``[run]`` with which a case that hangs takes little time."""


@dataclass(frozen=True)
class Change:
    """A commit before the nights of a day: from then on a case takes ``factor`` times as long, or has a fault.

    Attributes:
        fault: as the fake device names it, or ``missing``: the commit deletes the folder of the benchmark.
    """

    day: int
    case: str
    factor: float = 1.0
    fault: str = ""


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


class World(Repository):
    """The repository, the database, and a folder with settings and a script of the fake GPU for each host.

    It has two benchmarks of kernels with ``variants`` each, and ``functions`` benchmarks of one Python variant.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        hosts: Mapping[str, str] = HOSTS,
        *,
        variants: int = 4,
        functions: int = 3,
        remind: str = "never",
    ) -> None:
        self._hosts, self._remind = hosts, remind
        numbers = range(variants)
        files = {f"b{home}/bench.py": kernels(variants, 'f"v{number}.cu"') for home in range(2)}
        files |= {f"b{home}/v{number}.cu": f"// b{home} v{number}\n{SOURCE}" for home in range(2) for number in numbers}
        files |= {f"p{home}/bench.py": f"{python_function()}NAME = 'p{home}'\n" for home in range(functions)}
        self.data = folder.resolve() / "data.npy"
        self.write_data(1)
        files["d0/bench.py"] = python_function().replace(RANDOM, f"np.load({str(self.data)!r})")
        files["e0/bench.py"] = f"import os\n{python_function()}".replace(
            "range(REPEAT)", f"range(REPEAT * {REPEAT_BY})"
        )
        super().__init__(folder, seed, files)
        for host in hosts:
            (self.folder / host).mkdir(exist_ok=True)

    def request(self, host: str, database: object = None, more: str = "", *, resume: bool = False) -> NightRequest:
        """Return the request of a night of a host, with its settings file as a user would write it."""
        home = self.folder / host
        text = SETTINGS.format(
            suite=self.suite,
            database=database or self.database,
            script=home / "gpu0.json",
            remind=self._remind,
            more=more,
        )
        (home / "perfsvc.toml").write_text(text)
        return NightRequest(load(home / "perfsvc.toml").settings, resume=resume)

    def change(self, changes: Sequence[Change]) -> None:
        """Make the changes in one commit; each case gets new code."""
        for change in changes:
            self.now[change.case] *= change.factor
            self.faults[change.case] = change.fault
            benchmark, variant = change.case.split("/")
            path = self.suite / benchmark / ("bench.py" if variant == "python" else f"{variant}.cu")
            if change.fault == "missing":
                path.unlink()
                continue
            text = path.read_text() if path.exists() else self._files[f"{benchmark}/{path.name}"]
            repeated = re.sub(r"REPEAT = \d+", f"REPEAT = {change.day}", text)
            path.write_text(repeated if variant == "python" else f"{text}// day {change.day}\n")
        self._commit(", ".join(f"Change {change.case}" for change in changes))

    def write_data(self, seed: int) -> None:
        """Write the data file that the inputs of ``d0`` come from."""
        np.save(self.data, np.random.default_rng(seed).standard_normal(64, dtype=np.float32))

    def play(
        self,
        host: str,
        day: int,
        slowdown: float,
        stage: str,
        *,
        driver: str = "580.65",
        slow: Collection[str] = (),
    ) -> None:
        """Write the script of a host's GPU for a night; noise differs in each stage, and some cases are slow."""
        gpu = {"model": self._hosts[host], "uuid": f"FAKE-{host}", "driver": driver}
        script = self.folder / host / "gpu0.json"
        self._play(
            script, f"{self._seed}/{host}/{day}/{stage}", lambda case: slowdown * (1.5 if case in slow else 1), **gpu
        )


@dataclass(frozen=True)
class Plan:
    """The days, and everything that is planted in them; days are counted from 0.

    Attributes:
        data: the days with another data file, with which a case takes longer.
        variable: the days on which a variable of the environment makes a case take longer.
        silent: the days without nights of the host beta.
        lost: the days without the GPU of the host alpha.
        disturbed: the day on which everything takes longer on alpha; a person excludes its run.
        accepted: the day on which a person accepts both steps of the first case.
        driver: the day on which both hosts have a new driver, with which everything takes longer.
        remind: after how many days an open finding that no person has answered is sent again.
    """

    days: int
    data: range
    variable: range
    silent: range
    lost: range
    disturbed: int
    accepted: int
    driver: int
    remind: int
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
    driver, remind = at(140), at(21)
    data, variable = range(at(45), at(55)), range(at(60), at(65))
    one, other = "b0/v0", "p0/python"
    return Plan(
        days,
        data,
        variable,
        silent,
        lost,
        disturbed,
        at(40),
        driver,
        remind,
        (
            broken(Change(at(10), "p1/python", fault="missing"), at(15), "missing, (benchmark p1)"),
            broken(Change(at(95), "b1/v0", fault="wrong"), at(100), "wrong result.*(b1/v0)"),
            broken(Change(at(100), "b0/v1", fault="crash"), at(105), "failed.*(b0/v1)"),
            broken(Change(at(120), "b1/v0", fault="hang"), at(125), "hung.*(b1/v0)"),
            Planted(
                "another data file",
                (Report(data.start, "new", "inputs.*d0/python", 1), Report(data.stop, "Resolved", "d0", 1)),
            ),
            Planted(
                "another variable",
                (
                    Report(variable.start, "new", "SIMULATED_REPEAT.*e0/python", 1),
                    Report(variable.stop, "Resolved", "e0", 1),
                ),
            ),
            Planted(
                "a slower driver",
                (
                    Report(driver, "new", "environment.*580.65 → 590.12.* of .* cases slower"),
                    Report(driver + remind, UNANSWERED, r"and \d\d more"),
                ),
            ),
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
            Planted("a disturbed night, excluded", (Report(disturbed, "new", "environment.*FAKE-alpha"),)),
            Planted(
                "a lost GPU",
                (Report(lost.start, "new", "missing, FAKE-alpha"), Report(lost.stop, "Resolved", "FAKE-alpha")),
            ),
            Planted(
                "a late step that no person answers",
                (Report(late, "new", "b1/v1"), Report(late + remind, UNANSWERED, "b1/v1")),
                (Change(late, "b1/v1", 1.08),),
            ),
        ),
    )


def broken(change: Change, mended: int, about: str) -> Planted:
    """Plant a commit that breaks a case, and the commit that mends it; ``about`` has the case in parentheses."""
    case = about.partition("(")[2].rstrip(")")
    reports = Report(change.day, "new", about), Report(mended, "Resolved", case)
    return Planted(f"{change.case}: {change.fault}", reports, (change, Change(mended, change.case)))


def live(world: World, plan: Plan, address: str, posts: Sequence[Mapping[str, Any]]) -> Iterator[Received]:
    """Live the days: both hosts run a night on each, unless the plan prevents it; yield what arrives."""
    lost = world.folder / "alpha" / "gpu0.json.lost"
    with ExitStack() as stack, patch.dict(os.environ, {"TEAM_URL": address}):
        servers = stack.enter_context(worker_servers())
        for day in range(plan.days):
            world.write_data(2 if day in plan.data else 1)
            if day in {plan.variable.start, plan.variable.stop}:
                stack.close()  # servers have the variables with which they began
                set_variable("2" if day in plan.variable else None)
                servers = stack.enter_context(worker_servers())
            slow = {case for case, days in (("d0/python", plan.data), ("e0/python", plan.variable)) if day in days}
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
                disturbed = (host, day) == ("alpha", plan.disturbed)
                slowdown = (1.3 if disturbed else 1.0) * (1.06 if day >= plan.driver else 1.0)
                before = len(posts)
                with at_home(host, FIRST_DAY + timedelta(days=day, hours=number)):
                    version = "590.12" if day >= plan.driver else "580.65"
                    play = partial(world.play, host, day, slowdown, driver=version, slow=slow)
                    play("measuring")
                    night = nightly(world.request(host, more=SHORT), Stages(play), servers, never)
                    if disturbed:
                        exclude_run(world.database, night.run)
                for post in posts[before:]:
                    yield from parts_of(post["body"]["message"], day)


def set_variable(value: str | None) -> None:
    """Set the variable that ``e0`` reads, or remove it."""
    os.environ.pop("SIMULATED_REPEAT", None)
    os.environ.update({"SIMULATED_REPEAT": value} if value else {})


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
    options = parsed(
        __doc__,
        ("--days", DAYS, f"how many days; at least {LEAST}"),
        ("--seed", 1, "of all noise"),
        ("--folder", Path, "keep everything in this folder"),
    )
    if options.days < LEAST:
        sys.exit(f"in fewer than {LEAST} days the planted events would overlap")
    plan, received = planned(options.days), []
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        os.environ |= {"PERFSVC_CACHE": str(folder / "cache"), "PERFSVC_LOCKS": str(folder / "locks")}
        address, posts = stack.enter_context(webhook())
        for part in live(World(folder.resolve(), options.seed, remind=f"{plan.remind}d"), plan, address, posts):
            print(f"day {part.day}, {part.kind}: {part.text.splitlines()[0]}", flush=True)
            received.append(part)
    return finish(check(plan, received), options.json, received=[asdict(part) for part in received])


if __name__ == "__main__":
    sys.exit(main())
