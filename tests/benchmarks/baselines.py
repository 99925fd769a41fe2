"""How often baselines of several nights give wrong verdicts, and how soon they find a change.

The processes are those of tests/data/noise: kernels on an H200, 30 processes each. A night is a random sample of three
of them. The candidate's three processes are drawn first, the baseline's from the other 27: without replacement up to
nine nights, else with replacement. Differences between nights are simulated: each night's times are multiplied by a
random factor, because all processes of the data come from one night. The simulation of six nights draws all times at
random. Needs no GPU.

    python tests/benchmarks/baselines.py [--draws 1000] [--seed 1] [--json FILE]
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from judge_pairs import CALLED, CLEAN, KERNELS, Rates
from numpy.typing import NDArray
from workbench import Claim, judge_processes, table

from perfsvc.judge import SameOnBothSides, compare, level_of_samples, settled, verdicts, with_causes
from perfsvc.model import Case, Series, Verdict

Times = NDArray[np.float64]

NIGHTS = (1, 2, 3, 5, 10, 30)
BETWEEN = (0.0, 0.001, 0.0025)
"""The simulated deviations between nights. The clean kernels' processes differ by 0.15 to 0.27 %."""
REPLICAS = 3
SIXTH = 5
"""The nights of the baseline on the sixth night."""
NEW = SameOnBothSides(code=False, source=False, toolkit=True, device=True)
SAME = SameOnBothSides(code=True, source=True, toolkit=True, device=True)
SERIES = Series(Case("simulated", "case", ()), "GPU-1", "simulated")


@dataclass(frozen=True)
class Drawn:
    """A baseline and a candidate: samples of the first night and of the candidate, medians of the further nights."""

    first: list[Times]
    further: list[Times]
    candidate: list[Times]

    def verdict(self, threshold: float) -> Verdict:
        """Return the verdict on the candidate."""
        return compare(self.first, self.candidate, further=self.further, threshold=threshold).verdict


def draw(
    generator: np.random.Generator, before: Times, after: Times, nights: int, between: float, *, factor: float = 1.0
) -> Drawn:
    """Draw nights from the processes of two kinds of work, each of shape (processes, samples).

    Args:
        generator: makes the random choices.
        before: the processes of the baseline's work.
        after: the processes of the candidate's work; processes of the same work are not used on both sides.
        nights: how many nights the baseline has.
        between: the deviation between nights.
        factor: what the candidate's times are multiplied by.
    """
    order = generator.permutation(len(before))
    chosen, others = order[:REPLICAS], order[REPLICAS:]
    wanted = nights * REPLICAS
    of_nights = others[:wanted] if wanted <= len(others) else generator.choice(others, wanted)
    shifts = np.exp(between * generator.standard_normal(nights + 1))
    baseline = [
        before[processes] * shift
        for processes, shift in zip(of_nights.reshape(nights, REPLICAS), shifts[1:], strict=True)
    ]
    medians = [np.median(night, axis=1) for night in baseline[1:]]
    return Drawn(list(baseline[0]), medians, list(after[chosen] * shifts[0] * factor))


def main() -> int:
    """Draw nights, judge them, and print the rates."""

    def claims(data: dict[str, Times], draws: int, seed: int) -> list[Claim]:
        rates = Nights(data, draws, seed)
        return [*false_changes(rates), *found_changes(rates), *six_nights(rates)]

    return judge_processes(__doc__, claims)


class Nights(Rates):
    """How often a verdict is given, in per cent."""

    def called(self, kernel: str, nights: int, between: float, threshold: float) -> float:
        """Return how often the same work is called a regression or an improvement."""
        times = self.data[f"{kernel} 0"]
        return self.share(lambda generator: draw(generator, times, times, nights, between).verdict(threshold), CALLED)

    def found(self, kernel: str, work: str, factor: float, nights: int, between: float) -> float:
        """Return how often a slower candidate is called a regression at a threshold of 0.5 %."""
        before, after = self.data[f"{kernel} 0"], self.data[f"{kernel} {work}"]
        return self.share(
            lambda generator: draw(generator, before, after, nights, between, factor=factor).verdict(0.005), CALLED[:1]
        )


def heading() -> list[str]:
    return [f"{nights} night{'s' if nights > 1 else ''}" for nights in NIGHTS]


def false_changes(rates: Nights) -> list[Claim]:
    """Compare the same work; count the changes."""
    claims = []
    for threshold, kernels in ((0.005, CLEAN), (0.01, KERNELS)):
        rows = []
        worst: dict[float, float] = {}
        for between in BETWEEN:
            by_kernel = [[rates.called(kernel, nights, between, threshold) for nights in NIGHTS] for kernel in kernels]
            label = f"nights differ by {100 * between:g} %"
            rows += [
                [f"{kernel}, {label}", *(f"{rate:.2f}" for rate in of_kernel)]
                for kernel, of_kernel in zip(kernels, by_kernel, strict=True)
            ]
            worst[between] = float(
                np.mean([rate for of_kernel in by_kernel for rate in of_kernel[NIGHTS.index(SIXTH) :]])
            )
        print(f"The same work, threshold {100 * threshold:g} %: called a change, %\n")
        print(table(["kernel", *heading()], rows), end="\n\n", flush=True)
        claims += [
            Claim(
                f"false changes from the sixth night on, mean of the kernels, nights differ by {100 * between:g} %, "
                f"threshold {100 * threshold:g} %",
                rate,
                0.5,
                " %",
            )
            for between, rate in worst.items()
            if between < BETWEEN[-1]
        ]
    return claims


def found_changes(rates: Nights) -> list[Claim]:
    """Compare slower candidates at a threshold of 0.5 %; the claims count misses, so that less is better."""
    rows, claims = [], []
    for between in BETWEEN:
        label = f"nights differ by {100 * between:g} %"
        exact = {kernel: [rates.found(kernel, "0", 1.01, nights, between) for nights in NIGHTS] for kernel in CLEAN}
        rows += [
            [f"{kernel}, 1 % more time, {label}", *(f"{rate:.1f}" for rate in row)] for kernel, row in exact.items()
        ]
        if between < BETWEEN[-1]:
            missed = 100 - min(rate for row in exact.values() for rate in row[NIGHTS.index(SIXTH) :])
            claims.append(Claim(f"missed of 1 % more time from the sixth night on, {label}", missed, 5.0, " %"))
    for kernel in CLEAN[:2]:
        row = [rates.found(kernel, "0.01", 1.0, nights, 0.0) for nights in NIGHTS]
        more = np.median(rates.data[f"{kernel} 0.01"]) / np.median(rates.data[f"{kernel} 0"]) - 1
        rows.append([f"{kernel}, 1 % more work ({100 * more:.1f} % more time)", *(f"{rate:.1f}" for rate in row)])
    print("Slower candidates, threshold 0.5 %: called a regression, %\n")
    print(table(["", *heading()], rows), end="\n\n", flush=True)
    return claims


# --- six nights of the same code -------------------------------------------------------------------------------------

PROCESSES, BETWEEN_NIGHTS = 0.0025, 0.001
FIRST = {
    "as the others": np.ones(REPLICAS),
    "noisy: one replica 30 % slower": np.array([1.0, 1.0, 1.3]),
    "lucky: 3 % faster": np.full(REPLICAS, 0.97),
}


def six_nights(rates: Nights) -> list[Claim]:
    """Simulate six nights of the same code at a threshold of 1 %, and a seventh night with new code.

    The new code is 2 % slower or as fast. It is compared with all six nights, and with the first night alone.
    """
    claims, rows = [], []
    for name, first in FIRST.items():
        generator = np.random.default_rng(rates.seed)
        unchanged = np.zeros((rates.draws, 6), bool)
        alarms = 0
        of_new_code = np.zeros((rates.draws, 4), bool)
        for number in range(rates.draws):
            shifts = np.exp(BETWEEN_NIGHTS * generator.standard_normal(7))
            nights = np.exp(PROCESSES * generator.standard_normal((7, REPLICAS))) * shifts[:, None]
            nights[0] *= first
            for night in range(1, 6):
                judged = _judged(nights[:night], nights[night], SAME)
                unchanged[number, night] = judged.verdict is Verdict.UNCHANGED
                alarms += judged.verdict is Verdict.REGRESSION and not (judged.cause and judged.cause.blameless)
                alarms += judged.verdict is Verdict.INCONCLUSIVE
            for place, (factor, baseline) in enumerate(product((1.02, 1.0), (nights[:6], nights[:1]))):
                judged = _judged(baseline, factor * nights[6], NEW)
                of_new_code[number, place] = judged.verdict is Verdict.REGRESSION
        shares, new = 100 * unchanged.mean(axis=0), 100 * of_new_code.mean(axis=0)
        rows.append([name, *(f"{share:.1f}" for share in (*shares[1:], *new))])
        third = float(np.mean(shares[2:]))
        claims += [
            Claim(f"not unchanged from the third night on, first night {name}", 100 - third, 3.0, " %"),
            Claim(f"regressions and inconclusive verdicts of the same code, first night {name}", alarms, 0),
            Claim(f"missed of +2 % on the seventh night, first night {name}", 100 - float(new[0]), 5.0, " %"),
            Claim(f"called on the seventh night, equal new code, first night {name}", float(new[2]), 0.5, " %"),
        ]
    print("Six nights of the same code: unchanged, %. Then new code: called a regression, %. Threshold 1 %\n")
    headings = [f"night {night}" for night in range(2, 7)]
    new_code = ["+2 %", "+2 %, night 1 alone", "+0 %", "+0 %, night 1 alone"]
    print(table(["first night", *headings, *new_code], rows), end="\n\n")
    return claims


def _judged(nights: Times, candidate: Times, sides: SameOnBothSides):
    """Return the judgement of a night against earlier nights; each replica has one sample."""
    before, after = _replicas(nights[0]), _replicas(candidate)
    baseline = level_of_samples(before, 1, [tuple(1e-4 * night) for night in nights[1:]])
    judged = verdicts({SERIES: baseline}, {SERIES: level_of_samples(after, 2)}, threshold=0.01)
    (judgement,) = with_causes(settled(judged, {SERIES: sides}, lambda _: 0.01), {SERIES: sides})
    return judgement


def _replicas(night: Times) -> tuple[tuple[float, ...], ...]:
    return tuple((float(value) * 1e-4,) for value in night)


if __name__ == "__main__":
    raise SystemExit(main())
