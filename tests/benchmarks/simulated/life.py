"""Simulated nights, lived one after the other, and what they cost."""

import cProfile
import pstats
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from simulated.found import answers
from simulated.planted import Planted
from simulated.workplace import Workplace

from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.model import FindingState
from perfsvc.service.run.request import RunRequest
from perfsvc.service.run.run import run
from perfsvc.store import Store


@dataclass(frozen=True)
class Lived:
    """What a night cost: by the clock and of the processor, and the database's bytes after it.

    Attributes:
        around_s: seconds that simulating it took, by the clock, which are not perfsvc's: commits are made, scripts
            written, findings accepted.
        suspects: how many series were measured again.
    """

    night: int
    wall_s: float
    cpu_s: float
    around_s: float
    bytes: int
    suspects: int


def live(workplace: Workplace, profiled: Collection[int] = ()) -> Iterator[Lived]:
    """Goes through the nights of a plan, and tells of each when it is over; prints what those ``profiled`` do."""
    with ForkServers() as servers:
        for night in range(1, workplace.plan.nights + 1):
            began = time.perf_counter()
            happen(workplace, night)
            stages = Stages(workplace, night)
            around_s, used = time.perf_counter() - began, time.process_time()
            with profiling(on=night in profiled):
                done = run(request(workplace, night), stages, servers)
            cpu_s, all_s = time.process_time() - used, time.perf_counter() - began
            around_s += stages.around_s
            yield Lived(
                night,
                all_s - around_s,
                cpu_s,
                around_s,
                workplace.bytes,
                sum(not one.carried_over for one in done.confirmations),
            )


def happen(workplace: Workplace, night: int) -> None:
    """All that happens before a night: code changes, a person accepts what stays, and so is the weather."""
    if changes := workplace.plan.commits(night):
        workplace.commit(changes)
    for planted in workplace.plan.accepted(night):
        accept(workplace, planted)
    workplace.play(night, "measuring")


def accept(workplace: Workplace, planted: Planted) -> None:
    """A person takes what stands of something planted as it is."""
    with Store.open(workplace.database) as store:
        for one in store.findings.active():
            if answers(workplace.plan, planted, one):
                store.findings.set_state(one.id, FindingState.ACCEPTED, reason="it is here to stay", by="a person")


def request(workplace: Workplace, night: int) -> RunRequest:
    """What a night is asked for."""
    return RunRequest(
        database=str(workplace.database),
        suite=workplace.suite,
        devices=(f"fake:{workplace.script}",),
        seed=night,
        replicas=workplace.plan.replicas,
        confirm=True,
        label="nightly",
    )


class Stages:
    """A ``Progress`` that has suspects be measured under noise of their own: to measure again is to draw again.

    Attributes:
        around_s: seconds by the clock that this took.
    """

    def __init__(self, workplace: Workplace, night: int) -> None:
        self.around_s = 0.0
        self._workplace = workplace
        self._night = night

    def begin(self, stage: str, total: int) -> None:
        """Plays the script of what is measured again, where anything is."""
        if stage == "confirming" and total:
            began = time.perf_counter()
            self._workplace.play(self._night, stage)
            self.around_s += time.perf_counter() - began

    def step(self, what: str) -> None:
        """Nobody watches."""

    def say(self, line: str) -> None:
        """Nobody listens."""


@contextmanager
def profiling(*, on: bool) -> Iterator[None]:
    """Prints what the block spends this thread's time on, if that is wanted."""
    if not on:
        yield
        return
    profile = cProfile.Profile(time.thread_time)
    with profile:
        yield
    pstats.Stats(profile).sort_stats("cumulative").print_stats("perfsvc", 60)


# --- what the database grows by --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tenth:
    """Some nights in a row: the last of them, and what one of them cost in the mean."""

    last: int
    bytes_after: int
    bytes_a_night: float
    wall_s: float
    cpu_s: float
    around_s: float
    suspects: int


def tenths(lived: Sequence[Lived]) -> list[Tenth]:
    """The nights in ten parts, or one by one where there are fewer."""
    parts = min(10, len(lived))
    ends = [round(part * len(lived) / parts) for part in range(parts + 1)]
    return [_tenth(lived[:first], lived[first:last]) for first, last in pairwise(ends)]


def _tenth(before: Sequence[Lived], part: Sequence[Lived]) -> Tenth:
    grown = part[-1].bytes - (before[-1].bytes if before else 0)
    means = {name: sum(getattr(one, name) for one in part) / len(part) for name in ("wall_s", "cpu_s", "around_s")}
    suspects = sum(one.suspects for one in part)
    return Tenth(part[-1].night, part[-1].bytes, grown / len(part), suspects=suspects, **means)


def apiece(lived: Sequence[Lived]) -> float:
    """The bytes that a night takes, over the second half of the nights."""
    half = len(lived) // 2
    return (lived[-1].bytes - lived[half].bytes) / max(1, len(lived) - 1 - half)


def bend(lived: Sequence[Lived]) -> float:
    """By how many per cent the nights of the last third take more room than those of the second."""
    third = len(lived) // 3
    if not third:
        return 0.0
    first, second, last = (lived[part * third - 1].bytes for part in (1, 2, 3))
    return 100 * ((last - second) / (second - first) - 1)
