"""How often ``judge.compare``, also in several looks, is wrong or right on pairs of sides of real processes.

The processes are those of tests/data/noise: six kernels on an H200, 30 processes each, also with 1 and 2 % more work. A
side is a random sample of them without replacement; two sides of the same work share no process. Pairs of the same work
show how often a change is called without one, the other pairs how often a change is found.

    python tests/benchmarks/judge_pairs.py [--draws 1000] [--seed 1] [--json FILE]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from workbench import Claim, judge_processes, table

from perfsvc.judge import ALPHA, Comparison, compare
from perfsvc.model import Verdict

KERNELS = ("vec_add", "dot", "tr_naive", "tr_pad", "matmul", "vec_add_mid")
CLEAN = KERNELS[:3]
"""Kernels whose replicas agree within 0.3 %."""
MOVED = KERNELS[:2]
"""Kernels whose time moves with their work."""
LOOKS = (3, 5, 7, 9)
"""Replicas a side at each look of a sequential comparison."""
CALLED = (Verdict.REGRESSION, Verdict.IMPROVEMENT)

Times = NDArray[np.float64]
Side = list[Times]
Judge = Callable[[Side, Side], Verdict]


@dataclass(frozen=True)
class Pairs:
    """Sides to draw from: times in seconds, each of shape (processes, samples)."""

    before: Times
    after: Times

    def draw(self, generator: np.random.Generator, replicas: int) -> tuple[Side, Side]:
        """Return two sides; a process appears once, and not in both sides if both have the same work."""
        order = generator.permutation(len(self.before))
        other = order[replicas:] if self.before is self.after else generator.permutation(len(self.after))
        return list(self.before[order[:replicas]]), list(self.after[other[:replicas]])


def main() -> int:
    """Draw pairs, compare them and print the rates."""

    def claims(data: dict[str, Times], draws: int, seed: int) -> list[Claim]:
        rates = Rates(data, draws, seed)
        return [*false_changes(rates), *found_changes(rates), *wild(rates), *in_looks(rates)]

    return judge_processes(__doc__, claims)


@dataclass(frozen=True)
class Rates:
    """How often a verdict is given, in per cent."""

    data: dict[str, Times]
    draws: int
    seed: int

    def share(self, draw_one: Callable[[np.random.Generator], Verdict], verdicts: Sequence[Verdict]) -> float:
        """Return how often one of some verdicts is given."""
        generator = np.random.default_rng(self.seed)
        return 100 * sum(draw_one(generator) in verdicts for _ in range(self.draws)) / self.draws

    def of(self, pairs: Pairs, replicas: int, judge: Judge, verdicts: Sequence[Verdict]) -> float:
        """Return how often a judge gives one of some verdicts on pairs of sides."""
        return self.share(lambda generator: judge(*pairs.draw(generator, replicas)), verdicts)

    def same(self, kernel: str, replicas: int, judge: Judge) -> float:
        """Return how often a change is called on the same work."""
        times = self.data[f"{kernel} 0"]
        return self.of(Pairs(times, times), replicas, judge, CALLED)

    def more(self, kernel: str, work: str, replicas: int, judge: Judge, samples: int = 100) -> float:
        """Return how often more work is called a regression."""
        before, after = self.data[f"{kernel} 0"][:, :samples], self.data[f"{kernel} {work}"][:, :samples]
        return self.of(Pairs(before, after), replicas, judge, CALLED[:1])


def at(threshold: float = 0.01) -> Judge:
    """Return ``compare`` with a threshold and its other defaults."""
    return lambda before, after: compare(before, after, threshold=threshold).verdict


def false_changes(rates: Rates) -> list[Claim]:
    """Compare the same work on both sides."""
    sizes = (2, 3, 5, 10)
    rates_by_size = {kernel: [rates.same(kernel, replicas, at()) for replicas in sizes] for kernel in KERNELS}
    fine = {kernel: rates.same(kernel, 5, at(0.005)) for kernel in CLEAN}
    print("The same work on both sides: called a regression or an improvement, %\n")
    rows = [
        [kernel, *(f"{rate:.2f}" for rate in row), f"{fine[kernel]:.2f}" if kernel in fine else ""]
        for kernel, row in rates_by_size.items()
    ]
    print(table(["kernel", *(f"{replicas} replicas" for replicas in sizes), "5 at 0.5 %"], rows), end="\n\n")
    return [
        Claim("false changes on any kernel", max(map(max, rates_by_size.values())), 1.5, " %"),
        Claim("false changes of clean kernels, 5 replicas, threshold 0.5 %", max(fine.values()), 0.3, " %"),
    ]


def found_changes(rates: Rates) -> list[Claim]:
    """Compare more work on one side; the claims count misses, so that less is better."""
    cases = [("0.02", 3, 0.01, 10.0), ("0.02", 5, 0.01, 1.0), ("0.01", 5, 0.005, 15.0)]
    rows, claims = [], []
    for work, replicas, threshold, limit in cases:
        by_samples = {
            samples: [rates.more(kernel, work, replicas, at(threshold), samples) for kernel in MOVED]
            for samples in (10, 30, 100)
        }
        case = f"+{100 * float(work):g} % of work, {replicas} replicas, threshold {100 * threshold:g} %"
        rows += [
            [f"{case}: {kernel}", *(f"{row[place]:.1f}" for row in by_samples.values())]
            for place, kernel in enumerate(MOVED)
        ]
        fall = max(few - many for few, many in zip(by_samples[10], by_samples[100], strict=True))
        claims.append(Claim(f"missed of {case}", 100 - min(by_samples[100]), limit, " %"))
        claims.append(Claim(f"lost from 10 to 100 samples: {case}", fall, 3.0, " points"))
    print("More work: called a regression, %\n")
    print(table(["", "10 samples", "30", "100"], rows), end="\n\n")
    return claims


def wild(rates: Rates) -> list[Claim]:
    """Compare sides of the same work after one replica is made five times slower."""

    def disturbed_candidate(before: Side, after: Side) -> Verdict:
        return compare(before, [*after[:-1], 5 * after[-1]], threshold=0.005).verdict

    def disturbed_baseline(before: Side, after: Side) -> Verdict:
        return compare([*before[:-1], 5 * before[-1]], after, threshold=0.005).verdict

    fewer = replace(rates, draws=rates.draws // 10)
    worst = max(
        fewer.same(kernel, replicas, judge)
        for kernel in KERNELS
        for replicas in (1, 2, 3, 5, 10)
        for judge in (disturbed_candidate, disturbed_baseline)
    )
    return [Claim("changes called with one replica five times slower", worst, 0.0, " %")]


def in_looks(rates: Rates) -> list[Claim]:
    """Compare at each of several looks, and stop at the first conclusive verdict."""
    replicas: list[int] = []

    def stopped(before: Side, after: Side) -> Verdict:
        for seen in LOOKS:
            comparison: Comparison = compare(before[:seen], after[:seen], alpha=ALPHA / len(LOOKS))
            if comparison.verdict is not Verdict.INCONCLUSIVE:
                break
        replicas.append(seen)
        return comparison.verdict

    rows, false, missed = [], [], []
    for kernel in KERNELS:
        false.append(rates.same(kernel, LOOKS[-1], stopped))
        rows.append([f"{kernel}, the same work", f"{false[-1]:.2f}", f"{np.mean(replicas):.1f}"])
        replicas.clear()
    for kernel in MOVED:
        rate = rates.more(kernel, "0.02", LOOKS[-1], stopped)
        missed.append(100 - rate)
        rows.append([f"{kernel}, +2 % of work", f"{rate:.1f}", f"{np.mean(replicas):.1f}"])
        replicas.clear()
    print(f"Looks at {', '.join(map(str, LOOKS))} replicas a side, stopped at the first conclusive verdict\n")
    print(table(["", "called, %", "replicas a side"], rows), end="\n\n")
    return [
        Claim("false changes over all looks, on any kernel", max(false), 1.0, " %"),
        Claim("missed of +2 % of work over all looks", max(missed), 1.0, " %"),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
