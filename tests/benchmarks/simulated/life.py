"""Run simulated nights one after the other, and measure their costs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean

from simulated.found import answers
from simulated.planted import Planted
from simulated.workplace import Stages, Workplace

from perfsvc.measure.host.pool import worker_servers
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


def live(workplace: Workplace) -> Iterator[Lived]:
    """Run the nights of a plan, and yield each when it is over."""
    with worker_servers() as servers:
        for night in range(1, workplace.plan.nights + 1):
            began = time.perf_counter()
            happen(workplace, night)
            stages = Stages(partial(workplace.play, night))
            around_s, used = time.perf_counter() - began, time.process_time()
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


# --- growth of the database ------------------------------------------------------------------------------------------


def tenths(lived: Sequence[Lived]) -> list[tuple[Lived, float]]:
    """Return ten parts of the nights, or single nights if they are fewer: the mean night of each, and its growth.

    The mean night has the number and the bytes of the last night of the part, and all suspects of the part; the growth
    is the mean number of bytes that a night added.
    """
    parts = min(10, len(lived))
    ends = [round(part * len(lived) / parts) for part in range(parts + 1)]
    found = []
    for first, last in pairwise(ends):
        part = lived[first:last]
        grown = part[-1].bytes - (lived[first - 1].bytes if first else 0)
        wall_s, cpu_s, around_s = (
            fmean(getattr(night, name) for night in part) for name in ("wall_s", "cpu_s", "around_s")
        )
        suspects = sum(night.suspects for night in part)
        found.append((Lived(part[-1].night, wall_s, cpu_s, around_s, part[-1].bytes, suspects), grown / len(part)))
    return found


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
