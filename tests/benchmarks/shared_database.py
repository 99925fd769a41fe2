"""Simulate 91 nights on each of four hosts that write into one PostgreSQL at the same time, with faults.

Each host has a home folder and a fake GPU of its own; two GPUs are of one model and two of another. Every day all four
run a night at once, each in a process of its own. Some nights are killed with SIGKILL and resumed, some lose their
connection for a while, and on some days a host's clock is wrong or jumps during the night. On one day a commit makes
one case slower. At the end the claims are checked: each night of each host has each measurement once, with the times
of that host; nothing is left in a spool; and the commit is one finding, and there is no other.

    python tests/benchmarks/shared_database.py [--days 91] [--seed 1] [--folder FOLDER] [--json FILE]

Needs PostgreSQL and git, and no GPU.
"""

import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from simulated.workplace import Stages
from simulated_hosts import FIRST_DAY, Change, World, at_home, parts_of
from sqlalchemy import Row, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool
from workbench import Claim, finish, parsed, perfsvc, postgresql, table, webhook

from perfsvc.errors import PerfsvcError, UsageError
from perfsvc.measure.host.device_queue import never
from perfsvc.measure.host.pool import worker_servers
from perfsvc.process.fork_servers import SUITE, end_shared
from perfsvc.service.nightly import night as nights
from perfsvc.service.run import record
from perfsvc.store import Store
from perfsvc.store.schema.engine import resolve

DAYS = 91
REPLICAS = 2
HOSTS = {
    "alpha": ("Fake GPU", 1.0),
    "beta": ("Fake GPU", 1.0),
    "gamma": ("Other GPU", 1.5),
    "delta": ("Other GPU", 1.5),
}
"""The model of each host's GPU, and how many times as long as the first model it takes."""
SLOWED, FACTOR = "b0/v0", 1.1
FAULTS = {"": 60, "kill": 13, "cut": 13, "step": 7, "wrong clock": 7}
"""How often in a hundred nights a fault happens; the first is none."""
PAUSE_S = 0.2
"""Seconds between two attempts to reach the database, instead of perfsvc's own 5 and 30."""
LONGEST_CUT_S = 3.0
STEPS_S = (-7200, -3600, -90, 90, 3600, 7200)
"""How far a clock is wrong or jumps: a wrong time zone, summer time, a late synchronisation."""
TRIES = 5
NOTHING_TO_RESUME = 2
NOISE = 0.03
"""More than the noise of a median, and less than what tells two hosts apart."""

SETTINGS = """\
replicas = {replicas}

[nightly]
label = "{label}"
"""
MEASURED = """
SELECT r.label, r.uid, r.state, c.name, m.replica, m.status, d.uuid, m.median_s
FROM measurements m JOIN runs r ON r.id = m.run_id JOIN cases c ON c.id = m.case_id JOIN devices d ON d.id = m.device_id
"""


@dataclass(frozen=True)
class Trouble:
    """What happens to the night of a host: the kind of fault, when it begins as a share of a usual night, how long."""

    kind: str
    share: float
    seconds: float


NONE = Trouble("", 0.0, 0.0)


# --- a connection that can be cut -------------------------------------------------------------------------------------


class Relay:
    """The connection of a host to the server: a process that forwards bytes, and cuts all connections when asked."""

    def __init__(self, server: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._control, theirs = context.Pipe()
        self._process = context.Process(target=relay, args=(server, theirs), daemon=True)
        self._process.start()
        self.port: int = self._control.recv()

    def cut(self, seconds: float) -> None:
        """Close all connections, and refuse new ones for a time."""
        self._control.send(seconds)

    def end(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


def relay(server: str, control: Connection) -> None:
    """Forward connections from a port of loopback to the socket of a server, until this process is ended."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve() -> None:
        closed_until, writers = 0.0, set[asyncio.StreamWriter]()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if time.monotonic() < closed_until:
                writer.transport.abort()
                return
            behind, ahead = await asyncio.open_unix_connection(server)
            ends = {writer, ahead}
            writers.update(ends)
            await asyncio.gather(forward(reader, ahead), forward(behind, writer))
            writers.difference_update(ends)

        def cut() -> None:
            nonlocal closed_until
            try:
                closed_until = time.monotonic() + control.recv()
            except EOFError:  # the script has ended
                sys.exit()
            for writer in list(writers):
                writer.transport.abort()

        opened = await asyncio.start_server(accept, "127.0.0.1", 0)
        asyncio.get_running_loop().add_reader(control.fileno(), cut)
        control.send(opened.sockets[0].getsockname()[1])
        await opened.serve_forever()

    asyncio.run(serve())


# --- nights -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Host:
    """A host: its home folder, and its connection."""

    name: str
    home: Path
    relay: Relay

    @property
    def spools(self) -> list[Path]:
        """The results that still wait for the database."""
        return list((self.home / ".local" / "share" / "perfsvc" / "spool").glob("*.db"))

    @property
    def factor(self) -> float:
        """How many times as long as on the first model a case takes here."""
        return HOSTS[self.name][1]


class Quarter:
    """The days of a fleet: each host's night with its trouble, in processes of their own."""

    def __init__(self, world: World, database: str, seed: int) -> None:
        self._world, self._database, self._seed = world, database, seed
        self._engine = create_engine(resolve(database), poolclass=NullPool)
        socket = f"{make_url(database).query['host']}/.s.PGSQL.5432"
        self.hosts = [Host(name, world.folder / name, Relay(socket)) for name in HOSTS]
        self._usual_s = 5.0

    def day(self, day: int) -> list[str]:
        """Run the nights of a day, and return the faults that disturbed them."""
        chance = random.Random(f"{self._seed}/{day}")
        troubles = [drawn(chance) for _ in self.hosts]
        began = time.monotonic()
        children = [
            forked(partial(self._supervise, host, day, trouble))
            for host, trouble in zip(self.hosts, troubles, strict=True)
        ]
        for child in children:
            os.waitpid(child, 0)
        if not any(trouble.kind for trouble in troubles):
            self._usual_s = time.monotonic() - began
        return [trouble.kind for trouble in troubles if trouble.kind]

    def end(self) -> None:
        """End the connections."""
        for host in self.hosts:
            host.relay.end()

    def _supervise(self, host: Host, day: int, trouble: Trouble) -> int:
        """Run a host's night, and type it again until it has ended well, as a person would; return 0 if it did."""
        resume = False
        for _ in range(TRIES):
            night = forked(partial(self._night, host, day, trouble, resume=resume))
            if trouble.kind in {"kill", "cut"}:
                time.sleep(trouble.share * self._usual_s)
            if trouble.kind == "kill":
                os.kill(night, signal.SIGKILL)
            if trouble.kind == "cut":
                host.relay.cut(trouble.seconds)
            _, status = os.waitpid(night, 0)
            if self._has_ended(host, day):
                return 0
            resume = status != 0 and os.waitstatus_to_exitcode(status) != NOTHING_TO_RESUME
            time.sleep(LONGEST_CUT_S / 2)  # a cut may have come after the night, and last
            trouble = NONE
        return 1

    def _night(self, host: Host, day: int, trouble: Trouble, *, resume: bool) -> int:
        """Run the night of a host in this process, or resume it, and return its exit code."""
        os.environ |= {"HOME": str(host.home), "PERFSVC_LOCKS": str(host.home / "locks"), "TMPDIR": str(host.home)}
        for name in ("PERFSVC_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            os.environ.pop(name, None)
        url = make_url(self._database).set(host="127.0.0.1", port=host.relay.port, query={})
        location = url.render_as_string(hide_password=False)
        more = SETTINGS.format(replicas=REPLICAS, label=label(host.name, day))
        wrong_s = trouble.seconds if trouble.kind == "wrong clock" else 0.0
        with (
            (host.home / "log").open("a", encoding="utf-8") as log,
            contextlib.redirect_stderr(log),
            at_home(host.name, FIRST_DAY + timedelta(days=day, seconds=wrong_s)) as clock,
            patch.object(nights, "PAUSE_S", PAUSE_S),
            patch.object(record, "PAUSE_S", PAUSE_S),
            worker_servers() as servers,
        ):
            if trouble.kind == "step":
                jump = threading.Timer(trouble.share * self._usual_s, clock.shift, [trouble.seconds])
                jump.daemon = True
                jump.start()
            play = partial(self._world.play, host.name, day, host.factor)
            play("measuring")
            try:
                request = self._world.request(host.name, location, more, resume=resume)
                nights.nightly(request, Stages(play), servers, never)
            except UsageError:
                return NOTHING_TO_RESUME
            except PerfsvcError as error:
                print(f"day {day}: {error}", file=log)
                return 5
            except BaseException:
                traceback.print_exc(file=log)
                raise
        return 0

    def _has_ended(self, host: Host, day: int) -> bool:
        """Return whether the night of a host has ended with a whole run; else a person types it again."""
        query = (
            "SELECT 1 FROM nights n JOIN runs r ON r.id = n.run_id "
            "WHERE r.label = :label AND r.state = 'finished' AND n.state = 'finished'"
        )
        with self._engine.connect() as connection:
            return bool(connection.execute(text(query), {"label": label(host.name, day)}).first())


def drawn(chance: random.Random) -> Trouble:
    """Return a random trouble."""
    (kind,) = chance.choices(list(FAULTS), list(FAULTS.values()))
    seconds = chance.uniform(0.1, LONGEST_CUT_S) if kind == "cut" else chance.choice(STEPS_S)
    return Trouble(kind, chance.random(), seconds)


def forked(do: Callable[[], int]) -> int:
    """Start a process that does something and ends with the status that it returns; return its number."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        status = do()
    except BaseException:  # noqa: BLE001 - a child must not go on as if it were its parent
        traceback.print_exc()
    finally:
        os._exit(status)


def label(host: str, day: int) -> str:
    """Return the label of a night's run."""
    return f"{host}-{day}"


# --- what must be true ------------------------------------------------------------------------------------------------


def check(quarter: Quarter, world: World, url: str, days: int, parts: Sequence[str]) -> list[Claim]:
    """Return the claims about everything that the nights stored."""
    engine = create_engine(resolve(url))
    with engine.connect() as connection:
        measured = connection.execute(text(MEASURED)).all()
        runs = connection.execute(
            text("SELECT label, count(*) FROM runs WHERE state = 'finished' GROUP BY label")
        ).all()
        found = connection.execute(text("SELECT cause, state FROM findings")).all()
        moved = connection.execute(
            text("SELECT count(DISTINCT device_id) FROM finding_cases JOIN series ON series.id = series_id")
        ).scalar_one()
    engine.dispose()
    finished = Counter(dict(map(tuple, runs)))
    keys = Counter((row.label, row.uid, row.name, row.replica) for row in measured if row.state == "finished")
    per_label = Counter(of for of, *_ in keys.elements())
    cases, labels = len(world.cases), [label(host, day) for host in HOSTS for day in range(days)]
    wrong_gpu = [row for row in measured if row.uuid != f"FAKE-{row.label.partition('-')[0]}"]
    checked = perfsvc(world.folder, "db", "check", "--db", url, codes=range(6))
    print(f"{len(measured)} measurements in {sum(finished.values())} runs; findings: {list(map(tuple, found))}")
    print("\n".join(parts))
    print(f"nights without exactly one finished run: {[each for each in labels if finished[each] != 1]}")
    return [
        Claim("nights without exactly one finished run", sum(finished[each] != 1 for each in labels), 0),
        Claim("runs that belong to no night", len(finished.keys() - set(labels)), 0),
        Claim("nights that lost a measurement", sum(per_label[each] < cases * REPLICAS for each in labels), 0),
        Claim("measurements that a run has twice", sum(count - 1 for count in keys.values()), 0),
        Claim("measurements in runs that were not finished", sum(row.state != "finished" for row in measured), 0),
        Claim("measurements that are not ok", sum(row.status != "ok" for row in measured), 0),
        Claim("measurements of the GPU of another host", len(wrong_gpu), 0),
        Claim("times of another host or day", sum(not is_right(world, days, row) for row in measured), 0),
        Claim("results that still wait in a spool", sum(len(host.spools) for host in quarter.hosts), 0),
        Claim("findings more or less than the one of the commit", abs(len(found) - 1), 0),
        Claim("GPUs that this finding does not name", len(HOSTS) - moved, 0),
        Claim("messages more or less than the one about it", abs(len(parts) - 1), 0),
        Claim("faults that `perfsvc db check` finds", checked.returncode, 0),
    ]


def is_right(world: World, days: int, row: Row[Any]) -> bool:
    """Return whether a time is that of its host and day, within the noise."""
    host, _, day = row.label.partition("-")
    usual = world.usual_s(row.name.partition("[")[0]) * HOSTS[host][1]
    if row.name.startswith(SLOWED) and int(day) >= slowed_on(days):
        usual *= FACTOR
    return row.median_s is None or bool(abs(row.median_s / usual - 1) < NOISE)


def slowed_on(days: int) -> int:
    """Return the day on which a commit makes a case slower."""
    return days // 2


def main() -> int:
    """Live the days, print what happens, and check the claims."""
    options = parsed(
        __doc__,
        ("--days", DAYS),
        ("--seed", 1, "the seed of the noise and of the faults"),
        ("--folder", Path, "keep everything but the database in this folder"),
    )
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = options.folder or temporary
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["PERFSVC_CACHE"] = f"{temporary}/cache"
        server = stack.enter_context(postgresql(temporary))
        url = server.url(server.create())
        Store.open(url).close()
        world = World(folder.resolve(), options.seed, {name: model for name, (model, _) in HOSTS.items()})
        end_shared(SUITE)  # processes that are forked from this one must not share its server
        quarter = Quarter(world, url, options.seed)
        os.environ["TEAM_URL"], posts = stack.enter_context(webhook())
        faults, messages = Counter[str](), list[str]()
        for day in range(options.days):
            if day == slowed_on(options.days):
                world.change([Change(day, SLOWED, FACTOR)])
            before = len(posts)
            troubles = quarter.day(day)
            faults.update(troubles)
            parts = [
                f"day {day}, {part.kind}: {part.text}"
                for post in posts[before:]
                for part in parts_of(post["body"]["message"], day)
            ]
            messages += parts
            print(f"day {day}: {', '.join(troubles) or 'no fault'}", *parts, sep="\n  ", flush=True)
        quarter.end()
        claims = check(quarter, world, url, options.days, messages)
    print(table(["fault", "nights"], [[kind, str(count)] for kind, count in sorted(faults.items())]))
    return finish(claims, options.json, faults=faults, messages=messages)


if __name__ == "__main__":
    sys.exit(main())
