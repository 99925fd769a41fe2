"""Time single pages of a large database, and builds of a whole site.

    python tests/benchmarks/page_speed.py [--cases 1000] [--nights 365] [--database FILE] [--site]

A SQLite database is filled with a year of nights. Then a running process renders pages alone from the store, each after
a change of the database, so that nothing that was read before helps. With --site, the whole site is built too, and
built again after one more night. The claims count processor time, which other programs hardly change.
"""

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from simulated.many import add_night, filled
from workbench import Claim, finish, parsed, table

from perfsvc.config import Settings
from perfsvc.report.export.objects import plain
from perfsvc.report.pages.site import comparison_page, series_page
from perfsvc.server import api
from perfsvc.server.endpoints import ApiCall, PagedParameters
from perfsvc.server.serving import Serving
from perfsvc.service.dashboard.build import build
from perfsvc.service.dashboard.live import LivePages
from perfsvc.store import Store
from perfsvc.text import json_text

PAGE_S = 1.0
COMPARISON_MB = 3.0
BUILD_S, NIGHT_S = 60.0, 10.0


def main() -> int:
    """Fill the database, time its pages, check the claims, and return the exit status."""
    options = parsed(
        __doc__,
        ("--cases", 1000, "each has a series of times and a series of energies"),
        ("--nights", 365),
        ("--database", Path, "keep the database in this file, or use it if it exists"),
        ("--site", False, "build the whole site too"),
        ("--repeats", 3),
    )
    gc.set_threshold(100_000, 50, 100)  # as each command does
    with (
        filled(options.database, options.cases, options.nights) as (path, folder),
        Store.open(path) as store,
    ):
        rows, claims = [], []
        if options.site:
            rows, claims = whole_sites(store, folder / "site")
        more, further = single_pages(store, options.repeats)
        rows, claims = rows + more, claims + further
    print(table(["what", "wall, s", "processor, s", "MB"], rows))
    return finish(claims, options.json, rows=rows)


def single_pages(store: Store, repeats: int) -> tuple[list[list[str]], list[Claim]]:
    """Return a row for each kind of page and each list of the API, and the claims about them."""
    newest, before = (row.id for row in store.runs.list(2))
    series = min(store.series.histories([newest]), key=lambda one: one.case.id)
    paths = {
        "Tonight": "index.html",
        "the list of all series": "series.html",
        "the fleet": "fleet.html",
        "a series": series_page(series),
        "a comparison": comparison_page(newest),
        "a comparison of two runs": f"compare/{before}-{newest}.html",
        "a page that does not exist": "series/none-0123456789.html",
    }
    shown = LivePages(store)
    rows, claims = [_row("the first page of a process", [_timed(lambda: shown.page("findings.html"))])], []

    def measure(name: str, work: Callable[[], str | None]) -> None:
        """Add the row and the claim of some work that is done after each of some changes."""
        times = []
        for _ in range(repeats):
            change(store)
            times.append(_timed(work))
        rows.append(_row(name, times))
        processor_s = statistics.median(time[1] for time in times)
        claims.append(Claim(f"processor time of {name}", processor_s, PAGE_S, " s"))

    for name, path in paths.items():
        measure(name, partial(shown.page, path))
    serving = Serving(store, Settings(), shown, None, Path())
    for name, read, parameters in (
        ("series", api.all_series, api.SeriesParameters()),
        ("runs", api.runs, PagedParameters()),
        ("findings", api.findings, api.FindingsParameters()),
    ):
        call = ApiCall(serving, parameters)
        measure(f"/api/v1/{name}", lambda read=read, call=call: json_text(plain(read(call))))
    size = len(shown.page(comparison_page(newest)) or "") / 1e6
    return rows, [*claims, Claim("size of a comparison", size, COMPARISON_MB, " MB")]


def whole_sites(store: Store, folder: Path) -> tuple[list[list[str]], list[Claim]]:
    """Return rows for reading all runs, the first build and that after a further night, and the claims on builds."""
    runs = [row.id for row in store.runs.list()]
    rows = readings(store, runs)
    first = _timed(lambda: str(len(build(store, folder))))
    newest, oldest = store.runs.list(1)[0].id, store.runs.list()[-1].id
    add_night(store, oldest, newest + 1)
    second = _timed(lambda: str(len(build(store, folder))))
    rows += [_row("the whole site", [first]), _row("the whole site, a night later", [second])]
    return rows, [
        Claim("processor time of a site", first[1], BUILD_S, " s"),
        Claim("processor time of a site a night later", second[1], NIGHT_S, " s"),
    ]


def readings(store: Store, runs: list[int]) -> list[list[str]]:
    """Return rows for reading what runs measured."""
    kinds = {
        "the histories of all series": lambda: str(len(store.series.histories(runs))),
        "errors, work and static facts of all cases": lambda: str(len(store.measurements.quantities(runs))),
        "the histories that the newest run is judged by": lambda: str(len(store.series.histories_until(runs[0], 200))),
        "the conditions of the GPUs": lambda: str(len(store.devices.in_runs(runs))),
    }
    return [_row(name, [_timed(reading)]) for name, reading in kinds.items()]


def change(store: Store) -> None:
    """Change the database so that its state is another one."""
    with store.database.writing() as connection:
        connection.exec_driver_sql("UPDATE devices SET clock_hz = clock_hz + 1")


def _timed(work: Callable[[], str | None]) -> tuple[float, float, int]:
    """Return the wall time and the processor time of some work in seconds, and the size of its text in bytes."""
    began, used = time.perf_counter(), _processor_s()
    text = work() or ""
    return time.perf_counter() - began, _processor_s() - used, len(text.encode())


def _processor_s() -> float:
    """Return the processor time of this process and of its children that have ended, in seconds."""
    return sum(os.times()[:4])


def _row(name: str, times: list[tuple[float, float, int]]) -> list[str]:
    wall, processor, size = (statistics.median(column) for column in zip(*times, strict=True))
    return [name, f"{wall:.2f}", f"{processor:.2f}", f"{size / 1e6:.2f}"]


if __name__ == "__main__":
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    sys.exit(main())
