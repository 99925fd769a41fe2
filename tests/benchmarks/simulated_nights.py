"""Simulate a year of nights on the fake device: it must find what is planted, and nothing else.

Forked workers measure one hundred cases every night, with noise within and between replicas. Planted are commits that
make cases slower, one of which is taken back, and one that makes them faster; a commit that changes code but no speed;
a slow drift of many small commits; a spike of one night; a slower driver; and a GPU that is slow for some nights. The
script accepts what stays, as a user would. Commits are real, and binaries are built from them: a suspect is measured
again with the old binary and the new one, each at its own speed. After the last night the page is built. Needs no GPU.

    python tests/benchmarks/simulated_nights.py [--nights 365] [--seed 1] [--json simulated.json]
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from simulated import found, pages
from simulated.life import Lived, apiece, bend, live, tenths
from simulated.pages import Built
from simulated.planted import Plan
from simulated.workplace import Workplace
from simulated.year import LEAST, NIGHTS, a_year
from workbench import Claim, finish, parsed, table

from perfsvc.model import Finding
from perfsvc.store import Store

LIMIT_S = 900.0


def main() -> int:
    """Simulate the year, print its costs and findings, and check the claims."""
    options = parsed(
        __doc__,
        ("--nights", NIGHTS, f"how many nights, at least {LEAST}; fewer put everything closer together"),
        ("--seed", 1, "of all noise"),
        ("--folder", Path, "keep everything in this folder"),
    )
    if options.nights < LEAST:
        sys.exit(f"in fewer than {LEAST} nights the planted changes would overlap")
    plan = a_year(options.nights)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ |= {"PERFSVC_CACHE": str(folder / "cache"), "PERFSVC_LOCKS": str(folder / "locks")}
        workplace = Workplace(folder, plan, options.seed)
        lived = watch(workplace)
        with Store.open(workplace.database) as store:
            built = pages.build(store, folder / "site", plan.nights)
            outcomes, unplanted = found.read(store, plan)
            everything = store.findings.all()
    print(table(FINDINGS, rows_of(everything)), end="\n\n")
    print(table(found.OUTCOMES, found.rows_of(plan, outcomes)), end="\n\n")
    print(table(GROWTH, growth_of(plan, lived)), end="\n\n")
    print(cost_of(plan, lived, built))
    claims = [*found.claims_of(outcomes, unplanted), *claims_of(plan, lived, built)]
    return finish(claims, options.json, nights=[asdict(night) for night in lived], page=asdict(built))


def watch(workplace: Workplace) -> list[Lived]:
    """Simulate all nights, and print every tenth."""
    lived: list[Lived] = []
    for night in live(workplace):
        lived.append(night)
        if night.night in {1, workplace.plan.nights} or night.night % 10 == 0:
            print(
                f"night {night.night}: {night.wall_s:.2f} s, {night.cpu_s:.2f} s of processor time, "
                f"{night.bytes / 1e6:.1f} MB, "
                f"{sum(recent.suspects for recent in lived[-10:])} measured again in ten nights",
                flush=True,
            )
    return lived


def claims_of(plan: Plan, lived: Sequence[Lived], built: Built) -> list[Claim]:
    """Return the claims about the cost."""
    claims = [
        Claim("pages of findings and series that are missing", len(built.missing), 0),
        Claim("growth of the last third over the second", bend(lived), 15, " %"),
    ]
    if plan.nights == NIGHTS:
        claims.append(Claim("all nights and the page", total_s(lived, built), LIMIT_S, " s"))
    return claims


def total_s(lived: Sequence[Lived], built: Built) -> float:
    """Return the wall time of the nights, of simulating them, and of the page."""
    return sum(night.wall_s + night.around_s for night in lived) + built.wall_s


# --- what is printed -------------------------------------------------------------------------------------------------

FINDINGS = ("finding", "nights", "series", "direction", "state", "evidence")
GROWTH = ("to night", "database", "a night", "a measurement", "measured again", "seconds", "processor", "around")


def rows_of(everything: Sequence[Finding]) -> list[list[str]]:
    """Return the rows of the table of findings."""
    return [
        [
            f"{finding.id} {finding.cause}",
            f"{finding.first_run} to {finding.last_run}",
            str(len(finding.moved)),
            ", ".join(sorted({moved.direction for moved in finding.moved})),
            finding.state,
            finding.evidence[:60],
        ]
        for finding in reversed(everything)
    ]


def growth_of(plan: Plan, lived: Sequence[Lived]) -> list[list[str]]:
    """Return the rows of the table of the database's growth and the nights' times."""
    return [
        [
            str(mean.night),
            f"{mean.bytes / 1e6:.1f} MB",
            f"{grown:,.0f} B",
            f"{grown / plan.measurements:.0f} B",
            str(mean.suspects),
            f"{mean.wall_s:.2f} s",
            f"{mean.cpu_s:.2f} s",
            f"{mean.around_s:.3f} s",
        ]
        for mean, grown in tenths(lived)
    ]


def cost_of(plan: Plan, lived: Sequence[Lived], built: Built) -> str:
    """Return the total costs as text."""
    bytes_a_night, nights_s = apiece(lived), [night.wall_s for night in lived]
    return (
        f"{total_s(lived, built):.0f} s in all: {sum(nights_s):.0f} s of nights "
        f"({sum(night.cpu_s for night in lived):.0f} s of processor time; median {statistics.median(nights_s):.2f} s), "
        f"{sum(night.around_s for night in lived):.1f} s around them, {built.wall_s:.1f} s of the page\n"
        f"{lived[-1].bytes / 1e6:.1f} MB: {bytes_a_night:,.0f} bytes a night, "
        f"{bytes_a_night / plan.measurements:.0f} a measurement; {sum(night.suspects for night in lived)} suspects "
        f"measured again\n"
        f"{built.pages} pages, {built.bytes / 1e6:.1f} MB: {built.findings} of findings, {built.series} of series"
    )


if __name__ == "__main__":
    sys.exit(main())
