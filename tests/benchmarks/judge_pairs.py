"""What ``judge.compare`` and ``judge.compare_at_look`` say of pairs of sides drawn from real processes.

The processes are those of tests/data/noise: six kernels on an H200, 30 processes each, also with 1 and 2 % more work. A
side is some of them, drawn without putting back; two sides of the same work share none. Pairs of the same work show how
often a change is called where there is none, the others how often a change is found.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from workbench import Claim, finish, table

from perfsvc.judge import Comparison, compare, compare_at_look
from perfsvc.model import Verdict

DATA = Path(__file__).parent.parent / "data" / "noise" / "processes.npz"
TICK_S = 32e-9
KERNELS = ("vec_add", "dot", "tr_naive", "tr_pad", "matmul", "vec_add_mid")
CLEAN = KERNELS[:3]
"""Those that replicas repeat within 0.3 %."""
MOVED = KERNELS[:2]
"""Those whose time moves with their work."""
LOOKS = (3, 5, 7, 9)
"""Replicas a side at each look of a sequential comparison."""
CALLED = (Verdict.REGRESSION, Verdict.IMPROVEMENT)

Times = NDArray[np.float64]
Side = list[Times]
Judge = Callable[[Side, Side], Verdict]


@dataclass(frozen=True)
class Pairs:
    """Sides to draw from: [processes, samples] in seconds each."""

    before: Times
    after: Times

    def draw(self, generator: np.random.Generator, replicas: int) -> tuple[Side, Side]:
        """Two sides; no process of a side comes twice, nor in both sides where both have the same work."""
        order = generator.permutation(len(self.before))
        other = order[replicas:] if self.before is self.after else generator.permutation(len(self.after))
        return list(self.before[order[:replicas]]), list(self.after[other[:replicas]])


def main() -> int:
    """Draws, judges, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000, help="pairs for each rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    arguments = parser.parse_args()
    with np.load(DATA) as stored:
        data = {key: stored[key] * TICK_S for key in stored.files}
    rates = Rates(data, arguments.draws, arguments.seed)
    claims = [*false_changes(rates), *found_changes(rates), *wild(rates), *in_looks(rates)]
    return finish(claims, arguments.json, draws=arguments.draws, seed=arguments.seed)


@dataclass(frozen=True)
class Rates:
    """How often something is said, in per cent."""

    data: dict[str, Times]
    draws: int
    seed: int

    def of(self, pairs: Pairs, replicas: int, judged: Judge, verdicts: Sequence[Verdict]) -> float:
        """How often a judge says one of some verdicts of pairs of sides."""
        generator = np.random.default_rng(self.seed)
        said = (judged(*pairs.draw(generator, replicas)) for _ in range(self.draws))
        return 100 * sum(verdict in verdicts for verdict in said) / self.draws

    def same(self, kernel: str, replicas: int, judged: Judge) -> float:
        """How often a change is called where there is none."""
        times = self.data[f"{kernel} 0"]
        return self.of(Pairs(times, times), replicas, judged, CALLED)

    def more(self, kernel: str, work: str, replicas: int, judged: Judge, samples: int = 100) -> float:
        """How often more work is called a regression."""
        before, after = self.data[f"{kernel} 0"][:, :samples], self.data[f"{kernel} {work}"][:, :samples]
        return self.of(Pairs(before, after), replicas, judged, CALLED[:1])


def at(threshold: float = 0.01) -> Judge:
    """``compare`` with its defaults but for the threshold."""
    return lambda before, after: compare(before, after, threshold=threshold).verdict


def false_changes(rates: Rates) -> list[Claim]:
    """The same work on both sides."""
    sizes = (2, 3, 5, 10)
    found = {kernel: [rates.same(kernel, replicas, at()) for replicas in sizes] for kernel in KERNELS}
    fine = {kernel: rates.same(kernel, 5, at(0.005)) for kernel in CLEAN}
    print("The same work on both sides: called a regression or an improvement, %\n")
    rows = [
        [kernel, *(f"{rate:.2f}" for rate in row), f"{fine[kernel]:.2f}" if kernel in fine else ""]
        for kernel, row in found.items()
    ]
    print(table(["kernel", *(f"{replicas} replicas" for replicas in sizes), "5 at 0.5 %"], rows), end="\n\n")
    return [
        Claim("false changes on any kernel", max(map(max, found.values())), 1.5, " %"),
        Claim("false changes of clean kernels, 5 replicas, threshold 0.5 %", max(fine.values()), 0.3, " %"),
    ]


def found_changes(rates: Rates) -> list[Claim]:
    """More work on one side; claims are of what is missed, so that less is better."""
    cases = [("0.02", 3, 0.01, 10.0), ("0.02", 5, 0.01, 1.0), ("0.01", 5, 0.005, 15.0)]
    rows, claims = [], []
    for work, replicas, threshold, limit in cases:
        by_samples = {
            samples: [rates.more(kernel, work, replicas, at(threshold), samples) for kernel in MOVED]
            for samples in (10, 30, 100)
        }
        what = f"+{100 * float(work):g} % of work, {replicas} replicas, threshold {100 * threshold:g} %"
        rows += [
            [f"{what}: {kernel}", *(f"{row[place]:.1f}" for row in by_samples.values())]
            for place, kernel in enumerate(MOVED)
        ]
        fall = max(few - many for few, many in zip(by_samples[10], by_samples[100], strict=True))
        claims.append(Claim(f"missed of {what}", 100 - min(by_samples[100]), limit, " %"))
        claims.append(Claim(f"lost from 10 to 100 samples: {what}", fall, 3.0, " points"))
    print("More work: called a regression, %\n")
    print(table(["", "10 samples", "30", "100"], rows), end="\n\n")
    return claims


def wild(rates: Rates) -> list[Claim]:
    """One replica of one side made five times slower."""

    def starved(before: Side, after: Side) -> Verdict:
        return compare(before, [*after[:-1], 5 * after[-1]], threshold=0.005).verdict

    def starved_before(before: Side, after: Side) -> Verdict:
        return compare([*before[:-1], 5 * before[-1]], after, threshold=0.005).verdict

    fewer = replace(rates, draws=rates.draws // 10)
    worst = max(
        fewer.same(kernel, replicas, judged)
        for kernel in KERNELS
        for replicas in (1, 2, 3, 5, 10)
        for judged in (starved, starved_before)
    )
    return [Claim("changes called where one replica is five times slower", worst, 0.0, " %")]


def in_looks(rates: Rates) -> list[Claim]:
    """Comparing at each of several looks, and stopping at the first answer."""
    replicas: list[int] = []

    def stopped(before: Side, after: Side) -> Verdict:
        for look, seen in enumerate(LOOKS, 1):
            said: Comparison = compare_at_look(before[:seen], after[:seen], look=look, looks=len(LOOKS))
            if said.verdict is not Verdict.INCONCLUSIVE:
                break
        replicas.append(seen)
        return said.verdict

    rows, false, missed = [], [], []
    for kernel in KERNELS:
        false.append(rates.same(kernel, LOOKS[-1], stopped))
        rows.append([f"{kernel}, the same work", f"{false[-1]:.2f}", f"{np.mean(replicas):.1f}"])
        replicas.clear()
    for kernel in MOVED:
        found = rates.more(kernel, "0.02", LOOKS[-1], stopped)
        missed.append(100 - found)
        rows.append([f"{kernel}, +2 % of work", f"{found:.1f}", f"{np.mean(replicas):.1f}"])
        replicas.clear()
    print(f"Looks at {', '.join(map(str, LOOKS))} replicas a side, stopped at the first answer\n")
    print(table(["", "called, %", "replicas a side"], rows), end="\n\n")
    return [
        Claim("false changes over all looks, on any kernel", max(false), 1.0, " %"),
        Claim("missed of +2 % of work over all looks", max(missed), 1.0, " %"),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
