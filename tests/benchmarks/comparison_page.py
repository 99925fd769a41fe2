"""Measure the page of a comparison of many series in headless Chromium.

    python tests/benchmarks/comparison_page.py [--rows 10000] [--repeats 5] [--page FILE]

The rows have ten variants of each problem on two GPUs. A third of them moved, and a third is inconclusive with a reason
of its own, so that no text repeats more than it would in reality. The claims: the page has less than 3 MB without
compression, paints its first rows after less than a second of work, and answers each change of a filter with less than
100 ms of work. Work is the time that the main thread of the page computes. On an idle machine, the clock shows little
more.
"""

import argparse
import gzip
import random
import shutil
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench import Claim, finish, table

from perfsvc.model import Case, Cause, Difference, Judgement, Series, Verdict
from perfsvc.report.pages.compared import ComparedSides
from perfsvc.report.pages.render import comparison_page
from perfsvc.report.rows import ComparedRun, EnvironmentDifferences
from perfsvc.service.compare.compare import RunComparison
from perfsvc.service.compare.side_by_side import side_by_side

LARGEST_MB = 3.0
FIRST_PAINT_MS = 1000.0
FILTER_MS = 100.0
GPUS = (("GPU-5e0c1a22-8d7f-4c1b-9a57-0d3f5b7e9c11", "NVIDIA H100 80GB HBM3"), ("GPU-77b1d0c4", "NVIDIA H200"))

FILTERS = (
    ("text", "variant_3", "a word"),
    ("text", "", "no word"),
    ("show", "relevant", "only relevant"),
    ("show", "", "all"),
    ("benchmark", "problem_7", "a benchmark"),
    ("benchmark", "", "all benchmarks"),
    ("direction", "slower", "slower"),
    ("sort", "name", "sorted by name"),
)
"""Changes of the filters, one after the other: the field, its value, and what the table calls it."""


def sides(rows: int, seed: int) -> ComparedSides:
    """Return a comparison with so many rows."""
    chance = random.Random(seed)
    judgements = [_judgement(number, chance) for number in range(rows)]
    comparison = RunComparison(ComparedRun("main", 6, commit="a" * 40), ComparedRun("HEAD", 7), tuple(judgements))
    changed = EnvironmentDifferences(6, 7, (Difference("software.driver", "575.1", "580.1", ()),))
    return side_by_side(comparison, {row.series: 0.01 for row in judgements}, environment=changed)


def _judgement(number: int, chance: random.Random) -> Judgement:
    uuid, model = GPUS[number % 2]
    case = Case(
        f"problem_{number // 200}",
        f"variant_{number % 10}_TILE32_PAD1",
        (("m", 256 * (1 + number % 17)), ("n", 64 * (1 + number)), ("dtype", "float16")),
    )
    ratio = chance.choice((1.0, 1.0, 1.0, 1.08, 0.93, 1.6)) * (1 + chance.gauss(0, 0.004))
    half = 0.002 + abs(chance.gauss(0, 0.01))
    if number % 3 == 0:
        verdict = Verdict.INCONCLUSIVE
        reason = (
            f"noise hides a change: the smallest that these replicas could have shown is {100 * half:.3g} %; "
            f"{chance.randrange(4, 90)} replicas on each side would settle it"
        )
    else:
        moved = abs(ratio - 1) > 0.02
        verdict = (Verdict.REGRESSION if ratio > 1 else Verdict.IMPROVEMENT) if moved else Verdict.UNCHANGED
        reason = "beyond the threshold of 1 %" if moved else "within the threshold of 1 %"
    level = 1e-6 * 10 ** chance.uniform(0, 4)
    return Judgement(
        Series(case, uuid, model),
        verdict,
        reason,
        ratio,
        ratio * (1 - half),
        ratio * (1 + half),
        6,
        7,
        level,
        level * ratio,
        max(half, 0.01),
        3,
        3,
        cause=Cause.KERNEL if verdict in {Verdict.REGRESSION, Verdict.IMPROVEMENT} else None,
    )


class Visits:
    """What the visits of a page took, in ms: on the clock, and as time that the main thread of the page was at work.

    On a machine that other programs use, the clock also counts their time.
    """

    def __init__(self) -> None:
        self.clock: dict[str, list[float]] = {}
        self.work: dict[str, list[float]] = {}

    def add(self, name: str, clock_ms: float, work_ms: float) -> None:
        """Add a time."""
        self.clock.setdefault(name, []).append(clock_ms)
        self.work.setdefault(name, []).append(work_ms)


def measure(page: Path, repeats: int) -> Visits:
    """Open a page so many times, and change its filters.

    An answer ends when the browser has laid out and painted the new rows. Opening ends with the first paint that has
    rows.
    """
    from playwright.sync_api import sync_playwright

    visits = Visits()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(repeats):
            opened = browser.new_page(viewport={"width": 1600, "height": 900})
            session = opened.context.new_cdp_session(opened)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            opened.goto(page.as_uri())
            painted = float(opened.evaluate(PAINTED))
            if not opened.locator("#compared tbody tr").count():
                raise RuntimeError("the page shows no rows")
            before = _work_ms(session)
            visits.add(OPENED, painted, before)
            for field, value, name in FILTERS:
                clock = float(opened.evaluate(CHANGE, [field, value]))
                after = _work_ms(session)
                visits.add(name, clock, after - before)
                before = after
            opened.close()
        browser.close()
    return visits


def _work_ms(session: Any) -> float:
    """Return how long the main thread of a page has been at work."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")


OPENED = "opened"

PAINTED = """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => {
    const paint = performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? Infinity;
    done(Math.max(paint, performance.getEntriesByType('navigation')[0].domInteractive));
})))"""
"""Returns when the page was painted; its rows are made before the document is complete."""

CHANGE = """([name, value]) => new Promise((done) => {
    const field = document.getElementById('filters').elements[name];
    const began = performance.now();
    field.value = value;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""


def main() -> int:
    """Write the page, open it, check the claims, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, help="keep the page in this file")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = given.page or Path(folder) / "compare.html"
        page.write_text(comparison_page(sides(given.rows, given.seed), datetime.now(UTC)), encoding="utf-8")
        content = page.read_bytes()
        visits = measure(page.absolute(), given.repeats)
    size, packed = len(content), len(gzip.compress(content))
    print(f"{given.rows} rows: {size / 1e6:.2f} MB, {packed / 1e6:.2f} MB with gzip")
    cells = [
        [name, *(f"{statistics.median(times):.0f}" for times in (visits.work[name], visits.clock[name]))]
        for name in visits.work
    ]
    print(table(["what", "work, ms", "clock, ms"], cells))
    slowest = max(statistics.median(times) for name, times in visits.work.items() if name != OPENED)
    claims = [
        Claim("size of the page without compression", size / 1e6, LARGEST_MB, " MB"),
        Claim("work until the rows are painted", statistics.median(visits.work[OPENED]), FIRST_PAINT_MS, " ms"),
        Claim("work of the slowest answer of a filter", slowest, FILTER_MS, " ms"),
    ]
    return finish(
        claims, given.json, rows=given.rows, bytes=size, gzip_bytes=packed, work_ms=visits.work, clock_ms=visits.clock
    )


if __name__ == "__main__":
    sys.exit(main())
