"""Run simulated nights one after the other, and measure their costs."""

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

from perfsvc.measure.host.servers import worker_servers
from perfsvc.model import FindingState
from perfsvc.service.run.request import RunRequest
from perfsvc.service.run.run import run
from perfsvc.store import Store


@dataclass(frozen=True)
class Lived:
    """The costs of a night: wall time, processor time, and the database's bytes after it.

    Attributes:
        around_s: wall time of the simulation itself, which is not perfsvc's: making commits, writing scripts, accepting
            findings.
        suspects: how many series were measured again.
    """

    night: int
    wall_s: float
    cpu_s: float
    around_s: float
    bytes: int
    suspects: int


def live(workplace: Workplace, profiled: Collection[int] = ()) -> Iterator[Lived]:
    """Run the nights of a plan, and yield each when it is over; print the profile of those ``profiled``."""
    with worker_servers() as servers:
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
                sum(not confirmation.carried_over for confirmation in done.confirmations),
            )


def happen(workplace: Workplace, night: int) -> None:
    """Do what happens before a night: commit changes, accept findings that stay, and set the times."""
    if changes := workplace.plan.commits(night):
        workplace.commit(changes)
    for planted in workplace.plan.accepted(night):
        accept(workplace, planted)
    workplace.play(night, "measuring")


def accept(workplace: Workplace, planted: Planted) -> None:
    """Accept the active findings of a planted thing, as a user would."""
    with Store.open(workplace.database) as store:
        for finding in store.findings.active():
            if answers(workplace.plan, planted, finding):
                store.findings.set_state(finding.id, FindingState.ACCEPTED, reason="it is here to stay", by="a person")


def request(workplace: Workplace, night: int) -> RunRequest:
    """Return the request of a night's run."""
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
    """A ``Progress`` that gives the confirmation noise of its own, because to measure again is to draw again.

    Attributes:
        around_s: the wall time of that.
    """

    def __init__(self, workplace: Workplace, night: int) -> None:
        self.around_s = 0.0
        self._workplace = workplace
        self._night = night

    def begin(self, stage: str, total: int) -> None:
        """Write the script of the confirmation, if anything is measured again."""
        if stage == "confirming" and total:
            began = time.perf_counter()
            self._workplace.play(self._night, stage)
            self.around_s += time.perf_counter() - began

    def step(self, what: str) -> None:
        """Ignore the step."""

    def report(self, line: str) -> None:
        """Ignore the message."""


@contextmanager
def profiling(*, on: bool) -> Iterator[None]:
    """Print a profile of this thread's time in the block if ``on``."""
    if not on:
        yield
        return
    profile = cProfile.Profile(time.thread_time)
    with profile:
        yield
    pstats.Stats(profile).sort_stats("cumulative").print_stats("perfsvc", 60)


# --- growth of the database ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tenth:
    """Successive nights: the last of them, and the mean costs of one."""

    last: int
    bytes_after: int
    bytes_a_night: float
    wall_s: float
    cpu_s: float
    around_s: float
    suspects: int


def tenths(lived: Sequence[Lived]) -> list[Tenth]:
    """Return the nights in ten parts, or one by one if there are fewer."""
    parts = min(10, len(lived))
    ends = [round(part * len(lived) / parts) for part in range(parts + 1)]
    return [_tenth(lived[:first], lived[first:last]) for first, last in pairwise(ends)]


def _tenth(before: Sequence[Lived], part: Sequence[Lived]) -> Tenth:
    grown = part[-1].bytes - (before[-1].bytes if before else 0)
    means = {name: sum(getattr(night, name) for night in part) / len(part) for name in ("wall_s", "cpu_s", "around_s")}
    suspects = sum(night.suspects for night in part)
    return Tenth(part[-1].night, part[-1].bytes, grown / len(part), suspects=suspects, **means)


def apiece(lived: Sequence[Lived]) -> float:
    """Return the mean bytes of a night, over the second half of the nights."""
    half = len(lived) // 2
    return (lived[-1].bytes - lived[half].bytes) / max(1, len(lived) - 1 - half)


def bend(lived: Sequence[Lived]) -> float:
    """Return by how many per cent the nights of the last third take more space than those of the second."""
    third = len(lived) // 3
    if not third:
        return 0.0
    first, second, last = (lived[part * third - 1].bytes for part in (1, 2, 3))
    return 100 * ((last - second) / (second - first) - 1)
