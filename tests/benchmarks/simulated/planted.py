"""The changes that are planted in simulated nights, and the findings that are expected."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from perfsvc.model import Cause, Direction, FindingState

FIRST_DRIVER = "580.65"
"""The driver until another one is planted."""


@dataclass(frozen=True)
class Commit:
    """A change of code: a file of a benchmark, and how much longer some of its variants take from then on.

    Attributes:
        path: of the file, below the suite: ``b1/first.cu`` has the first half of the variants of b1, and
            ``b1/second.cu`` the others. All of its variants get new binaries.
        cases: a glob of the cases whose time changes; empty if none does.
    """

    night: int
    path: str
    cases: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Weather:
    """Nights on which the same code takes longer; without a last night they never end."""

    first: int
    last: int | None
    cases: str
    factor: float

    def blows(self, night: int) -> bool:
        """Return whether it applies to a night."""
        return self.first <= night and (self.last is None or night <= self.last)


@dataclass(frozen=True)
class Expected:
    """The expected finding of a planted thing.

    Attributes:
        delay: within how many nights it must be raised; 1 means the first.
        back: the night on which its cases are back, if they come back.
        accepted: the night before which it is accepted, if it is.
    """

    cause: Cause
    direction: Direction = Direction.SLOWER
    delay: int = 1
    back: int | None = None
    accepted: int | None = None

    @property
    def state(self) -> FindingState:
        """Its last state."""
        if self.back is not None:
            return FindingState.RESOLVED
        return FindingState.OPEN if self.accepted is None else FindingState.ACCEPTED


@dataclass(frozen=True)
class Planted:
    """A planted thing, and its expected finding.

    Attributes:
        night: on which it happens or begins.
        cases: globs of the affected cases, with blanks between them.
        driver: the driver that is installed then; empty if it stays the same.
        expected: its finding; None if it must not have one.
        improves: whether the night's verdicts call its cases improved.
    """

    name: str
    night: int
    cases: str
    commits: tuple[Commit, ...] = ()
    weather: tuple[Weather, ...] = ()
    driver: str = ""
    expected: Expected | None = None
    improves: bool = False

    def touches(self, case: str) -> bool:
        """Return whether it affects a case, given by benchmark and variant."""
        return any(fnmatch(case, glob) for glob in self.cases.split())


@dataclass(frozen=True)
class Plan:
    """The nights of a suite, and all that is planted in them."""

    nights: int
    benchmarks: int
    variants: int
    planted: tuple[Planted, ...]
    replicas: int = 3

    @property
    def cases(self) -> frozenset[str]:
        """All cases of the suite, by benchmark and variant: ``b3/v1``."""
        return frozenset(
            f"b{benchmark}/v{variant}" for benchmark in range(self.benchmarks) for variant in range(self.variants)
        )

    @property
    def measurements(self) -> int:
        """How many measurements a night takes, without those of confirmations."""
        return self.replicas * self.benchmarks * self.variants

    def commits(self, night: int) -> list[Commit]:
        """Return the commits before a night."""
        return [commit for planted in self.planted for commit in planted.commits if commit.night == night]

    def weather(self, night: int) -> list[Weather]:
        """Return the weather of a night."""
        return [weather for planted in self.planted for weather in planted.weather if weather.blows(night)]

    def driver(self, night: int) -> str:
        """Return the driver that is installed on a night."""
        drivers = [planted.driver for planted in self.planted if planted.driver and planted.night <= night]
        return drivers[-1] if drivers else FIRST_DRIVER

    def accepted(self, night: int) -> list[Planted]:
        """Return the planted things that are accepted before a night."""
        return [planted for planted in self.planted if planted.expected and planted.expected.accepted == night]

    def moved(self, planted: Planted) -> set[str]:
        """Return the cases of a planted thing."""
        return {case for case in self.cases if planted.touches(case)}


# --- kinds of planted things -----------------------------------------------------------------------------------------


def step(
    name: str, commits: Sequence[Commit], *, delay: int = 1, back: int | None = None, accepted: int | None = None
) -> Planted:
    """Plant commits that make code slower, until they are taken ``back``."""
    undone = [] if back is None else [Commit(back, commit.path, commit.cases, 1 / commit.factor) for commit in commits]
    expected = Expected(Cause.KERNEL, delay=delay, back=back, accepted=accepted)
    return Planted(name, commits[0].night, _cases_of(commits), (*commits, *undone), expected=expected)


def drift(name: str, nights: Sequence[int], change: Commit, *, latest: int, accepted: int) -> Planted:
    """Plant the same small change again and again; it must be found before the night ``latest``."""
    commits = tuple(Commit(night, change.path, change.cases, change.factor) for night in nights)
    expected = Expected(Cause.KERNEL, delay=latest - nights[0], accepted=accepted)
    return Planted(name, nights[0], change.cases, commits, expected=expected)


def improvement(name: str, commit: Commit) -> Planted:
    """Plant faster code: its verdict accepts the new level by itself, without a finding."""
    return Planted(name, commit.night, commit.cases, (commit,), improves=True)


def rebuilt(name: str, night: int, path: str, cases: str) -> Planted:
    """Plant a commit that makes new binaries of some cases, and none slower."""
    return Planted(name, night, cases, (Commit(night, path),))


def spike(name: str, night: int, cases: str, factor: float) -> Planted:
    """Plant one night on which some cases take longer."""
    return Planted(name, night, cases, weather=(Weather(night, night, cases, factor),))


def driver(name: str, night: int, version: str, factor: float, *, accepted: int | None = None) -> Planted:
    """Plant another driver, with which everything takes longer from then on."""
    expected = Expected(Cause.ENVIRONMENT, accepted=accepted)
    return Planted(name, night, "*", weather=(Weather(night, None, "*", factor),), driver=version, expected=expected)


def slow_gpu(name: str, night: int, nights: int, factor: float) -> Planted:
    """Plant a GPU on which everything takes longer for some nights."""
    expected = Expected(Cause.ENVIRONMENT, back=night + nights)
    return Planted(name, night, "*", weather=(Weather(night, night + nights - 1, "*", factor),), expected=expected)


def _cases_of(commits: Iterable[Commit]) -> str:
    return " ".join(commit.cases for commit in commits)
