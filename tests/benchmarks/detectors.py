"""What `judge.detect_changes` raises on simulated histories, and how soon, beside Apache Otava in the same process.

Flat series of three kinds (normal; two states mixed 70 to 30 and 5 % apart; normal with 1 % of nights 10 % slower),
series that step up by 1, 2 and 5 standard deviations on night 100, and nights of 1,000 flat and 10 shifted series at
once. All nights before night 20 are only learned from. What `detect_changes` says of each of many series is computed for all at
once (`detect_changes_in_each`, which the tests hold equal to it). Otava is asked every night with the nights up to then, as its
users run it; a change point that it has not shown before is an alert. It is slow, and gets a subset. Each figure is
printed as it is found, with the time it took. Needs no GPU.

    pip install apache-otava==0.8
    python tests/benchmarks/detectors.py [--series 5000] [--otava-series 40] [--repetitions 200] [--json detectors.json]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from workbench import Claim, finish, table

from perfsvc.judge import Alert, detect_changes, detect_changes_together
from perfsvc.judge.changes.detect import detect_changes_in_each

Floats = NDArray[np.float64]
Detector = Callable[[Floats], list[list[int]]]
"""Takes series, shape (series, nights); returns the nights on which each raised something."""

LEARNED = 20
NIGHTS = 200
STEP_NIGHT = 100
SHIFTED = 10
SLOW_SHARE = 0.3
SPIKES = 0.01
NEAR = 2
"""Change points of one change may lie so many nights apart from one night to the next."""
NOISE = 0.01
DELAYS = {1.0: 25, 2.0: 6, 5.0: 2}
"""The median delay that is allowed, in nights, by the height of a step in standard deviations."""
RATES = {"normal": 0.1, "two states": 0.1, "1 % spikes": 0.2}
"""The alerts that are allowed in 1,000 nights of flat series of each kind."""
ALONE = 50
"""How many series are watched one by one, to see what that costs."""
MANY = 10_000
"""How many series are watched at once, to see what that costs."""
FAMILY = 20
"""How many of them make a group."""


def main() -> int:
    """Simulates all, prints it and says what holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=5000, help="flat series of each kind")
    parser.add_argument("--otava-series", type=int, default=40, help="the same, for Otava")
    parser.add_argument("--repetitions", type=int, default=200, help="of the nights with 10 shifted series")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn")
    parser.add_argument("--json", type=Path, help="where to keep what was found")
    options = parser.parse_args()
    seconds = cost(np.random.default_rng(options.seed + 2))
    shown = {"perfsvc": seen("perfsvc", by_detector, options.series, np.random.default_rng(options.seed))}
    found = shifted(options.repetitions, np.random.default_rng(options.seed + 1))
    try:
        for name, chance in {"Otava": 1e-3, "Otava P=1e-5": 1e-5}.items():
            shown[name] = seen(name, by_otava(chance), options.otava_series, np.random.default_rng(options.seed))
    except ImportError as error:
        print(f"without Otava: {error}; pip install apache-otava==0.8", flush=True)
    print(table(["", *shown], rows_of(shown)))
    claims = claims_of(shown["perfsvc"], found, seconds)
    return finish(claims, options.json, shown={name: vars(one) for name, one in shown.items()}, shifted=vars(found))


def claims_of(ours: "Seen", found: "Shifted", seconds: "Cost") -> list[Claim]:
    """What is to hold."""
    return [
        *(Claim(f"alerts in 1,000 nights, {kind}", ours.rates[kind], limit) for kind, limit in RATES.items()),
        *(
            Claim(f"median delay of {height:g} standard deviations", ours.delays[height], limit, " nights")
            for height, limit in DELAYS.items()
        ),
        Claim("false among the discoveries of 1,000 flat and 10 shifted series", 100 * found.false_share, 5, " %"),
        Claim("shifted series not found by their second night", 100 * (1 - found.found), 10, " %"),
        Claim(f"detect_changes, a series and night of {NIGHTS}", 1e3 * seconds.alone_s, 1, " ms"),
        Claim(f"detect_changes_together, {MANY:,} series of {NIGHTS} nights", seconds.together_s, 10, " s"),
        Claim("the same with groups", seconds.grouped_s, 10, " s"),
    ]


class Progress:
    """Prints each figure as it is found, with the wall time since the one before."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def says(self, what: str) -> None:
        """Prints a line."""
        now = time.perf_counter()
        print(f"{time.strftime('%H:%M:%S')}  {what}  [{now - self._last:.0f} s]", flush=True)
        self._last = now


# --- detectors -------------------------------------------------------------------------------------------------------


def by_detector(many: Floats) -> list[list[int]]:
    """Each series by itself, though all at once."""
    return [[alert.raised for alert in alerts] for alerts in detect_changes_in_each(many)]


def by_otava(chance: float) -> Detector:
    """Otava at a significance; raises ``ImportError`` where it is not installed."""
    from otava.analysis import compute_change_points

    def nights(series: Floats) -> list[int]:
        raised, known = [], set[int]()
        for night in range(LEARNED, series.size):
            points, _ = compute_change_points(list(series[: night + 1]), max_pvalue=chance)
            places = {point.index for point in points}
            if any(all(abs(place - old) > NEAR for old in known) for place in places):
                raised.append(night)
            known |= places
        return raised

    return lambda many: [nights(series) for series in many]


# --- what they show --------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """Of one detector: alerts in 1,000 flat nights by kind, median delays in nights by height."""

    rates: dict[str, float]
    delays: dict[float, float]


def seen(name: str, detector: Detector, series: int, generator: np.random.Generator) -> Seen:
    """Asks a detector of flat series of each kind, and of a tenth as many (30 at least) with each step."""
    rates, delays, progress = {}, {}, Progress()
    for kind, make in FLAT.items():
        nights = detector(make(generator, series, NIGHTS))
        alerts = sum(map(len, nights))
        rates[kind] = 1000 * alerts / (series * (NIGHTS - LEARNED))
        progress.says(f"{name}: {rates[kind]:.3f} alerts in 1,000 nights, {kind} ({alerts} of {series} series)")
    for height in DELAYS:
        many = normal(generator, max(series // 10, 30), NIGHTS)
        many[:, STEP_NIGHT:] += height * NOISE
        after = [[night for night in nights if night >= STEP_NIGHT] for nights in detector(many)]
        delays[height] = statistics.median(nights[0] - STEP_NIGHT + 1 if nights else np.inf for nights in after)
        progress.says(f"{name}: {delays[height]:g} nights to a step of {height:g} sd (median of {len(many)} series)")
    return Seen(rates, delays)


def rows_of(shown: dict[str, Seen]) -> list[Sequence[str]]:
    """The table of what each detector showed."""
    rates = [
        [f"alerts in 1,000 nights, {kind}", *(f"{one.rates[kind]:.2f}" for one in shown.values())] for kind in RATES
    ]
    heights = [
        [f"nights to a step of {height:g} sd", *(f"{one.delays[height]:g}" for one in shown.values())]
        for height in DELAYS
    ]
    return [*rates, *heights]


@dataclass
class Shifted:
    """The mean share of false alerts, and the share of shifted series that were found by their second night."""

    false_share: float
    found: float


def shifted(repetitions: int, generator: np.random.Generator) -> Shifted:
    """1,000 flat and 10 shifted series over 102 nights, the last two shifted by 5 standard deviations.

    False is every alert of a flat series on any night, and every alert of a shifted one before its shift.
    """
    shares, found, progress = [], [], Progress()
    for repetition in range(1, repetitions + 1):
        many = normal(generator, 1000 + SHIFTED, STEP_NIGHT + 2)
        many[:SHIFTED, STEP_NIGHT:] += 5 * NOISE
        alerts = detect_changes_together(many)
        true = sum(any(alert.raised >= STEP_NIGHT for alert in one) for one in alerts[:SHIFTED])
        false = sum(not _is_true(row, alert) for row, one in enumerate(alerts) for alert in one)
        shares.append(false / max(true + false, 1))
        found.append(true / SHIFTED)
        if repetition in {10, repetitions // 2, repetitions}:
            progress.says(
                f"perfsvc: {statistics.fmean(shares):.2%} of discoveries false, {statistics.fmean(found):.1%} of"
                f" shifted series found by their second night ({repetition} repetitions)"
            )
    return Shifted(statistics.fmean(shares), statistics.fmean(found))


def _is_true(row: int, alert: Alert) -> bool:
    return row < SHIFTED and alert.raised >= STEP_NIGHT


@dataclass
class Cost:
    """What watching costs, in seconds of one processor core.

    Attributes:
        alone_s: of ``detect_changes`` for a series, over its nights: a whole history is watched, from its first night on.
        together_s: of ``detect_changes_together`` for many whole histories. That is what a service pays for one night: it keeps no
            state, and goes through all nights again.
        grouped_s: the same with the discoveries of each night found by groups.
    """

    alone_s: float
    together_s: float
    grouped_s: float


def cost(generator: np.random.Generator) -> Cost:
    """Times both, each once."""
    progress = Progress()
    alone = _seconds(lambda: [detect_changes(series) for series in normal(generator, ALONE, NIGHTS)]) / ALONE / NIGHTS
    progress.says(f"perfsvc: {1e3 * alone:.2f} ms a series and night ({ALONE} series one by one, {NIGHTS} nights)")
    many = normal(generator, MANY, NIGHTS)
    at_once = _seconds(lambda: detect_changes_together(many))
    progress.says(f"perfsvc: {at_once:.1f} s for {MANY:,} series at once, {NIGHTS} nights")
    grouped = _seconds(lambda: detect_changes_together(many, [row // FAMILY for row in range(MANY)]))
    progress.says(f"perfsvc: {grouped:.1f} s for the same in {MANY // FAMILY} groups")
    return Cost(alone, at_once, grouped)


def _seconds(work: Callable[[], object]) -> float:
    """Of this process on its processor, so that others on the machine do not count."""
    started = time.process_time()
    work()
    return time.process_time() - started


# --- series ----------------------------------------------------------------------------------------------------------


def normal(generator: np.random.Generator, series: int, nights: int) -> Floats:
    """Flat series with normal noise."""
    return 1 + NOISE * generator.standard_normal((series, nights))


def two_states(generator: np.random.Generator, series: int, nights: int, *, noise: float = NOISE / 2) -> Floats:
    """Flat series of two states: 70 of 100 nights are fast, the others 5 % slower."""
    slow = generator.random((series, nights)) < SLOW_SHARE
    return 1 + 0.05 * slow + noise * generator.standard_normal((series, nights))


def spiked(generator: np.random.Generator, series: int, nights: int) -> Floats:
    """Flat series of which one night in a hundred is 10 % slower."""
    return normal(generator, series, nights) * np.where(generator.random((series, nights)) < SPIKES, 1.1, 1.0)


FLAT = {"normal": normal, "two states": two_states, "1 % spikes": spiked}

if __name__ == "__main__":
    sys.exit(main())
