"""Load `perfsvc serve` with many clients, while nights are written into its database.

    python tests/benchmarks/server_load.py [--cases 1000] [--nights 100] [--database FILE] [--postgresql]

The script fills a database with planted nights and starts `perfsvc serve` as a process of its own. Clients then ask for
pages, the API, badges and metrics at a steady rate, as browsers and scrapers do: each sends back the ETag that it
knows. Another process stores measurements, judges runs and updates findings all the while. A latency is counted from
the moment at which the request was due, so a server that stalls cannot hide it.

With --postgresql, the script starts a PostgreSQL server of its own, and copies the planted nights into it.
"""

import argparse
import asyncio
import contextlib
import itertools
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
from simulated.many import entries_of, fill
from workbench import Claim, Silent, finish, parsed, postgresql, table

from perfsvc.model import Provenance, RunState
from perfsvc.report.pages.site import benchmark_page, series_page
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.update import update_findings
from perfsvc.service.sync import sync
from perfsvc.store import Store

MOST_SERIES = 30
"""How many different series the clients look at; the first ones most often."""
MEASURED_A_SECOND, CASES_OF_A_NIGHT = 20.0, 100
"""How fast the nights are written. A GPU takes about a second for a case, so this is a fleet of 20 GPUs."""
LIMIT_S = 60.0
"""How long a client waits for an answer."""


def main() -> int:
    """Fill the database, load the server, print what happened, and return the exit status."""
    options = parsed(
        __doc__,
        ("--cases", 1000),
        ("--nights", 100),
        ("--database", Path, "keep the SQLite database in this file, or use it if it exists"),
        ("--postgresql", False, "serve a copy on PostgreSQL"),
        ("--clients", 50),
        ("--rate", 200.0, "requests a second, of all clients together"),
        ("--seconds", 60.0),
    )
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        planted = options.database or folder / "perfsvc.db"
        if not planted.exists():
            with Store.open(planted) as store:
                fill(store, options.cases, options.nights)
        location = str(planted)
        if options.postgresql:
            server = opened.enter_context(postgresql(folder))
            location = server.url(server.create())
            sync(str(planted), location, Silent())
        with Store.open(location) as store:
            paths = weighted_paths(store)
        process, url = opened.enter_context(served(location, folder))
        began, used = time.perf_counter(), processor_s(process.pid)
        first = asyncio.run(once(url, paths))
        wall_s, used = time.perf_counter() - began, processor_s(process.pid) - used
        print(f"each of {first} addresses once: {wall_s:.1f} s, processor time of the server: {used:.1f} s", flush=True)
        with writing_nights(location) as nights:
            before, used = resident_mib(process.pid), processor_s(process.pid)
            load = asyncio.run(loaded(url, paths, options))
            used = processor_s(process.pid) - used
        after = resident_mib(process.pid)
    print(table(["kind", "requests", "not modified", "p50, ms", "p95, ms", "p99, ms", "max, ms"], load.rows()))
    rate = load.answered / load.wall_s
    print(f"{load.answered} answers, {rate:.0f} a second, of {options.rate:g} a second")
    print(f"processor time of the server: {used:.1f} s, of the clients: {load.client_s:.1f} s")
    print(f"memory of the server: {before:.0f} MiB before, {after:.0f} MiB after")
    print(f"meanwhile: {nights['measurements']} measurements in {nights['nights']} nights")
    for error, count in load.errors.most_common():
        print(f"error, {count} times: {error}")
    claims = [
        Claim("failed requests", sum(load.errors.values()), 0),
        Claim("the answers took longer than the requests, by", 100 * (load.wall_s / options.seconds - 1), 5.0, " %"),
        Claim("faults of the nights", nights["faults"], 0),
    ]
    return finish(
        claims,
        options.json,
        rows=load.rows(),
        processor_s=used,
        requests=load.answered,
        measurements=nights["measurements"],
    )


# --- the server and the nights ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(location: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the process of a server for a database, and its address."""
    command = [sys.executable, "-m", "perfsvc", "serve", "--port", "0", "--db", location]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("serving at "):
        raise SystemExit((folder / "log").read_text())
    try:
        yield process, line.split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stdout.close()
        faults = [line for line in (folder / "log").read_text().splitlines() if '"failed"' in line]
        print("".join(f"fault: {line[:2000]}\n" for line in faults[:3]), end="")


@contextlib.contextmanager
def writing_nights(location: str) -> Iterator[dict[str, int]]:
    """Store nights in another process during the block; after it, the dictionary says how many."""
    context = multiprocessing.get_context("spawn")
    began, ended, results, counted = context.Event(), context.Event(), context.Queue(), {}
    process = context.Process(target=write_nights, args=(location, began, ended, results))
    process.start()
    began.wait(300)
    try:
        yield counted
    finally:
        ended.set()
        counted |= results.get(timeout=300)
        process.join()


def write_nights(location: str, began: Event, ended: Event, results: "multiprocessing.Queue[dict[str, int]]") -> None:
    """Store measurements one by one, and judge a run after each ``CASES_OF_A_NIGHT`` cases, until ``ended``."""
    counted = Counter(nights=0, measurements=0, faults=0)
    try:
        with Store.open(location, create=False) as store:
            (device,) = [info for info in store.devices.all().values() if info.kind == "cuda"]
            newest = newest_run(store)
            cases = sorted({series.case for series in store.series.histories([newest])}, key=lambda case: case.id)
            cases = cases[:CASES_OF_A_NIGHT]
            while not ended.is_set():
                started = datetime.now(UTC)
                facts = {"dirty": False, "host": "gpu-7", "label": "nightly"}
                run = store.runs.begin(
                    Provenance(started, "perfsvc run", "kernels", f"{counted['nights']:040x}", **facts)
                )
                for case in cases:
                    (entry, *_) = entries_of([case], seed=counted["measurements"])
                    measured = replace(entry.measurement, device=device.uuid)
                    store.measurements.put(run, [replace(entry, measurement=measured)])
                    counted["measurements"] += 1
                    began.set()
                    if ended.wait(1 / MEASURED_A_SECOND):
                        break
                store.runs.end(run, RunState.FINISHED)
                store.verdicts.put(run, judge_run(store, run, threshold=None))
                update_findings(store, run)
                counted["nights"] += 1
    except Exception as error:  # noqa: BLE001 - any fault of the night is a result of this benchmark
        print(f"the night failed: {error!r}", file=sys.stderr)
        counted["faults"] += 1
        began.set()
    results.put(dict(counted))


def newest_run(store: Store) -> int:
    """Return the newest run that was not killed with an earlier load."""
    return next(run.id for run in store.runs.list() if run.state is RunState.FINISHED)


def resident_mib(pid: int) -> float:
    """Return the memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the clients -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What clients ask for: some paths of one kind, and how often compared with other kinds."""

    kind: str
    weight: float
    paths: tuple[str, ...]


def weighted_paths(store: Store) -> list[Asked]:
    """Return what readers ask for: mostly Tonight and the pages that it links to, and what programs poll."""
    newest = newest_run(store)
    series = sorted(store.series.histories([newest]), key=lambda one: (one.case.id, one.metric))
    chosen = random.Random(1).sample(series, min(MOST_SERIES, len(series)))
    pages = [series_page(one) for one in chosen]
    keys = [page.removeprefix("series/").removesuffix(".html") for page in pages]
    findings = [finding.id for finding in store.findings.all()][:5]
    benchmarks = sorted({benchmark_page(one.case.benchmark) for one in chosen})[:5]
    return [
        Asked("Tonight", 20, ("",)),
        Asked("findings", 6, ("findings.html",)),
        Asked("finding", 10, tuple(f"findings/{number}.html" for number in findings)),
        Asked("series", 22, tuple(pages)),
        Asked("comparison", 5, (f"compare/{newest}.html", f"compare/{newest - 1}-{newest}.html")),
        Asked("benchmark", 5, ("benchmarks.html", *benchmarks)),
        Asked("list of series", 2, ("series.html",)),
        Asked("fleet", 1, ("fleet.html",)),
        Asked("API", 12, ("api/v1/runs", "api/v1/findings", f"api/v1/runs/{newest}/verdicts")),
        Asked("API: results", 1, (f"api/v1/runs/{newest}/results",)),
        Asked("API: series", 4, ("api/v1/series?limit=20", *(f"api/v1/series/{key}" for key in keys[:5]))),
        Asked("badges, feed", 6, ("badges/findings.svg", *(f"badges/series/{key}.svg" for key in keys[:5]), FEED)),
        Asked("metrics, health", 4, ("metrics", "healthz")),
        Asked("assets", 5, ("assets/site.css", "assets/site.js")),
    ]


FEED = "feeds/findings.atom"


@dataclass
class Load:
    """What the clients met."""

    times_s: dict[str, list[float]] = field(default_factory=dict)
    unmodified: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    client_s: float = 0.0
    wall_s: float = 0.0

    @property
    def answered(self) -> int:
        """How many answers came, errors included."""
        return sum(map(len, self.times_s.values()))

    def rows(self) -> list[list[str]]:
        """Return a row for each kind of request, and one for all."""
        every = list(itertools.chain.from_iterable(self.times_s.values()))
        rows = [self._row(kind, times, self.unmodified[kind]) for kind, times in self.times_s.items()]
        return [*rows, self._row("all", every, self.unmodified.total())]

    def _row(self, kind: str, times_s: list[float], unmodified: int) -> list[str]:
        shares = np.percentile(times_s or [math.nan], [50, 95, 99, 100])
        return [kind, str(len(times_s)), str(unmodified), *(f"{1000 * share:.0f}" for share in shares)]


async def once(url: str, paths: list[Asked]) -> int:
    """Ask for each address once, one after the other, so that the server has made every answer; return how many."""
    addresses = [path for asked in paths for path in asked.paths]
    async with httpx.AsyncClient(base_url=url, timeout=10 * LIMIT_S, trust_env=False) as http:
        for address in addresses:
            (await http.get(address)).raise_for_status()
    return len(addresses)


async def loaded(url: str, paths: list[Asked], options: argparse.Namespace) -> Load:
    """Return what the clients met while they asked at a steady rate."""
    load, used = Load({asked.kind: [] for asked in paths}), time.process_time()
    begin = time.perf_counter() + 1.0
    every_s = options.clients / options.rate
    async with asyncio.TaskGroup() as group:
        for number in range(options.clients):
            first = begin + every_s * number / options.clients
            due = [first + every_s * request for request in range(int(options.seconds / every_s))]
            group.create_task(client(url, paths, load, due, random.Random(number)))
    return replace(load, client_s=time.process_time() - used, wall_s=time.perf_counter() - begin)


async def client(url: str, paths: list[Asked], load: Load, due: list[float], choice: random.Random) -> None:
    """Ask for something at each of the moments ``due`` over one connection, as a browser with a cache does."""
    tags: dict[str, str] = {}
    weights = [asked.weight for asked in paths]
    connection = Connection(url)
    for moment in due:
        await asyncio.sleep(max(0.0, moment - time.perf_counter()))
        asked = choice.choices(paths, weights)[0]
        path = asked.paths[min(int(choice.expovariate(3 / len(asked.paths))), len(asked.paths) - 1)]
        try:
            status, headers, body = await asyncio.wait_for(connection.get(path, tags.get(path)), LIMIT_S)
        except (OSError, EOFError, TimeoutError) as error:
            load.errors[f"{asked.kind}: {type(error).__name__}"] += 1
            connection.close()
        else:
            if status not in {200, 304}:
                load.errors[f"{asked.kind}: {status} {body[:200].decode()}"] += 1
            load.unmodified[asked.kind] += status == 304
            if tag := headers.get("etag"):
                tags[path] = tag
        load.times_s[asked.kind].append(time.perf_counter() - moment)
    connection.close()


class Connection:
    """A connection that stays open for many requests.

    The clients share two processors with the server, and the libraries for HTTP take longer for a request than the
    server does.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str, tag: str | None) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers by their names in lower case, and the body of an answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        known = f"If-None-Match: {tag}\r\n" if tag else ""
        writer.write(f"GET /{path} HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: gzip\r\n{known}\r\n".encode())
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return int(first.split()[1]), headers, body

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._streams:
            self._streams[1].close()
            self._streams = None


if __name__ == "__main__":
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    sys.exit(main())
