"""Simulate GPUs of one model over a quarter: how often a sound GPU is found slow, and how often a slow one is.

    python tests/benchmarks/slow_gpus.py [--nights 90] [--fleets 4000] [--seed 11] [--json slow_gpus.json]

The speeds of GPUs have a standard deviation of 1 % (a row below has others), as boards of one model differ by 1 to 3 %.
Each night changes the speed of each GPU by 0.3 % (standard deviation): its ratio is a median over many cases, so the
noise of single cases is small against that. The rule is that of perfsvc (``perfsvc.judge``). Needs no GPU.
"""

import argparse
import sys

import numpy as np
from workbench import Claim, finish, parsed, table

from perfsvc.judge import SIBLING_NIGHTS, is_as_fast_as_siblings, is_slower_than_siblings, sibling_threshold

SPREAD, NIGHTLY = 0.01, 0.003


def simulate(options: argparse.Namespace, gpus: int, lag: float, spread: float) -> dict[str, float]:
    """Return in which share of fleets the first GPU is found, in which night, and how often it is then resolved."""
    random = np.random.default_rng([options.seed, gpus, round(lag * 1000), round(spread * 1000)])
    boards = np.exp(spread * random.standard_normal((options.fleets, 1, gpus)))
    boards[:, :, 0] *= lag
    speeds = boards * np.exp(NIGHTLY * random.standard_normal((options.fleets, options.nights, gpus)))
    first, resolved = [], 0
    for fleet in speeds[:, :, 0] / np.median(speeds[:, :, 1:], axis=2):
        nights = [(float(ratio), gpus - 1) for ratio in fleet]
        if max(nights)[0] <= 1 + sibling_threshold(gpus - 1):
            continue  # no night is slower: most fleets end here
        newest_first = [nights[max(at - SIBLING_NIGHTS + 1, 0) : at + 1][::-1] for at in range(len(nights))]
        night = next((at for at, seen in enumerate(newest_first) if is_slower_than_siblings(seen)), None)
        if night is not None:
            first.append(night + 1)
            resolved += any(map(is_as_fast_as_siblings, newest_first[night:]))
    return {
        "found": len(first) / options.fleets,
        "night": float(np.median(first)) if first else 0.0,
        "resolved": resolved / options.fleets,
    }


def main() -> int:
    """Simulate, print a row for each kind of fleet, and check the claims."""
    options = parsed(
        __doc__,
        ("--nights", 90, "how many nights each fleet lives"),
        ("--fleets", 4000, "how many fleets of each kind"),
        ("--seed", 11, "of all noise"),
    )
    kinds = [(gpus, lag, SPREAD) for gpus in (2, 4, 8) for lag in (1.0, 1.03, 1.05, 1.08)]
    kinds += [(8, lag, spread) for spread in (0.005, 0.015) for lag in (1.0, 1.05)]
    results = [(kind, simulate(options, *kind)) for kind in kinds]
    rows = [
        [
            str(gpus),
            f"{spread:.1%}",
            f"{lag - 1:.0%}",
            f"{found['found']:.1%}",
            f"{found['night']:.0f}" if found["found"] else "",
            f"{found['resolved']:.1%}",
        ]
        for (gpus, lag, spread), found in results
    ]
    print(table(["GPUs", "spread", "slower by", "found", "in night", "resolved wrongly"], rows))
    usual = {(gpus, lag): found for (gpus, lag, spread), found in results if spread == SPREAD}
    claims = [
        Claim("share of sound GPUs that are found slow", max(usual[gpus, 1.0]["found"] for gpus in (2, 4, 8)), 0.01),
        Claim("share of GPUs 5 % slower, of eight, that are missed", 1 - usual[8, 1.05]["found"], 0.1),
        Claim(
            "share of GPUs 8 % slower that are missed", max(1 - usual[gpus, 1.08]["found"] for gpus in (2, 4, 8)), 0.03
        ),
        Claim(
            "share of GPUs 8 % slower that are resolved", max(usual[gpus, 1.08]["resolved"] for gpus in (2, 4, 8)), 0.01
        ),
    ]
    return finish(claims, options.json, kinds=[[*kind, found] for kind, found in results])


if __name__ == "__main__":
    sys.exit(main())
