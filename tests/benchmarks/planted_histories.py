"""Import forty histories with planted changes, a run a night, and check what the findings say of each.

    python tests/benchmarks/planted_histories.py [--noise 0.3] [--seed 1]

Planted are steps of 2 %, 10 %, 50 % and five times, at nights 3, 12, 30 and 200; two steps after each other; steps that
are taken back; and second steps while the finding is open. Each night is one number for each history, with noise (in
per cent, one standard deviation). The script prints, for each planted change, in which night its row of a finding
began, its number, its baseline and its commits. The claims: each change is found, after at most 25 nights (2 %) or in
its second night; its number differs by at most four standard deviations; its baseline and its commits are right; each
recovery is seen; nothing else is found. Needs no GPU.
"""

import csv
import random
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from workbench import Claim, Silent, finish, parsed, table

from perfsvc.model import Finding, MovedSeries
from perfsvc.service.imports.imports import ImportRequest, import_files
from perfsvc.store import Store

NIGHTS, AFTER = 230, 30
SIZES, STARTS = (1.02, 1.1, 1.5, 5.0), (3, 12, 30, 200)
SMALL = 1.05
"""Below this size a change may take ``MOST_NIGHTS`` to find."""
MOST_NIGHTS, SECOND, THIRD, FIRST = 25, 2, 3, 3
"""A change at night ``FIRST`` may take ``THIRD``: two earlier nights of one number say little about the noise."""


@dataclass(frozen=True)
class Step:
    """A planted change: from the night ``start`` on, times are ``ratio`` times as long; until ``end`` if it has one."""

    start: int
    ratio: float
    end: int | None = None


def histories() -> dict[str, tuple[Step, ...]]:
    """Return the planted changes of each history, by the name of its case."""
    planted = {f"step_{start}_{ratio}": (Step(start, ratio),) for start in STARTS for ratio in SIZES}
    for start in (12, 30, 100, 180):
        for ratio in (1.1, 1.5, 5.0):
            planted[f"twice_{start}_{ratio}"] = (Step(start, ratio), Step(start + AFTER, ratio))
    for start in (12, 30, 100):
        for ratio in SIZES:
            planted[f"back_{start}_{ratio}"] = (Step(start, ratio, start + 2 * AFTER),)
    return planted


def write(file: Path, noise: float, seed: int) -> None:
    """Write all nights as one file of CSV."""
    chance, first = random.Random(seed), datetime(2026, 1, 1, 2, tzinfo=UTC)
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(["benchmark", "variant", "time_us", "commit", "at"])
        for night in range(1, NIGHTS + 1):
            for name, steps in histories().items():
                value = 100 * chance.gauss(1, noise)
                for step in steps:
                    value *= step.ratio if step.start <= night < (step.end or NIGHTS + 1) else 1
                moment = (first + timedelta(days=night)).isoformat()
                rows.writerow([name, "copy", repr(value), f"{night:09d}".ljust(40, "0"), moment])


def check(name: str, steps: tuple[Step, ...], rows: list[tuple[Finding, MovedSeries]], noise: float) -> list[list[str]]:
    """Return a line of the table for each change of a history and each row too many; the last cell is its fault."""
    lines = []
    for number, step in enumerate(steps, start=1):
        here = [moved for _, moved in rows if moved.step == number]
        if not here:
            lines.append([name, str(number), f"{step.ratio:g}", str(step.start), "–", "–", "–", "–", "not found"])
            continue
        moved = here[0]
        delay = (moved.first_run or 0) - step.start + 1
        most = MOST_NIGHTS if step.ratio < SMALL else SECOND if step.start > FIRST else THIRD
        commits = f"{step.start - 1:09d}..{step.start:09d}"
        faults = [
            f"found in night {delay}" if not 1 <= delay <= most else "",
            "too many" if len(here) > 1 else "",
            "number" if abs((moved.ratio or 0) / step.ratio - 1) > 4 * 2**0.5 * noise else "",
            "baseline" if not 1 <= (moved.baseline_run or 0) < step.start else "",
            "commits" if moved.root_cause != commits else "",
            "not recovered" if (step.end is None) is not (moved.recovered_run is None) else "",
        ]
        found = (str(delay), f"{moved.ratio:.3f}", str(moved.baseline_run), moved.root_cause)
        lines.append([name, str(number), f"{step.ratio:g}", str(step.start), *found, ", ".join(filter(None, faults))])
    extra = [moved for _, moved in rows if moved.step > len(steps)]
    lines += [[name, str(moved.step), "–", "–", "–", f"{moved.ratio}", "–", "–", "not planted"] for moved in extra]
    return lines


def main() -> int:
    options = parsed(__doc__, ("--noise", 0.3, "of each night, in per cent"), ("--seed", 1))
    noise = options.noise / 100
    with tempfile.TemporaryDirectory() as place:
        file, database = Path(place, "nights.csv"), str(Path(place, "nights.db"))
        write(file, noise, options.seed)
        import_files(ImportRequest(database, "csv", (file,), threshold=0.01), Silent())
        with Store.open(database) as store:
            rows: dict[str, list[tuple[Finding, MovedSeries]]] = {name: [] for name in histories()}
            for finding in store.findings.all():
                for moved in finding.moved:
                    rows[moved.series.case.benchmark].append((finding, moved))
    lines = [line for name, steps in histories().items() for line in check(name, steps, rows[name], noise)]
    heads = ("history", "step", "planted", "night", "found in", "number", "baseline", "commits", "fault")
    print(table(heads, lines), end="\n\n")
    faults = sum(bool(line[-1]) for line in lines)
    return finish([Claim("changes with a fault", faults, 0)], options.json, lines=lines)


if __name__ == "__main__":
    sys.exit(main())
