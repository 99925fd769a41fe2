"""A year of nights on the fake device: what is planted has to be found, and nothing else.

One hundred cases with noise within and between replicas, measured every night by forked workers. Planted are
commits that make cases slower, one of which is taken back, and one that makes them faster; a commit that changes code
and no speed; a slow drift of many small commits; a spike of one night; a slower driver; and a GPU that is slow for
some nights. A person accepts what stays. Commits are commits, and binaries are built from them: a suspect is measured
again with the old binary and the new one, each at its own speed. After the last night the page is built. Needs no GPU.

    python tests/benchmarks/simulated_nights.py [--nights 365] [--seed 1] [--profile 10,300] [--json simulated.json]
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from simulated import found, pages
from simulated.life import Lived, apiece, bend, live, tenths
from simulated.pages import Built
from simulated.planted import Plan
from simulated.workplace import Workplace
from simulated.year import LEAST, NIGHTS, a_year
from workbench import Claim, finish, table

from perfsvc.model import Finding
from perfsvc.store import Store

LIMIT_S = 900.0


def main() -> int:
    """Lives the year, prints what it cost and what was found, and says what holds."""
    options = asked()
    plan = a_year(options.nights)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ |= {"PERFSVC_CACHE": str(folder / "cache"), "PERFSVC_LOCKS": str(folder / "locks")}
        workplace = Workplace(folder, plan, options.seed)
        lived = watch(workplace, [int(night) for night in filter(None, options.profile.split(","))])
        with Store.open(workplace.database) as store:
            built = pages.build(store, folder / "site", plan.nights)
            told, of_nothing = found.read(store, plan)
            everything = store.findings.all()
    print(table(FINDINGS, rows_of(everything)), end="\n\n")
    print(table(found.OUTCOMES, found.rows_of(plan, told)), end="\n\n")
    print(table(GROWTH, growth_of(plan, lived)), end="\n\n")
    print(cost_of(plan, lived, built))
    claims = [*found.claims_of(told, of_nothing), *claims_of(plan, lived, built)]
    return finish(claims, options.json, nights=[asdict(one) for one in lived], page=asdict(built))


def asked() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--nights", type=int, default=NIGHTS, help=f"fewer have everything closer together; {LEAST} at least"
    )
    parser.add_argument("--seed", type=int, default=1, help="of all noise")
    parser.add_argument("--profile", default="", help="nights of which to print what they spend their time on")
    parser.add_argument("--folder", type=Path, help="where to keep everything; nowhere without it")
    parser.add_argument("--json", type=Path, help="where to keep what was found")
    options = parser.parse_args()
    if options.nights < LEAST:
        parser.error(f"in fewer than {LEAST} nights what is planted would fall together")
    return options


def watch(workplace: Workplace, profiled: Collection[int]) -> list[Lived]:
    """Lives all nights, and prints every tenth."""
    lived: list[Lived] = []
    for one in live(workplace, profiled):
        lived.append(one)
        if one.night in {1, workplace.plan.nights} or one.night % 10 == 0:
            print(
                f"night {one.night}: {one.wall_s:.2f} s, {one.cpu_s:.2f} s of the processor, {one.bytes / 1e6:.1f} MB, "
                f"{sum(each.suspects for each in lived[-10:])} measured again in ten nights",
                flush=True,
            )
    return lived


def claims_of(plan: Plan, lived: Sequence[Lived], built: Built) -> list[Claim]:
    """What is to hold of the cost."""
    claims = [
        Claim("pages of findings and series that are missing", len(built.missing), 0),
        Claim("growth of the last third over the second", bend(lived), 15, " %"),
    ]
    if plan.nights == NIGHTS:
        claims.append(Claim("all nights and the page", total_s(lived, built), LIMIT_S, " s"))
    return claims


def total_s(lived: Sequence[Lived], built: Built) -> float:
    """All that counts, by the clock: the nights, what simulating them takes, and the page."""
    return sum(one.wall_s + one.around_s for one in lived) + built.wall_s


# --- what is printed -------------------------------------------------------------------------------------------------

FINDINGS = ("finding", "nights", "series", "direction", "state", "evidence")
GROWTH = ("to night", "database", "a night", "a measurement", "measured again", "seconds", "processor", "around")


def rows_of(everything: Sequence[Finding]) -> list[list[str]]:
    """The table of findings."""
    return [
        [
            f"{one.id} {one.cause}",
            f"{one.first_run} to {one.last_run}",
            str(len(one.moved)),
            ", ".join(sorted({each.direction for each in one.moved})),
            one.state,
            one.evidence[:60],
        ]
        for one in reversed(everything)
    ]


def growth_of(plan: Plan, lived: Sequence[Lived]) -> list[list[str]]:
    """The table of what the database grows by, and what a night takes meanwhile."""
    return [
        [
            str(one.last),
            f"{one.bytes_after / 1e6:.1f} MB",
            f"{one.bytes_a_night:,.0f} B",
            f"{one.bytes_a_night / plan.measurements:.0f} B",
            str(one.suspects),
            f"{one.wall_s:.2f} s",
            f"{one.cpu_s:.2f} s",
            f"{one.around_s:.3f} s",
        ]
        for one in tenths(lived)
    ]


def cost_of(plan: Plan, lived: Sequence[Lived], built: Built) -> str:
    """What all of it cost, in words."""
    bytes_a_night, nights_s = apiece(lived), [one.wall_s for one in lived]
    return (
        f"{total_s(lived, built):.0f} s in all: {sum(nights_s):.0f} s of nights "
        f"({sum(one.cpu_s for one in lived):.0f} s of the processor; median {statistics.median(nights_s):.2f} s), "
        f"{sum(one.around_s for one in lived):.1f} s around them, {built.wall_s:.1f} s of the page\n"
        f"{lived[-1].bytes / 1e6:.1f} MB: {bytes_a_night:,.0f} bytes a night, "
        f"{bytes_a_night / plan.measurements:.0f} a measurement; {sum(one.suspects for one in lived)} suspects "
        f"measured again\n"
        f"{built.pages} pages, {built.bytes / 1e6:.1f} MB: {built.findings} of findings, {built.series} of series"
    )


if __name__ == "__main__":
    sys.exit(main())
