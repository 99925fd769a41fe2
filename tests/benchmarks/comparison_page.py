"""Measure the page of a comparison of many series in headless Chromium.

    python tests/benchmarks/comparison_page.py [--rows 10000] [--repeats 5] [--page FILE]

The rows have ten variants of each problem on two GPUs. A third of them moved, and a third is inconclusive with a reason
of its own, so that no text repeats more than it would in reality. The claims: the page has less than 3 MB without
compression, paints its first rows after less than a second of work, and answers each change of a filter with less than
100 ms of work. Work is the time that the main thread of the page computes. On an idle machine, the clock shows little
more.
"""

import gzip
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench import Claim, browser_tab, finish, parsed, table

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

FILTERS = {
    "a word": ("text", "variant_3"),
    "no word": ("text", ""),
    "only relevant": ("show", "relevant"),
    "all": ("show", ""),
    "a benchmark": ("benchmark", "kernel_7"),
    "all benchmarks": ("benchmark", ""),
    "slower": ("direction", "slower"),
    "sorted by name": ("sort", "name"),
}
"""Changes of the filters, one after the other: the field and its value, by what the table calls the change."""

PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
    const paint = list.getEntriesByName('first-contentful-paint')[0]?.startTime;
    if (paint) done(Math.max(paint, performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd));
}).observe({ type: 'paint', buffered: true }))"""
"""Returns when the page was painted. Its scripts make the rows of a comparison before that event."""

CHANGE = """([name, value]) => new Promise((done) => {
    const field = document.getElementById('filters').elements[name];
    const began = performance.now();
    field.value = value;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""
"""Changes a filter; returns how long the answer took, until the browser has laid out and painted the new rows."""


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
        f"kernel_{number // 200}",
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


def measure(page: Path, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """Open a page so many times, and change its filters.

    Returns:
        For each of these, the milliseconds of all visits: those that the main thread of the page was at work, and those
        on the clock. On a machine that other programs use, the clock also counts their time.
    """
    times = defaultdict(list)
    for _ in range(repeats):
        with browser_tab() as tab:
            session = tab.context.new_cdp_session(tab)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            tab.goto(page.as_uri())
            clock_ms, before = float(tab.evaluate(PAINTED)), _work_ms(session)
            times[OPENED].append((before, clock_ms))
            if not tab.locator("#compared tbody tr").count():
                raise RuntimeError("the page shows no rows")
            for name, change in FILTERS.items():
                clock_ms, after = float(tab.evaluate(CHANGE, list(change))), _work_ms(session)
                times[name].append((after - before, clock_ms))
                before = after
    return times


def _work_ms(session: Any) -> float:
    """Return how long the main thread of a page has been at work."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")


OPENED = "opened"


def main() -> int:
    """Write the page, open it, check the claims, and return the exit status."""
    given = parsed(
        __doc__, ("--rows", 10_000), ("--repeats", 5), ("--seed", 1), ("--page", Path, "keep the page in this file")
    )
    with tempfile.TemporaryDirectory() as folder:
        page = given.page or Path(folder) / "compare.html"
        page.write_text(comparison_page(sides(given.rows, given.seed), datetime.now(UTC)), encoding="utf-8")
        content = page.read_bytes()
        times = measure(page.absolute(), given.repeats)
    size, packed = len(content), len(gzip.compress(content))
    print(f"{given.rows} rows: {size / 1e6:.2f} MB, {packed / 1e6:.2f} MB with gzip")
    medians = {name: [statistics.median(of) for of in zip(*visits, strict=True)] for name, visits in times.items()}
    print(table(["what", "work, ms", "clock, ms"], [[name, *map("{:.0f}".format, of)] for name, of in medians.items()]))
    opened_ms, slowest_ms = medians[OPENED][0], max(work_ms for name, (work_ms, _) in medians.items() if name != OPENED)
    claims = [
        Claim("size of the page without compression", size / 1e6, LARGEST_MB, " MB"),
        Claim("work until the rows are painted", opened_ms, FIRST_PAINT_MS, " ms"),
        Claim("work of the slowest answer of a filter", slowest_ms, FILTER_MS, " ms"),
    ]
    return finish(claims, given.json, rows=given.rows, bytes=size, gzip_bytes=packed, work_and_clock_ms=times)


if __name__ == "__main__":
    sys.exit(main())
