"""What `judge.watch` raises on simulated histories, and how soon, beside Apache Otava in the same process.

Flat series of three kinds (normal; two states mixed 70 to 30 and 5 % apart; normal with 1 % of nights 10 % slower),
series that step up by 1, 2 and 5 standard deviations on night 100, and nights of 1,000 flat and 10 shifted series at
once. All nights before night 20 are only learned from. Otava is asked every night with the nights up to then, as its
users run it; a change point that it has not shown before is an alert. It is slow, and gets a subset. Needs no GPU.

    pip install apache-otava==0.8
    python benchmarks/detectors.py [--series 5000] [--otava-series 40] [--repetitions 200] [--json detectors.json]
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

from perfsvc.judge import Alert, watch, watch_many

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


def main() -> int:
    """Simulates all, prints it and says what holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=5000, help="flat series of each kind")
    parser.add_argument("--otava-series", type=int, default=40, help="the same, for Otava")
    parser.add_argument("--repetitions", type=int, default=200, help="of the nights with 10 shifted series")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn")
    parser.add_argument("--json", type=Path, help="where to keep what was found")
    options = parser.parse_args()
    detectors = {"perfsvc": (by_watch, options.series)}
    try:
        for name, chance in {"Otava": 1e-3, "Otava P=1e-5": 1e-5}.items():
            detectors[name] = (by_otava(chance), options.otava_series)
    except ImportError as error:
        print(f"without Otava: {error}; pip install apache-otava==0.8", flush=True)
    shown = {}
    for name, (detector, series) in detectors.items():
        shown[name] = seen(detector, series, np.random.default_rng(options.seed))
        print(f"{name}: {series} series of each kind", flush=True)
    print(table(["", *shown], rows_of(shown)))
    found = shifted(options.repetitions, np.random.default_rng(options.seed + 1))
    seconds = cost(np.random.default_rng(options.seed + 2))
    ours = shown["perfsvc"]
    claims = [
        *(Claim(f"alerts in 1,000 nights, {kind}", ours.rates[kind], limit) for kind, limit in RATES.items()),
        *(
            Claim(f"median delay of {height:g} standard deviations", ours.delays[height], limit, " nights")
            for height, limit in DELAYS.items()
        ),
        Claim("false among the discoveries of 1,000 flat and 10 shifted series", 100 * found.false_share, 5, " %"),
        Claim("shifted series not found by their second night", 100 * (1 - found.found), 10, " %"),
        Claim("watch, a series and night with 200 nights of history", 1e3 * seconds.watch_s, 1, " ms"),
        Claim("watch_many, 10,000 series of 200 nights", seconds.watch_many_s, 10, " s"),
    ]
    return finish(claims, options.json, shown={name: vars(one) for name, one in shown.items()}, shifted=vars(found))


# --- detectors -------------------------------------------------------------------------------------------------------


def by_watch(many: Floats) -> list[list[int]]:
    """Each series by itself."""
    return [[alert.night for alert in watch(series)] for series in many]


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


def seen(detector: Detector, series: int, generator: np.random.Generator) -> Seen:
    """Asks a detector of flat series of each kind, and of a tenth as many (30 at least) with each step."""
    rates, delays = {}, {}
    for kind, make in FLAT.items():
        nights = detector(make(generator, series, NIGHTS))
        rates[kind] = 1000 * sum(map(len, nights)) / (series * (NIGHTS - LEARNED))
    for height in DELAYS:
        many = normal(generator, max(series // 10, 30), NIGHTS)
        many[:, STEP_NIGHT:] += height * NOISE
        after = [[night for night in nights if night >= STEP_NIGHT] for nights in detector(many)]
        delays[height] = statistics.median(nights[0] - STEP_NIGHT + 1 if nights else np.inf for nights in after)
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
    shares, found = [], []
    for _ in range(repetitions):
        many = normal(generator, 1000 + SHIFTED, STEP_NIGHT + 2)
        many[:SHIFTED, STEP_NIGHT:] += 5 * NOISE
        alerts = watch_many(many)
        true = sum(any(alert.night >= STEP_NIGHT for alert in one) for one in alerts[:SHIFTED])
        false = sum(not _is_true(row, alert) for row, one in enumerate(alerts) for alert in one)
        shares.append(false / max(true + false, 1))
        found.append(true / SHIFTED)
    return Shifted(statistics.fmean(shares), statistics.fmean(found))


def _is_true(row: int, alert: Alert) -> bool:
    return row < SHIFTED and alert.night >= STEP_NIGHT


@dataclass
class Cost:
    """Seconds of ``watch`` for one series and night, and of ``watch_many`` for 10,000 series of 200 nights."""

    watch_s: float
    watch_many_s: float


def cost(generator: np.random.Generator) -> Cost:
    """Times both."""
    started = time.perf_counter()
    by_watch(normal(generator, 50, NIGHTS))
    alone = time.perf_counter()
    watch_many(normal(generator, 10_000, NIGHTS))
    return Cost((alone - started) / 50 / NIGHTS, time.perf_counter() - alone)


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
