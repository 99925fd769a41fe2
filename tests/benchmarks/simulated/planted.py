"""What is planted in simulated nights, and what is to be found of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from perfsvc.model import Cause, Direction, FindingState

FIRST_DRIVER = "580.65"
"""The driver until another one is planted."""


@dataclass(frozen=True)
class Commit:
    """Code that changes: a file of a benchmark, and how much longer some of its variants take from then on.

    Attributes:
        path: of the file, below the suite: ``b1/first.cu`` is of the first half of the variants of b1, and
            ``b1/second.cu`` of the others. All of its variants are other binaries afterwards.
        cases: a glob of those whose time changes; empty where none does.
    """

    night: int
    path: str
    cases: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Weather:
    """Nights on which the same code takes longer, for no fault of its own; without a last one they never end."""

    first: int
    last: int | None
    cases: str
    factor: float

    def blows(self, night: int) -> bool:
        """Whether it does on a night."""
        return self.first <= night and (self.last is None or night <= self.last)


@dataclass(frozen=True)
class Expected:
    """The finding that something planted is to have.

    Attributes:
        delay: nights to the latest on which it may be raised; 1 where it has to be the first.
        back: the night on which its cases are back, where they come back.
        accepted: the night before which a person accepts it, where one does.
    """

    cause: Cause
    direction: Direction = Direction.SLOWER
    delay: int = 1
    back: int | None = None
    accepted: int | None = None

    @property
    def state(self) -> FindingState:
        """How it ends."""
        if self.back is not None:
            return FindingState.RESOLVED
        return FindingState.OPEN if self.accepted is None else FindingState.ACCEPTED


@dataclass(frozen=True)
class Planted:
    """Something that happens, and what is to be found of it.

    Attributes:
        night: on which it happens, or begins to.
        cases: globs of the cases that it touches, with blanks between them.
        driver: the one that is installed then; empty where it stays the same.
        expected: its finding; None where nothing may be raised of it.
        improves: whether the night's verdicts take its cases for improved.
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
        """Whether a case is one of its own, by its benchmark and variant."""
        return any(fnmatch(case, glob) for glob in self.cases.split())


@dataclass(frozen=True)
class Plan:
    """So many nights of a suite, and all that is planted in them."""

    nights: int
    benchmarks: int
    variants: int
    planted: tuple[Planted, ...]
    replicas: int = 3

    @property
    def cases(self) -> frozenset[str]:
        """All of the suite, by benchmark and variant: ``b3/v1``."""
        return frozenset(f"b{number}/v{one}" for number in range(self.benchmarks) for one in range(self.variants))

    @property
    def measurements(self) -> int:
        """How many a night takes, but for what is measured again."""
        return self.replicas * self.benchmarks * self.variants

    def commits(self, night: int) -> list[Commit]:
        """What changes in the code before a night."""
        return [commit for one in self.planted for commit in one.commits if commit.night == night]

    def weather(self, night: int) -> list[Weather]:
        """What blows on a night."""
        return [weather for one in self.planted for weather in one.weather if weather.blows(night)]

    def driver(self, night: int) -> str:
        """The one that is installed on a night."""
        return next((one.driver for one in reversed(self.planted) if one.driver and one.night <= night), FIRST_DRIVER)

    def accepted(self, night: int) -> list[Planted]:
        """What a person accepts before a night."""
        return [one for one in self.planted if one.expected and one.expected.accepted == night]

    def moved(self, planted: Planted) -> set[str]:
        """The cases of something planted."""
        return {case for case in self.cases if planted.touches(case)}


# --- what can be planted ---------------------------------------------------------------------------------------------


def step(
    name: str,
    commits: Sequence[Commit],
    *,
    delay: int = 1,
    back: int | None = None,
    accepted: int | None = None,
) -> Planted:
    """Code that is slower from the night of some commits on, until they are taken ``back``."""
    undone = [] if back is None else [Commit(back, one.path, one.cases, 1 / one.factor) for one in commits]
    expected = Expected(Cause.KERNEL, delay=delay, back=back, accepted=accepted)
    return Planted(name, commits[0].night, _cases_of(commits), (*commits, *undone), expected=expected)


def drift(name: str, nights: Sequence[int], change: Commit, *, latest: int, accepted: int) -> Planted:
    """The same small change again and again, to be found before the night ``latest``."""
    commits = tuple(Commit(night, change.path, change.cases, change.factor) for night in nights)
    expected = Expected(Cause.KERNEL, delay=latest - nights[0], accepted=accepted)
    return Planted(name, nights[0], change.cases, commits, expected=expected)


def improvement(name: str, commit: Commit) -> Planted:
    """Code that is faster: its verdict takes the new level by itself, and nobody needs to look at it."""
    return Planted(name, commit.night, commit.cases, (commit,), improves=True)


def rebuilt(name: str, night: int, path: str, cases: str) -> Planted:
    """A commit that makes other binaries of some cases, and none slower."""
    return Planted(name, night, cases, (Commit(night, path),))


def spike(name: str, night: int, cases: str, factor: float) -> Planted:
    """One night on which some cases take longer."""
    return Planted(name, night, cases, weather=(Weather(night, night, cases, factor),))


def driver(name: str, night: int, version: str, factor: float, *, accepted: int | None = None) -> Planted:
    """Another driver, under which everything takes longer from then on."""
    expected = Expected(Cause.ENVIRONMENT, accepted=accepted)
    return Planted(name, night, "*", weather=(Weather(night, None, "*", factor),), driver=version, expected=expected)


def slow_board(name: str, night: int, nights: int, factor: float) -> Planted:
    """A GPU on which everything takes longer for some nights."""
    expected = Expected(Cause.ENVIRONMENT, back=night + nights)
    return Planted(name, night, "*", weather=(Weather(night, night + nights - 1, "*", factor),), expected=expected)


def _cases_of(commits: Iterable[Commit]) -> str:
    return " ".join(one.cases for one in commits)
