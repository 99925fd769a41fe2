"""Measure how long a bad night takes: one commit slows eight cases on every GPU of a model, or a hundred on one GPU.

    python tests/benchmarks/bad_night.py [--device cuda] [--gpus 4] [--slow 3] [--json FILE]

Writes a suite of streaming kernels into a temporary git repository, and measures it. A second commit makes each kernel
process ``--slow`` per cent of its elements twice; the suite is measured again, and its suspects are confirmed. The
script compares the seconds of confirming all suspects together with the seconds of confirming them one after the other,
estimated from ``--singly`` of them. Then it confirms the hundred suspects within a short budget (``--budget``).
On real GPUs with Nsight Compute it also profiles and explains the eight slowed cases.

Without ``--device`` the GPUs are fake. Then the times of the kernels are scripted, and the seconds are those of the
processes on the host. The CPU device needs about ``--slow 300``, because of its threshold.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from workbench import Claim, Silent, commit, finish, parsed, table

from perfsvc import judge
from perfsvc.device.find import find
from perfsvc.measure.host.pool import worker_servers
from perfsvc.model import Cause, Confirmation, DeviceInfo, Suspect
from perfsvc.process.fork_servers import ForkServers
from perfsvc.service.confirm.confirm import confirm_all
from perfsvc.service.confirm.pairs import PairSettings
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.prepare.targets import compile_helper_kernels
from perfsvc.service.profile.case_profiler import ProfilerSettings
from perfsvc.service.profile.regressions import explain_confirmed
from perfsvc.service.run.request import RunRequest
from perfsvc.service.run.run import pair_settings, run
from perfsvc.store import Store

SEED = 1
EIGHT = 8
"""The kernels of the suite that all GPUs measure, each at one size."""
TEN = 10
"""The kernels of the suite that one GPU measures, each at ten sizes (``--sizes``)."""
FAKE_S = 1e-4
"""The time of each kernel on a fake GPU, before the slow commit."""
LONGEST_EIGHT_S, LONGEST_HUNDRED_S = 60.0, 300.0
LONGEST_SHARE = 0.5
"""Together, the suspects take at most this share of the time that they take one after the other."""
GRACE_S = 10.0
"""A budget may be exceeded by the cases that are being measured when it ends."""

BENCH = '''
"""c = a + b. A slow commit makes each kernel add the first PERCENT of its elements twice."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

PERCENT = {percent}

benchmark = Benchmark(
    axes={{"n": {sizes}}},
    smoke={{"n": {sizes}[0]}},
    inputs=lambda rng, n: {{"a": rng.random(n, dtype="float32"), "b": rng.random(n, dtype="float32")}},
    outputs={{"c": output("float32", lambda n: n)}},
    reference=lambda a, b: a + b,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n, flops=n),
    variants=[
        Variant(
            f"grid{{grid}}",
            source="add.cu",
            entry="add",
            args=("c", "a", "b", "n"),
            grid=grid,
            block=256,
            params={{"PERCENT": PERCENT, "GRID": grid}},
        )
        for grid in {grids}
    ],
)
'''

SOURCE = """
extern "C" __global__ void add(float* c, const float* a, const float* b, int n) {
    long total = n + (long)n * PERCENT / 100;
    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (long)GRID * blockDim.x) {
        long at = i;
        while (at >= n) at -= n;
        c[at] = a[at] + b[at];
    }
}
"""


@dataclass(frozen=True)
class Confirmed:
    """How long the confirmation of some suspects took.

    Attributes:
        suspects: how many suspects there were.
        together_s: seconds to confirm them together.
        singly_s: seconds to confirm them one after the other, estimated from some of them.
        causes: how many suspects have each cause.
        applied: how many suspects got the answer of another GPU.
        over_budget: how many suspects the budget had no time for.
        wrong: how many suspects do not have the cause ``kernel``.
        explain_s: seconds to profile and explain the confirmed regressions; None if they were not profiled.
        explained: how many of the suspects have an explanation.
    """

    suspects: int
    together_s: float
    singly_s: float
    causes: dict[str, int]
    applied: int
    over_budget: int = 0
    explain_s: float | None = None
    explained: int = 0

    @property
    def wrong(self) -> int:
        """How many suspects do not have the cause ``kernel``."""
        return self.suspects - self.causes.get(Cause.KERNEL, 0)

    @property
    def whole_s(self) -> float:
        """The seconds to confirm the suspects together, and to explain them if they were profiled."""
        return self.together_s + (self.explain_s or 0.0)

    @property
    def share(self) -> float | None:
        """The time together, as a share of the time one after the other."""
        return self.together_s / self.singly_s if self.singly_s else None


class Nights:
    """A suite in a repository, measured before and after the slow commit.

    Args:
        folder: a new folder.
        kernels: how many kernels the suite has.
        sizes: at how many sizes each kernel is measured.
        options: the options of the command line.
        servers: fork the workers.

    Attributes:
        kind: the kind of the devices.
    """

    def __init__(
        self, folder: Path, kernels: int, sizes: int, options: argparse.Namespace, servers: ForkServers
    ) -> None:
        self._folder = folder
        self._options = options
        self._servers = servers
        self._suite = folder / "suite"
        self._suite.mkdir(parents=True)
        gpus = options.gpus if kernels == EIGHT else 1
        if options.device == "fake":
            self._specs = [f"fake:{folder / f'gpu{number}.json'}" for number in range(gpus)]
            self._play({"*": FAKE_S})
        else:
            self._specs = [device.spec for device in find([options.device])][:gpus]
        self.kind = find(self._specs)[0].kind
        self._commit(kernels, sizes, percent=0)
        self._measure()
        if self.kind == "fake":
            slow = {"*": FAKE_S * (1 + options.slow / 100)}
            self._play(slow | dict.fromkeys(self._binaries(), FAKE_S))
        self._commit(kernels, sizes, percent=options.slow)
        self._run = self._measure()

    @property
    def devices(self) -> dict[str, DeviceInfo]:
        """The devices by UUID."""
        return {device.uuid: device for device in find(self._specs)}

    def confirm(
        self, *, singly: int = 0, budget_s: float = 3600.0, explain: bool = False
    ) -> tuple[Confirmed, list[str]]:
        """Confirm all suspects together, and some of them one after the other; return also the messages."""
        silent = Silent()
        began = time.monotonic()
        explain_s, explained = None, 0
        with Store.open(self._copy()) as store:
            suspects = suspects_of(store, self._run)
            settings = replace(self._settings(silent), budget_s=budget_s)
            confirmations, over_budget = confirm_all(store, suspects, settings, silent)
            together_s = time.monotonic() - began
            if explain:
                explained = self._explain(store, confirmations, silent)
                explain_s = time.monotonic() - began - together_s
        sample = suspects[:: max(1, len(suspects) // singly)][:singly] if singly else []
        alone_s = statistics.mean([self._confirm_alone(suspect) for suspect in sample]) if sample else 0.0
        causes = dict(Counter(str(answer.cause) for answer in confirmations))
        applied = sum(answer.pairs < judge.LOOKS[0] for answer in confirmations)
        found = Confirmed(len(suspects), together_s, alone_s * len(suspects), causes, applied, len(over_budget))
        return replace(found, explain_s=explain_s, explained=explained), silent.messages

    def _explain(self, store: Store, confirmations: Sequence[Confirmation], silent: Silent) -> int:
        """Profile and explain confirmed regressions; return how many have an explanation."""
        devices = self.devices
        helper_kernels = compile_helper_kernels(devices.values(), silent)
        settings = ProfilerSettings(devices, helper_kernels, report=silent.report)
        explanations = explain_confirmed(store, confirmations, settings, silent)
        for explanation in explanations:
            print(f"    {explanation.case.id}: {explanation.sentence or explanation.reason}", flush=True)
        return sum(bool(explanation.sentence) for explanation in explanations)

    def _confirm_alone(self, suspect: Suspect) -> float:
        """Return the seconds that one suspect takes."""
        silent = Silent()
        with Store.open(self._copy()) as store:
            began = time.monotonic()
            confirm_all(store, [suspect], self._settings(silent), silent)
            return time.monotonic() - began

    def _settings(self, silent: Silent) -> PairSettings:
        devices = self.devices
        helper_kernels = compile_helper_kernels(devices.values(), silent)
        return pair_settings(
            self._request(), devices, helper_kernels, seed=SEED, servers=self._servers, report=silent.report
        )

    def _request(self) -> RunRequest:
        return RunRequest(
            str(self._folder / "perfsvc.db"), self._suite, tuple(self._specs), points="full", seed=SEED, replicas=3
        )

    def _measure(self) -> int:
        silent = Silent()
        outcome = run(self._request(), silent, self._servers)
        for bad in outcome.bad[:3]:
            print(f"PROBLEM  {bad.case.id}: {bad.reason}")
        return outcome.run

    def _copy(self) -> str:
        """Return a copy of the database, so that each way of confirming finds no confirmation."""
        path = self._folder / "copy.db"
        for old in self._folder.glob("copy.db*"):
            old.unlink()
        with Store.open(self._folder / "perfsvc.db"):
            shutil.copy(self._folder / "perfsvc.db", path)
        return str(path)

    def _commit(self, kernels: int, sizes: int, percent: int) -> None:
        """Write the suite with kernels that process this share of their elements twice, and commit it."""
        bench = self._suite / "add"
        bench.mkdir(parents=True, exist_ok=True)
        (bench / "add.cu").write_text(SOURCE)
        smallest = 2**20 if self.kind == "cuda" else 2**10
        text = BENCH.format(
            percent=percent,
            sizes=tuple(16 * smallest + smallest * number for number in range(sizes)),
            grids=tuple(528 * (number + 1) for number in range(kernels)),
        )
        (bench / "bench.py").write_text(text)
        commit(self._folder, f"process {percent} % twice", "suite")

    def _play(self, seconds: dict[str, float]) -> None:
        """Script the fake GPUs: the seconds of the cases, by their names or by the digests of their binaries."""
        cases = {name: {"seconds": value, "within": 0.002, "between": 0.0005} for name, value in seconds.items()}
        for number, spec in enumerate(self._specs):
            script = {"uuid": f"FAKE-{number}", "seed": number, "cases": cases}
            Path(spec.removeprefix("fake:")).write_text(json.dumps(script))

    def _binaries(self) -> list[str]:
        """Return the digests of the binaries measured so far."""
        with Store.open(str(self._folder / "perfsvc.db")) as store:
            used = store.binaries.of_run(1).values()
            rows = store.binaries.get([case.binary for case in used])
            return sorted({module for row in rows.values() for module in row.record.modules})


def main() -> int:
    """Measure both bad nights and print the results."""
    options = parsed(
        __doc__,
        ("--device", "fake", "fake, cuda (every GPU), or a device"),
        ("--gpus", 4, "how many GPUs measure the eight cases"),
        ("--slow", 3, "per cent of more work after the commit"),
        ("--singly", 8, "suspects to confirm one after the other"),
        ("--sizes", 10, "sizes of each of the ten kernels"),
        ("--budget", 20.0, "seconds of the short budget for a hundred"),
    )
    results: dict[str, Confirmed] = {}
    with tempfile.TemporaryDirectory() as folder, worker_servers() as servers:
        os.environ.setdefault("PERFSVC_KEYS", str(Path(folder, "keys")))
        nights = Nights(Path(folder, "eight"), EIGHT, 1, options, servers)
        devices = nights.devices
        model = next(iter(devices.values())).model
        print(f"{model}, {len(devices)} GPUs", flush=True)
        profiled = nights.kind == "cuda"
        results["eight cases"], said = nights.confirm(singly=options.singly, explain=profiled)
        print("\n".join([f"eight cases: {results['eight cases']}", *said]), flush=True)
        hundred = Nights(Path(folder, "hundred"), TEN, options.sizes, options, servers)
        results["a hundred cases"], _ = hundred.confirm(singly=options.singly)
        print(f"a hundred cases: {results['a hundred cases']}", flush=True)
        short, messages = hundred.confirm(budget_s=options.budget)
    rows = [
        [
            name,
            str(found.suspects),
            f"{found.singly_s:.1f}",
            f"{found.together_s:.1f}",
            "-" if found.explain_s is None else f"{found.explain_s:.1f}",
            "-" if found.share is None else f"{found.share:.2f}",
            str(found.applied),
            str(found.wrong),
        ]
        for name, found in results.items()
    ]
    columns = ("one commit slows", "suspects", "singly s", "together s", "explained s", "share", "applied", "wrong")
    print("\n" + table(columns, rows))
    print("\n".join(["", *messages, ""]))
    eight, hundred_found = results["eight cases"], results["a hundred cases"]
    unreported = short.suspects - sum(short.causes.values()) - short.over_budget
    return finish(
        [
            Claim("suspects whose cause is not the kernel", eight.wrong + hundred_found.wrong, 0),
            Claim(
                f"eight cases on {len(devices)} GPUs{', confirmed and explained' if profiled else ''}",
                eight.whole_s,
                LONGEST_EIGHT_S,
                " s",
            ),
            *(
                [Claim("eight cases: suspects without an explanation", eight.suspects - eight.explained, 0)]
                if profiled
                else []
            ),
            Claim("a hundred cases on one GPU", hundred_found.together_s, LONGEST_HUNDRED_S, " s"),
            Claim("eight cases: time together over time singly", eight.share, LONGEST_SHARE),
            Claim("a hundred cases: time together over time singly", hundred_found.share, LONGEST_SHARE),
            Claim("a short budget: seconds over the budget", short.together_s - options.budget, GRACE_S, " s"),
            Claim("a short budget: suspects neither confirmed nor reported", unreported, 0),
        ],
        options.json,
        device=model,
        gpus=len(devices),
        results={name: asdict(found) | {"share": found.share} for name, found in results.items()},
        short_budget=asdict(short) | {"budget_s": options.budget, "messages": messages},
    )


if __name__ == "__main__":
    sys.exit(main())
