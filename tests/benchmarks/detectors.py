"""How often and how soon `judge.detect_changes` raises alerts on simulated histories, compared with Apache Otava.

Flat series of three kinds (normal; two states mixed 70 to 30 and 5 % apart; normal with 1 % of nights 10 % slower),
series that step up by 1, 2 and 5 standard deviations on night 100, steps of 5 standard deviations up and down in
noise of six shapes, and nights of 1,000 flat and 10 shifted series at once. The first 20 nights do not count. Many
series are computed at once (`detect_changes_in_each`, which the tests hold equal to `detect_changes`). Otava runs in
the same process, every night on the nights up to then, as its users run it; a new change point is an alert. It is
slow, and gets a subset. Each figure is printed at once, with the time it took. Needs no GPU.

    pip install apache-otava==0.8
    python tests/benchmarks/detectors.py [--series 5000] [--otava-series 40] [--repetitions 200] [--json detectors.json]
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from workbench import Claim, finish, parsed, table

from perfsvc.judge import Alert, detect_changes, detect_changes_together
from perfsvc.judge.changes.detect import detect_changes_in_each

Floats = NDArray[np.float64]
Detector = Callable[[Floats], list[list[int]]]
"""Takes series, shape (series, nights); returns the nights on which each raised an alert."""

LEARNED = 20
NIGHTS = 200
STEP_NIGHT = 100
SHIFTED = 10
SLOW_SHARE = 0.3
SPIKES = 0.01
NEAR_STEP = 30
"""How many nights after a step are simulated for the shapes of noise."""
NEAR = 2
"""The change point of one change may move by so many nights from one night to the next."""
NOISE = 0.01
DELAYS = {1.0: 25, 2.0: 6, 5.0: 2}
"""The largest median delay in nights, by the height of a step in standard deviations."""
RATES = {"normal": 0.1, "two states": 0.1, "1 % spikes": 0.2}
"""The most alerts in 1,000 nights of flat series of each kind."""
UNCLAIMED = frozenset({"exponential, slower"})
"""Two runs in a row beyond 5 standard deviations are too frequent in this noise to raise an alert."""
ALONE = 50
"""How many series are timed one by one."""
MANY = 10_000
"""How many series are timed at once."""
FAMILY = 20
"""How many of them form a group."""


def main() -> int:
    """Simulate all histories, print the figures and check the claims."""
    options = parsed(
        __doc__,
        ("--series", 5000, "flat series of each kind"),
        ("--otava-series", 40, "the same, for Otava"),
        ("--repetitions", 200, "of the nights with 10 shifted series"),
        ("--seed", 1, "of all that is drawn"),
    )
    seconds = cost(np.random.default_rng(options.seed + 2))
    shown = {"perfsvc": figures_of("perfsvc", by_detector, options.series, np.random.default_rng(options.seed))}
    tails = tails_of(max(options.series // 5, 60), np.random.default_rng(options.seed + 3))
    found = shifted(options.repetitions, np.random.default_rng(options.seed + 1))
    try:
        for name, chance in {"Otava": 1e-3, "Otava P=1e-5": 1e-5}.items():
            shown[name] = figures_of(name, by_otava(chance), options.otava_series, np.random.default_rng(options.seed))
    except ImportError as error:
        print(f"without Otava: {error}; pip install apache-otava==0.8", flush=True)
    print(table(["", *shown], rows_of(shown)))
    claims = claims_of(shown["perfsvc"], tails, found, seconds)
    figures = {name: vars(figures) for name, figures in shown.items()}
    return finish(claims, options.json, shown=figures, tails=tails, shifted=vars(found))


def claims_of(ours: "Figures", tails: Mapping[str, float], found: "Shifted", seconds: "Cost") -> list[Claim]:
    """Return the claims."""
    return [
        *(Claim(f"alerts in 1,000 nights, {kind}", ours.rates[kind], limit) for kind, limit in RATES.items()),
        *(
            Claim(f"median delay of {height:g} standard deviations", ours.delays[height], limit, " nights")
            for height, limit in DELAYS.items()
        ),
        *(
            Claim(f"median delay of 5 standard deviations, {name}", nights, DELAYS[5.0], " nights")
            for name, nights in tails.items()
            if name not in UNCLAIMED
        ),
        Claim("false among the discoveries of 1,000 flat and 10 shifted series", 100 * found.false_share, 5, " %"),
        Claim("shifted series not found by their second night", 100 * (1 - found.found), 10, " %"),
        Claim(f"detect_changes, a series and night of {NIGHTS}", 1e3 * seconds.alone_s, 1, " ms"),
        Claim(f"detect_changes_together, {MANY:,} series of {NIGHTS} nights", seconds.together_s, 10, " s"),
        Claim("the same with groups", seconds.grouped_s, 10, " s"),
    ]


class Progress:
    """Prints each figure with the wall time since the previous one."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def report(self, figure: str) -> None:
        """Print a line."""
        now = time.perf_counter()
        print(f"{time.strftime('%H:%M:%S')}  {figure}  [{now - self._last:.0f} s]", flush=True)
        self._last = now


# --- detectors -------------------------------------------------------------------------------------------------------


def by_detector(many: Floats) -> list[list[int]]:
    """Return the nights of alerts of each series by itself, computed at once."""
    return [[alert.raised for alert in alerts] for alerts in detect_changes_in_each(many)]


def by_otava(chance: float) -> Detector:
    """Return Otava at a significance; raises ``ImportError`` if it is not installed."""
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


# --- figures ---------------------------------------------------------------------------------------------------------


@dataclass
class Figures:
    """The figures of a detector: alerts in 1,000 flat nights by kind, median delays in nights by height."""

    rates: dict[str, float]
    delays: dict[float, float]


def figures_of(name: str, detector: Detector, series: int, generator: np.random.Generator) -> Figures:
    """Run a detector on flat series of each kind, and on a tenth as many (at least 30) with each step."""
    rates, delays, progress = {}, {}, Progress()
    for kind, make in FLAT.items():
        nights = detector(make(generator, series, NIGHTS))
        alerts = sum(map(len, nights))
        rates[kind] = 1000 * alerts / (series * (NIGHTS - LEARNED))
        progress.report(f"{name}: {rates[kind]:.3f} alerts in 1,000 nights, {kind} ({alerts} of {series} series)")
    for height in DELAYS:
        many = normal(generator, max(series // 10, 30), NIGHTS)
        many[:, STEP_NIGHT:] += height * NOISE
        after = [[night for night in nights if night >= STEP_NIGHT] for nights in detector(many)]
        delays[height] = statistics.median(nights[0] - STEP_NIGHT + 1 if nights else np.inf for nights in after)
        progress.report(f"{name}: {delays[height]:g} nights to a step of {height:g} sd (median of {len(many)} series)")
    return Figures(rates, delays)


def tails_of(series: int, generator: np.random.Generator) -> dict[str, float]:
    """Return the median delay of a step of 5 standard deviations, by the shape of the noise and the direction."""
    delays, progress = {}, Progress()
    for shape, make in SHAPES.items():
        for direction, sign in {"slower": 1, "faster": -1}.items():
            many = make(generator, series, STEP_NIGHT + NEAR_STEP)
            many[:, STEP_NIGHT:] += sign * 5 * NOISE
            after = [[night for night in nights if night >= STEP_NIGHT] for nights in by_detector(many)]
            nights = [raised[0] - STEP_NIGHT + 1 if raised else np.inf for raised in after]
            name = f"{shape}, {direction}"
            delays[name] = statistics.median(nights)
            on_second = statistics.fmean(night <= DELAYS[5.0] for night in nights)
            progress.report(
                f"perfsvc: {delays[name]:g} nights to a step of 5 sd, {name} ({on_second:.0%} on the second)"
            )
    return delays


def rows_of(shown: dict[str, Figures]) -> list[Sequence[str]]:
    """Return the rows of the table of figures."""
    rates = [
        [f"alerts in 1,000 nights, {kind}", *(f"{figures.rates[kind]:.2f}" for figures in shown.values())]
        for kind in RATES
    ]
    heights = [
        [f"nights to a step of {height:g} sd", *(f"{figures.delays[height]:g}" for figures in shown.values())]
        for height in DELAYS
    ]
    return [*rates, *heights]


@dataclass
class Shifted:
    """The mean share of false alerts, and the share of shifted series that were found by their second night."""

    false_share: float
    found: float


def shifted(repetitions: int, generator: np.random.Generator) -> Shifted:
    """Run 1,000 flat and 10 shifted series over 102 nights, the last two shifted by 5 standard deviations.

    Every alert of a flat series is false, and so is every alert of a shifted series before its shift.
    """
    shares, found, progress = [], [], Progress()
    for repetition in range(1, repetitions + 1):
        many = normal(generator, 1000 + SHIFTED, STEP_NIGHT + 2)
        many[:SHIFTED, STEP_NIGHT:] += 5 * NOISE
        raised = detect_changes_together(many)
        true = sum(any(alert.raised >= STEP_NIGHT for alert in alerts) for alerts in raised[:SHIFTED])
        false = sum(not _is_true(row, alert) for row, alerts in enumerate(raised) for alert in alerts)
        shares.append(false / max(true + false, 1))
        found.append(true / SHIFTED)
        if repetition in {10, repetitions // 2, repetitions}:
            progress.report(
                f"perfsvc: {statistics.fmean(shares):.2%} of discoveries false, {statistics.fmean(found):.1%} of"
                f" shifted series found by their second night ({repetition} repetitions)"
            )
    return Shifted(statistics.fmean(shares), statistics.fmean(found))


def _is_true(row: int, alert: Alert) -> bool:
    return row < SHIFTED and alert.raised >= STEP_NIGHT


@dataclass
class Cost:
    """What the detection costs, in seconds of one processor core.

    Attributes:
        alone_s: of ``detect_changes`` for a series and night of a whole history.
        together_s: of ``detect_changes_together`` for many whole histories. This is the cost of one night of the
            service, which keeps no state and goes through all nights again.
        grouped_s: the same with groups.
    """

    alone_s: float
    together_s: float
    grouped_s: float


def cost(generator: np.random.Generator) -> Cost:
    """Time each once."""
    progress = Progress()
    alone = _seconds(lambda: [detect_changes(series) for series in normal(generator, ALONE, NIGHTS)]) / ALONE / NIGHTS
    progress.report(f"perfsvc: {1e3 * alone:.2f} ms a series and night ({ALONE} series one by one, {NIGHTS} nights)")
    many = normal(generator, MANY, NIGHTS)
    at_once = _seconds(lambda: detect_changes_together(many))
    progress.report(f"perfsvc: {at_once:.1f} s for {MANY:,} series at once, {NIGHTS} nights")
    grouped = _seconds(lambda: detect_changes_together(many, [row // FAMILY for row in range(MANY)]))
    progress.report(f"perfsvc: {grouped:.1f} s for the same in {MANY // FAMILY} groups")
    return Cost(alone, at_once, grouped)


def _seconds(work: Callable[[], object]) -> float:
    """Return the processor time of this process, so that other load does not count."""
    started = time.process_time()
    work()
    return time.process_time() - started


# --- series ----------------------------------------------------------------------------------------------------------


def normal(generator: np.random.Generator, series: int, nights: int) -> Floats:
    """Return flat series with normal noise."""
    return 1 + NOISE * generator.standard_normal((series, nights))


def two_states(generator: np.random.Generator, series: int, nights: int, *, noise: float = NOISE / 2) -> Floats:
    """Return flat series of two states: 70 of 100 nights are fast, the others 5 % slower."""
    slow = generator.random((series, nights)) < SLOW_SHARE
    return 1 + 0.05 * slow + noise * generator.standard_normal((series, nights))


def spiked(generator: np.random.Generator, series: int, nights: int) -> Floats:
    """Return flat series in which every hundredth night on average is 10 % slower."""
    return normal(generator, series, nights) * np.where(generator.random((series, nights)) < SPIKES, 1.1, 1.0)


def student(freedom: int) -> Callable[[np.random.Generator, int, int], Floats]:
    """Return a function that makes flat series with Student's noise."""

    def make(generator: np.random.Generator, series: int, nights: int) -> Floats:
        return 1 + NOISE * generator.standard_t(freedom, (series, nights)) / np.sqrt(freedom / (freedom - 2))

    return make


def lognormal(generator: np.random.Generator, series: int, nights: int) -> Floats:
    """Return flat series with the noise of the exponential of a normal number of standard deviation 0.3."""
    noise = np.exp(0.3 * generator.standard_normal((series, nights)))
    return 1 + NOISE * (noise - noise.mean()) / noise.std()


def exponential(generator: np.random.Generator, series: int, nights: int) -> Floats:
    """Return flat series with exponential noise."""
    return 1 + NOISE * (generator.exponential(size=(series, nights)) - 1)


FLAT = {"normal": normal, "two states": two_states, "1 % spikes": spiked}
SHAPES = {
    "normal": normal,
    "1 % spikes": spiked,
    "Student 5": student(5),
    "Student 3": student(3),
    "lognormal": lognormal,
    "exponential": exponential,
}
"""The shapes of noise in which a step of 5 standard deviations is sought, each with this standard deviation: ``NOISE``,
for the spiked series without the spikes."""

if __name__ == "__main__":
    sys.exit(main())
