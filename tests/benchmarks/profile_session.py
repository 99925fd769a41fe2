"""Measure how long it takes to profile both sides of many cases: in one session, and in a session for each launch.

    python tests/benchmarks/profile_session.py [--device cuda:0] [--cases 8] [--json FILE]

The script measures cases of the built-in suite in two short runs. Then it profiles the binaries of both runs on one GPU
under Nsight Compute, as the stage ``profile`` of a night does: first all launches in one session, then each launch in a
session of its own, then all launches in one session with the set of sections ``full``. It needs Nsight Compute and the
right to read counters. On a fake device, the seconds are those of the processes on the host.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench import SUITE, Claim, finish, geometric_mean, table

from perfsvc.device.find import find
from perfsvc.errors import PerfsvcError
from perfsvc.measure.host.servers import worker_servers
from perfsvc.model import DeviceInfo, ProfileResult
from perfsvc.profile.profiler import OWN
from perfsvc.service.prepare.targets import compile_helper_kernels
from perfsvc.service.profile.case_profiler import CaseProfiler, ProfilerSettings, ProfilingTask, Subject, subject_of
from perfsvc.service.run.request import RunRequest
from perfsvc.service.run.run import run
from perfsvc.store import Store
from perfsvc.suite import Selection

BENCHMARKS = ("transpose", "dot", "matmul", "vector_add", "matrix_add", "pitched", "constant_memory", "sum_of_cubes")
"""Benchmarks with kernels in CUDA C++: kernels that Python launches are not profiled."""
LARGEST_SHARE = 0.33
"""In one session, the launches take at most this share of the time that they take in sessions of their own."""
LONGEST_CASE_S = 3.0
"""Both sides of a case take at most this long in one session."""
LARGEST_DIFFERENCE = 0.1
"""By how much the times of launches in one session may differ on average from their times in sessions of their own."""

Durations = Mapping[tuple[str, int], tuple[str, float]]
"""The kernel and the duration of each launch, by case and run."""


@dataclass(frozen=True)
class Profiled:
    """How long some launches took to profile.

    Attributes:
        launches: how many launches there were.
        profiled: how many of them have a profile.
        seconds: the time of all launches.
        report_bytes: the size of all reports.
    """

    launches: int
    profiled: int
    seconds: float
    report_bytes: int


class Silent:
    """A ``Progress`` that shows messages only."""

    def begin(self, stage: str, total: int) -> None:
        """Do nothing."""

    def step(self, what: str) -> None:
        """Do nothing."""

    def report(self, line: str) -> None:
        """Print a message."""
        print(line, flush=True)


class Session:
    """The launches of some cases of two runs on one GPU.

    Args:
        store: holds both runs.
        device: the GPU.
        most: how many cases to profile.
    """

    def __init__(self, store: Store, device: DeviceInfo, most: int) -> None:
        self._store = store
        self._device = device
        self._helper_kernels = compile_helper_kernels([device], Silent())
        pairs = map(self._pair, spread([case.id for _, case, _ in store.binaries.of_run(1)]))
        self.pairs = [pair for pair in pairs if pair][:most]

    def _pair(self, case: str) -> tuple[Subject, Subject] | None:
        """Return a case of both runs; None if it cannot be profiled."""
        here = {self._device.uuid: self._device}
        try:
            pair = subject_of(self._store, case, 1, here), subject_of(self._store, case, 2, here)
            self._profiler(OWN).stored_case(pair[0])
        except PerfsvcError:
            return None
        return pair

    def together(self, sections: str) -> tuple[Profiled, Durations]:
        """Profile all launches in one session."""
        tasks = [task for pair in self.pairs for task in _tasks(pair)]
        return self._timed(lambda: self._profiler(sections).profile_all(tasks).values())

    def one_by_one(self) -> tuple[Profiled, Durations]:
        """Profile each launch in a session of its own."""

        def profiled() -> list[ProfileResult | PerfsvcError]:
            answers: list[ProfileResult | PerfsvcError] = []
            for baseline, candidate in self.pairs:
                profiler = self._profiler(OWN)
                after = next(iter(profiler.profile_all([ProfilingTask(candidate)]).values()))
                answers.append(after)
                if isinstance(after, ProfileResult):
                    answers += profiler.profile_all([ProfilingTask(baseline, after)]).values()
            return answers

        return self._timed(profiled)

    def _profiler(self, sections: str) -> CaseProfiler:
        settings = ProfilerSettings({self._device.uuid: self._device}, self._helper_kernels, sections)
        return CaseProfiler(self._store, settings)

    def _timed(
        self, profile: Callable[[], Sequence[ProfileResult | PerfsvcError]]
    ) -> tuple[Profiled, dict[tuple[str, int], tuple[str, float]]]:
        began = time.monotonic()
        answers = list(profile())
        seconds = time.monotonic() - began
        for answer in answers:
            if isinstance(answer, PerfsvcError):
                print(f"PROBLEM  {answer}", flush=True)
        results = [answer for answer in answers if isinstance(answer, ProfileResult)]
        reports = {self._store.profiles.report(result.id or 0) for result in results}
        durations = {
            (result.case.id, result.run): (result.profile.kernel, result.profile.metrics["duration_s"] or 0.0)
            for result in results
            if result.profile
        }
        return Profiled(2 * len(self.pairs), len(results), seconds, sum(map(len, reports))), durations


def _tasks(pair: tuple[Subject, Subject]) -> tuple[ProfilingTask, ProfilingTask]:
    baseline, candidate = pair
    task = ProfilingTask(candidate)
    return task, ProfilingTask(baseline, task)


def spread(cases: Sequence[str]) -> list[str]:
    """Return the cases in turns: one of each benchmark, then another of each, without repetition."""
    by_benchmark: dict[str, list[str]] = {}
    for case in dict.fromkeys(cases):
        by_benchmark.setdefault(case.partition("/")[0], []).append(case)
    most = max(map(len, by_benchmark.values()), default=0)
    return [cases[turn] for turn in range(most) for cases in by_benchmark.values() if turn < len(cases)]


def main() -> int:
    """Measure, profile, and print the results."""
    options = arguments()
    (device,) = find([options.device])
    with tempfile.TemporaryDirectory() as name, worker_servers() as servers:
        os.environ.setdefault("PERFSVC_KEYS", str(Path(name, "keys")))
        database = str(Path(name, "perfsvc.db"))
        selection = Selection(options.only or BENCHMARKS)
        for _ in range(2):
            run(
                RunRequest(database, SUITE, (options.device,), selection, replicas=1, samples=20, seconds=0.05),
                Silent(),
                servers,
            )
        with Store.open(database) as store:
            session = Session(store, device, options.cases)
            print(f"{device.model}: {len(session.pairs)} cases of two runs", flush=True)
            together, durations = session.together(OWN)
            alone, durations_alone = session.one_by_one()
            full, _ = session.together("full")
    results = {"one session": together, "a session each": alone, "one session, full": full}
    rows = [
        (
            how,
            f"{found.profiled} of {found.launches}",
            f"{found.seconds:.1f}",
            f"{found.seconds / found.launches:.2f}",
            f"{found.report_bytes / found.launches / 1e3:.0f}",
        )
        for how, found in results.items()
    ]
    print("\n" + table(("how", "profiled", "seconds", "seconds a launch", "kB a launch"), rows) + "\n")
    both = durations.keys() & durations_alone.keys()
    ratio = geometric_mean(durations[key][1] / durations_alone[key][1] for key in both) if both else None
    claims = [
        Claim("launches without a profile", sum(found.launches - found.profiled for found in results.values()), 0),
        Claim(
            "launches with another kernel in one session",
            sum(durations[key][0] != durations_alone[key][0] for key in both),
            0,
        ),
        Claim(
            "mean difference of the times in one session and alone",
            None if ratio is None else abs(ratio - 1),
            LARGEST_DIFFERENCE,
        ),
        Claim("time in one session over time in a session each", together.seconds / alone.seconds, LARGEST_SHARE),
        Claim("both sides of a case, in one session", 2 * together.seconds / together.launches, LONGEST_CASE_S, " s"),
    ]
    found = {how: asdict(profiled) for how, profiled in results.items()}
    cases = [candidate.case.id for _, candidate in session.pairs]
    return finish(claims, options.json, device=device.model, results=found, cases=cases)


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="one GPU (default: cuda:0)")
    parser.add_argument("--cases", type=int, default=8, help="how many cases to profile (default: 8)")
    parser.add_argument("--only", action="append", help="a pattern of cases; may be repeated (default: CUDA C++)")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
