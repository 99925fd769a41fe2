"""Measure the page of a comparison of many series in headless Chromium.

    python tests/benchmarks/comparison_page.py [--rows 10000] [--repeats 5] [--page FILE]

The rows have ten variants of each problem on two GPUs. A third of them moved, and a third is inconclusive with a reason
of its own, so that no text repeats more than it would in reality. The claims: the page has less than 3 MB without
compression, shows its first rows in less than a second, and answers each change of a filter in less than 100 ms.
"""

import argparse
import gzip
import random
import shutil
import statistics
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

LARGEST = 3_000_000
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


def measure(page: Path, repeats: int) -> tuple[list[float], dict[str, list[float]]]:
    """Open a page so many times; return the first paints with rows and, for each change of a filter, the answers, in ms.

    An answer ends when the browser has laid out and painted the new rows.
    """
    from playwright.sync_api import sync_playwright

    paints: list[float] = []
    answers: dict[str, list[float]] = {name: [] for *_, name in FILTERS}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(repeats):
            opened = browser.new_page(viewport={"width": 1600, "height": 900})
            opened.goto(page.as_uri())
            paints.append(_first_paint(opened))
            for field, value, name in FILTERS:
                answers[name].append(opened.evaluate(CHANGE, [field, value]))
            opened.close()
        browser.close()
    return paints, answers


def _first_paint(opened: Any) -> float:
    """Return when the browser painted the page, rows included: the script runs before the first paint or delays it."""
    if not opened.locator("#compared tbody tr").count():
        raise RuntimeError("the page shows no rows")
    return float(
        opened.evaluate("""() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
            const paint = performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0;
            done(Math.max(paint, performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd));
        })))""")
    )


CHANGE = """([name, value]) => new Promise((done) => {
    const field = document.getElementById('filters').elements[name];
    const began = performance.now();
    field.value = value;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    document.body.getBoundingClientRect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""


def main() -> None:
    """Write the page, open it, and check the claims."""
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
        paints, answers = measure(page.absolute(), given.repeats)
    size, packed = len(content), len(gzip.compress(content))
    slowest = max(map(max, answers.values()))
    print(f"{given.rows} rows: {size / 1e6:.2f} MB, {packed / 1e6:.2f} MB with gzip")
    print(f"painted with its rows after {statistics.median(paints):.0f} ms, at most {max(paints):.0f} ms")
    table(
        ["change of a filter", "median, ms", "at most, ms"],
        [[name, f"{statistics.median(times):.0f}", f"{max(times):.0f}"] for name, times in answers.items()],
    )
    claims = [
        Claim(f"the page has less than {LARGEST / 1e6:.0f} MB", size < LARGEST, f"{size / 1e6:.2f} MB"),
        Claim(f"the first paint takes less than {FIRST_PAINT_MS:.0f} ms", max(paints) < FIRST_PAINT_MS, f"{max(paints):.0f} ms"),
        Claim(f"a filter answers in less than {FILTER_MS:.0f} ms", slowest < FILTER_MS, f"{slowest:.0f} ms"),
    ]
    results = {"rows": given.rows, "bytes": size, "gzip": packed, "paints_ms": paints, "answers_ms": answers}
    finish(claims, results, given.json)


if __name__ == "__main__":
    main()
