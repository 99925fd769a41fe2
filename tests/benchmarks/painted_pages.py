"""Open the pages of `perfsvc serve` in headless Chromium, and change the filters of a comparison.

    python tests/benchmarks/painted_pages.py [--cases 5000] [--nights 20] [--database FILE] [--repeats 3]

The script fills a database with planted nights, two series for each case, and serves it on loopback. One tab visits
all pages, as a reader does, and keeps style and scripts. Before each visit the database changes, so that the server
makes the page anew; a second visit gets what the server has kept. A page counts as painted when Chromium has painted
its first content and has run the scripts of the page, whichever is later. The claims count the time on the clock, so
let nothing else run.
"""

import statistics
import sys
from pathlib import Path
from typing import Any

from comparison_page import CHANGE, FILTER_MS, FILTERS, LARGEST_MB, PAINTED
from page_speed import change
from server_load import served
from simulated.many import filled
from workbench import Claim, browser_tab, finish, parsed, table

from perfsvc.report.pages.site import comparison_page, series_page
from perfsvc.store import Store

PAINTED_MS = 1000.0


def main() -> int:
    """Fill the database, open its pages, check the claims, and return the exit status."""
    options = parsed(
        __doc__,
        ("--cases", 5000, "each has a series of times and a series of energies"),
        ("--nights", 20),
        ("--database", Path, "keep the database in this file, or use it if it exists"),
        ("--repeats", 3),
    )
    with (
        filled(options.database, options.cases, options.nights) as (path, folder),
        Store.open(path) as store,
        served(str(path), folder) as (_, address),
    ):
        rows, claims = visits(store, address, options.repeats)
    print(table(("page", "anew, ms", "again, ms", "MB"), rows))
    return finish(claims, options.json, rows=rows)


def visits(store: Store, address: str, repeats: int) -> tuple[list[list[str]], list[Claim]]:
    """Open each kind of page, and return a row for each and the claims about them."""
    newest, before = (row.id for row in store.runs.list(2))
    series = min(store.series.histories([newest]), key=lambda one: one.case.id)
    compared = f"compare/{before}-{newest}.html"
    paths = {
        "Tonight": "index.html",
        "a series": series_page(series),
        "a comparison with the baselines": comparison_page(newest),
        "a comparison of two runs": compared,
    }
    rows, claims = [], []
    with browser_tab() as tab:
        opened(tab, f"{address}{compared}")
        for name, path in paths.items():
            anew, kept = [], []
            for _ in range(repeats):
                change(store)
                painted_ms, megabytes = opened(tab, f"{address}{path}")
                anew.append(painted_ms)
                kept.append(opened(tab, f"{address}{path}")[0])
            rows.append([name, *(f"{statistics.median(times):.0f}" for times in (anew, kept)), f"{megabytes:.2f}"])
            claims.append(Claim(f"until {name} is painted", statistics.median(anew), PAINTED_MS, " ms"))
            if path == compared:
                claims.append(Claim("size of a comparison", megabytes, LARGEST_MB, " MB"))
        answers = filtered(tab, f"{address}{compared}", repeats)
    rows += [[f"filter: {name}", f"{statistics.median(ms):.0f}", "", ""] for name, ms in answers.items()]
    slowest = max(map(statistics.median, answers.values()))
    return rows, [*claims, Claim("until the slowest filter has answered", slowest, FILTER_MS, " ms")]


def opened(tab: Any, url: str) -> tuple[float, float]:
    """Open a page; return when it was painted, in ms, and its size in MB without compression."""
    answer = tab.goto(url)
    if not answer.ok:
        raise RuntimeError(f"{url}: {answer.status}")
    return float(tab.evaluate(PAINTED)), len(answer.body()) / 1e6


def filtered(tab: Any, url: str, repeats: int) -> dict[str, list[float]]:
    """Change the filters of a comparison; return how long the answers to each change took, in ms."""
    tab.goto(url)
    if not tab.locator("#compared tbody tr").count():
        raise RuntimeError("the page shows no rows")
    times = [[float(tab.evaluate(CHANGE, list(each))) for each in FILTERS.values()] for _ in range(repeats)]
    return dict(zip(FILTERS, map(list, zip(*times, strict=True)), strict=True))


if __name__ == "__main__":
    sys.exit(main())
